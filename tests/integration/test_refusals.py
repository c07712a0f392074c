"""What the coordinator refuses, with the reason and the way out, and what it does once the cause is gone."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from pypaimon import CatalogFactory, Schema
from structlog.testing import capture_logs

from sluicegate.coordinator.core.state import RECORD_VERSION
from sluicegate.coordinator.runtime.service import Service
from sluicegate.events.models import OpeningAnswered, Parent
from sluicegate.kafka.topics import TopicNames, TopicsRefused, ensure_topics, topic_specs
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, SCHEMA, create_table, make_topics, read_ids, read_records
from tests.integration.letters import home_of, put_raw, stalls
from tests.integration.orders import invoke, sluicegate
from tests.integration.waiting import finished, until

pytestmark = pytest.mark.kafka


async def run(place: Place) -> Service:
    """Run the service to its end."""
    service = Service(place.settings())
    await finished(service.run(asyncio.Event()))
    return service


async def test_missing_and_wrong_topics_are_all_named(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    names = TopicNames(unique)
    specs = {spec.role: spec for spec in topic_specs(names, partitions=PARTITIONS)}
    wrong = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
    events, _, state, _ = specs.values()
    bad = [
        type(events)(events.name, events.role, PARTITIONS, 1, {**events.settings, **wrong}),
        type(state)(state.name, state.role, 2, 1, state.settings),
    ]
    for spec in bad:
        await ensure_topics(kafka_bootstrap, [spec])
    place = Place(kafka_bootstrap, unique, names, tmp_path, create_table(tmp_path))
    with pytest.raises(TopicsRefused) as refused:
        await run(place)
    text = str(refused.value)
    last = text.splitlines()[-1]
    assert last == (
        f"these topics do not exist: {names.commits}, {names.dead_letters}; make them with: "
        "sluicegate topics create"
    )
    assert "--create" not in text
    for topic, problem, remedy in (
        (names.events, "cleanup.policy is 'compact'", "--add-config cleanup.policy=delete"),
        (names.events, "message.timestamp.type is 'CreateTime'", "--add-config message.timestamp.type"),
        (names.state, "it has 2 partitions", "--alter"),
    ):
        assert any(topic in line and problem in line and remedy in line for line in text.splitlines()), text


async def test_a_lineage_without_parents_waits_for_the_operator(place: Place) -> None:
    """Its checkpoint location was deleted."""
    with capture_logs() as logged:
        await _delete_and_accept(place)
    (refused,) = [line for line in logged if line["event"] == "registration refused"]
    assert (refused["log_level"], refused["region"], refused["lineage"]) == ("warning", "r1", "q2.0")
    assert "sluicegate accept --stream flights --region r1 --lineage q2.0" in refused["reason"]
    assert not [line for line in logged if line["event"] == "no effect" and "opened" in line["type"]]


async def _delete_and_accept(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        async with place.job(incarnation="q2") as again:
            answer = await again.register()
            assert not answer.accepted
            command = "sluicegate accept --stream flights --region r1 --lineage q2.0"
            assert command in answer.reason
            await again.run_batch([2])
            await job.run_batch([3])
            await job.committed([1, 3])
            slip = await invoke(place, *command.split()[1:-1], "q3.0")
            assert (slip.exit_code, "refused were: q2.0" in slip.stderr) == (2, True), slip.output
            await sluicegate(place, *command.split()[1:])
            answer = await again.register()
            assert answer.accepted
            again.batch, again.previous = 0, None
            await again.run_batch([4])
            await job.committed([1, 3, 4])


async def test_what_an_accepted_lineage_drops_is_logged(place: Place) -> None:
    with capture_logs() as logged:
        async with running(place.settings()), place.job() as job:
            await job.register()
            await job.complete(await job.written(job.write_files([1])), watermark=0)
            await job.committed([1])
            await job.complete("its files never came")
            await job.complete("nor these")
            order = ("accept", "--stream", "flights", "--region", "r1", "--lineage", "q2.0", "--force")
            said = await sluicegate(place, *order)
            async with place.job(incarnation="q2") as again:
                assert (await again.register()).accepted
                await again.run_batch([2])
                await job.committed([1, 2])
    assert "completed checkpoints 1..2 of lineage q1.0" in said
    assert "committed up to: checkpoint 0 of lineage q1.0" in said
    (accepted,) = [line for line in logged if line["event"] == "lineage accepted by the operator"]
    assert (accepted["region"], accepted["not_committed_yet"]) == ("r1", "1..2 of lineage q1.0")
    (replaced,) = [line for line in logged if line["event"] == "accepted lineage replaces the one before"]
    assert (replaced["lineage"], replaced["dropped"]) == ("q2.0", "1..2 of lineage q1.0")
    assert "written again" in replaced["note"]
    commits = [line for line in logged if line["event"] == "committed"]
    assert [line["watermark_time"] for line in commits] == ["1970-01-01T00:00:00Z"] * 2


async def test_the_opening_of_a_stream_that_is_not_configured_is_refused_and_logged(place: Place) -> None:
    with capture_logs() as logged:
        async with running(place.settings()), place.job("trains") as job:
            answer = await job.register()
    assert not answer.accepted
    (refused,) = [line for line in logged if line["event"] == "registration refused"]
    assert (refused["log_level"], refused["stream"], refused["lineage"]) == ("warning", "trains", "q1.0")
    assert refused["reason"] == answer.reason


@pytest.mark.parametrize("kind", ["primary key", "missing"])
async def test_a_table_out_of_scope_refuses_openings_until_it_is_mended(
    kafka_bootstrap: str, unique: str, tmp_path: Path, impatient: None, kind: str
) -> None:
    table = str(tmp_path / "db.db" / "flights")
    if kind == "primary key":
        catalog = CatalogFactory.create({"warehouse": str(tmp_path)})
        catalog.create_database("db", ignore_if_exists=True)
        schema = Schema.from_pyarrow_schema(SCHEMA, primary_keys=["id"], options={"bucket": "1"})
        catalog.create_table("db.flights", schema, ignore_if_exists=False)
    place = Place(kafka_bootstrap, unique, await make_topics(kafka_bootstrap, unique), tmp_path, table)
    async with running(place.settings()) as service, place.job() as job:
        answer = await job.register()
        assert not answer.accepted
        assert ("primary key" if kind == "primary key" else "no Paimon table") in answer.reason
        assert service.unready() == []
        shutil.rmtree(table, ignore_errors=True)
        create_table(tmp_path)
        await until(job.register, lambda answer: answer.accepted)
        await job.run_batch([1])
        await job.committed([1])


async def test_a_table_that_vanishes_is_waited_for(place: Place, impatient: None) -> None:
    table, away = Path(place.table), place.root / "away"
    async with running(place.settings(stall_after="2s")), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        event = await job.written(job.write_files([2]))
        os.rename(table, away)
        await job.complete(event)
        reasons = await until(lambda: stalls(job))
        assert "has no schema: the table was dropped" in reasons[-1]
        os.rename(away, table)
        await job.committed([1, 2])


async def test_a_table_replaced_under_the_coordinator_is_not_written_to(
    place: Place, impatient: None
) -> None:
    """The writers' files are copied into the new table, so that nothing but its identity differs."""
    table, old = Path(place.table), place.root / "old"
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            events = await job.written(job.write_files([2]))
            os.rename(table, old)
            create_table(place.root)
            shutil.copytree(old / "bucket-0", table / "bucket-0", dirs_exist_ok=True)
            await job.complete(events)
            reasons = await until(lambda: stalls(job))
            assert "the table was replaced" in reasons[-1]
            assert "Put the old table back" in reasons[-1]
            assert read_ids(place.table) == []
        async with running(place.settings()):
            answer = await job.register()
            assert "the table was replaced" in answer.reason
            shutil.rmtree(table)
            os.rename(old, table)
            await job.committed([1, 2])


async def test_a_table_that_was_rolled_back_is_not_written_to(place: Place, impatient: None) -> None:
    snapshots = Path(place.table) / "snapshot"
    kept = place.root / "snapshot-2"
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        await job.run_batch([2])
        await job.committed([1, 2])
        os.rename(snapshots / "snapshot-2", kept)
        (snapshots / "LATEST").write_text("1")
        await job.run_batch([3])
        reasons = await until(lambda: stalls(job))
        assert "rolled back" in reasons[-1]
        assert "Put the table's snapshots back" in reasons[-1]
        assert read_ids(place.table) == [1]
        os.rename(kept, snapshots / "snapshot-2")
        await job.committed([1, 2, 3])


async def delete_records(place: Place, before: int) -> None:
    """Let retention pass an offset of the stream's partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)
    await admin.start()
    try:
        source = TopicPartition(place.topics.events, home_of("flights"))
        await admin.delete_records({source: RecordsToDelete(before_offset=before)})
    finally:
        await admin.close()


async def test_events_deleted_before_they_were_read_are_told_and_nothing_is_skipped(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        await job.run_batch([2])
        await job.run_batch([3])
        await delete_records(place, -1)
        for _ in range(2):
            async with running(place.settings()) as service:
                answer = await job.register()
                assert not answer.accepted
                assert "were deleted before they were committed" in answer.reason
                assert "retention.ms" in service.status()["streams"]["flights"]["stalled"]
        answers = [event for event in await job.notifications() if isinstance(event.body, OpeningAnswered)]
        contents: dict[str, set[str]] = {}
        for event in answers:
            contents.setdefault(event.envelope.id, set()).add(event.body.model_dump_json())
        assert all(len(found) == 1 for found in contents.values())
        assert read_ids(place.table) == [1]


async def test_bodies_deleted_from_the_log_bar_their_region(place: Place, impatient: None) -> None:
    partition = str(home_of("flights"))
    async with running(place.settings(memory={"body_budget": 1})) as service, place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        event = await job.written(job.write_files([2]))
        end = await put_raw(job, b"", {}) + 1
        await until(service.status, lambda seen: seen["partitions"][partition]["position"] == end)
        await delete_records(place, -1)
        await job.complete(event)
        reasons = await until(lambda: stalls(job))
        assert "no longer in the log" in reasons[-1]
        assert "Rewind the region to its committed checkpoint, as a new lineage" in reasons[-1]
        assert read_ids(place.table) == [1]
        async with place.job(incarnation="q2", batch=1) as again:
            assert (await again.register(Parent(region="r1", incarnation="q1", checkpoint=0))).accepted
            await again.run_batch([2])
            await again.committed([1, 2])


async def recreate_events(place: Place) -> None:
    """Delete the events topic and make it again."""
    admin = AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)
    await admin.start()
    try:
        await admin.delete_topics([place.topics.events])
        await until(admin.list_topics, lambda names: place.topics.events not in names)
    finally:
        await admin.close()
    await make_topics(place.bootstrap, place.prefix)


@pytest.mark.parametrize("grown", [False, True], ids=["shorter", "grown past the old end"])
async def test_a_recreated_topic_is_noticed(place: Place, grown: bool) -> None:
    async with place.job() as job, running(place.settings()):
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
    await recreate_events(place)
    async with place.job() as job:
        job.batch, job.previous = 1, 0
        for number in range(20 if grown else 1):
            await job.run_batch([100 + number])
        async with running(place.settings()):
            answer = await job.register()
            assert not answer.accepted
            assert "the events topic was made anew" in answer.reason
        assert read_ids(place.table) == [1]


async def test_a_record_of_a_newer_release_is_neither_used_nor_replaced(place: Place) -> None:
    state = place.topics.state
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
        newest = (await read_records(place.bootstrap, state))[-1]
        old = f'"version":{RECORD_VERSION}'.encode()
        assert newest.value.count(old) == 1
        newer = newest.value.replace(old, b'"version":%d' % (RECORD_VERSION + 1))
        async with AIOKafkaProducer(bootstrap_servers=place.bootstrap) as producer:
            await producer.send_and_wait(state, newer, key=newest.key, partition=newest.partition)
        await job.run_batch([2])
        for _ in range(2):
            async with running(place.settings()):
                answer = await job.register()
                assert not answer.accepted
                assert "upgrade the coordinator" in answer.reason
        assert (await read_records(place.bootstrap, state))[-1].value == newer
        async with AIOKafkaProducer(bootstrap_servers=place.bootstrap) as producer:
            await producer.send_and_wait(state, newest.value, key=newest.key, partition=newest.partition)
        async with running(place.settings()):
            await job.committed([1, 2])
