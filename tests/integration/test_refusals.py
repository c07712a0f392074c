"""Refusals of the coordinator have a code, and end after their cause is removed."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from pypaimon import CatalogFactory, Schema
from structlog.testing import capture_logs

from sluicegate.coordinator.core.state_record import RECORD_VERSION
from sluicegate.coordinator.service.service import Service
from sluicegate.events.models import Planned
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import CauseCode, Code
from sluicegate.kafka.clients import started
from sluicegate.kafka.topics import TopicNames, TopicsRefused, ensure_topics, topic_specs
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, SCHEMA, create_table, make_topics, read_ids, read_records
from tests.integration.letters import codes, home_of, put_raw, stalled, stalls
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
        f"these topics do not exist: {names.commits}, {names.dead_letters}; create them with: "
        "sluicegate topics create"
    )
    assert "--create" not in text
    for topic, problem, remedy in (
        (names.events, "cleanup.policy is 'compact'", "--add-config cleanup.policy=delete"),
        (names.events, "message.timestamp.type is 'CreateTime'", "--add-config message.timestamp.type"),
        (names.state, "it has 2 partitions", "--alter"),
    ):
        assert any(topic in line and problem in line and remedy in line for line in text.splitlines()), text


async def test_a_new_location_does_not_end_a_running_query(place: Place) -> None:
    """Another query of the region, or one whose checkpoint location was deleted."""
    with capture_logs() as logged:
        async with running(place.settings()), place.job() as job:
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            async with place.job(incarnation="q2") as again:
                answer = await again.register()
                assert not answer.accepted
                assert answer.problem is not None
                assert (answer.problem.code, answer.problem.incarnation) == (Code.INCARNATION_LIVE, "q1")
                assert (answer.committed, answer.live) == (job.previous, "q1")
                await again.run_batch([2])
                await job.run_batch([3])
                await job.committed([1, 3])
                ((_, code),) = await until(lambda: codes(job))
                assert code == Code.NOT_LIVE
                # An operator resets the region: the incarnation starts from the committed position.
                assert (await again.begin("q3")).accepted
                await again.run_batch([4])
                await job.committed([1, 3, 4])
    refused = [each for each in logged if each["event"] == "registration refused"]
    shown = [each for each in refused if each["code"] != Code.NO_POLICY and each["log_level"] != "debug"]
    assert [(each["log_level"], each["incarnation"]) for each in shown] == [("warning", "q2")]
    assert not [
        each for each in logged if each["event"] == "event without effect" and "registered" in each["type"]
    ]


async def test_a_plain_restart_names_its_planned_checkpoints(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        assert (await job.register()).accepted
        older = await job.register(planned=())
        assert older.problem is not None
        assert older.problem.code is Code.LOCATION_OLDER
        other = await job.register(planned=(Planned(checkpoint=0, digest="another range"),))
        assert other.problem is not None
        assert other.problem.code is Code.SOURCE_DIFFERS
        await job.run_batch([2])
        await job.committed([1, 2])


async def test_a_reset_drops_what_is_not_decided(place: Place) -> None:
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.complete(await job.written(job.write_files([1])), watermark=0)
        await job.committed([1])
        await job.complete("its files never came")
        await job.complete("nor these")
        assert (await job.begin("q2")).accepted
        await job.run_batch([2])
        await job.committed([1, 2])


async def test_a_new_assignment_starts_after_the_final_cut_of_the_one_before(place: Place) -> None:
    """Assignment 1 has other regions, and names the decision of the final cut."""
    async with running(place.settings()), place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        later = place.job(region="EU", regions=("EU", "US"), incarnation="e1", assignment=1)
        other = place.job(region="US", regions=("EU", "US"), incarnation="u1", assignment=1)
        async with later, other:
            open_ = await later.register()
            assert open_.problem is not None
            assert (open_.problem.code, open_.problem.names) == (Code.ASSIGNMENT_OPEN, ("r1",))
            await job.close()
            unnamed = await later.register()
            assert unnamed.problem is not None
            assert (unnamed.problem.code, unnamed.problem.other) == (Code.ASSIGNMENT_AFTER_OTHER_CUT, 1)
            assert (await later.register(after=unnamed.decision)).accepted
            assert (await other.register(after=unnamed.decision)).accepted
            await later.run_batch([2])
            await other.run_batch([3])
            await job.committed([1, 2, 3])
            refused = await job.register()
            assert refused.problem is not None
            assert refused.problem.code is Code.ASSIGNMENT_OLDER


async def test_the_registration_of_a_stream_that_is_not_configured_is_refused_and_logged(
    place: Place,
) -> None:
    with capture_logs() as logged:
        async with running(place.settings()), place.job("trains") as job:
            answer = await job.register()
    assert not answer.accepted
    (refused,) = [line for line in logged if line["event"] == "registration refused"]
    assert (refused["log_level"], refused["stream"], refused["incarnation"]) == ("warning", "trains", "q1")
    assert refused["reason"] == answer.reason


@pytest.mark.parametrize("kind", ["primary key", "missing"])
async def test_a_table_out_of_scope_refuses_registrations_until_it_is_corrected(
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
        assert answer.problem is not None
        assert answer.problem.code is Code.TABLE_UNFIT
        assert ("primary key" if kind == "primary key" else "no Paimon table") in answer.problem.detail
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
        problem = (await until(lambda: stalls(job)))[-1]
        assert "has no schema: the table was dropped" in problem.detail
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
            assert (await until(lambda: stalls(job)))[-1].code is Code.TABLE_REPLACED
            assert read_ids(place.table) == []
        async with running(place.settings()):
            answer = await job.register()
            assert answer.problem is not None
            assert answer.problem.code is Code.TABLE_REPLACED
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
        problem = (await until(lambda: stalls(job)))[-1]
        assert problem.code in (Code.TABLE_CONTRADICTS, Code.ABSENCE_UNPROVEN)
        assert read_ids(place.table) == [1]
        os.rename(kept, snapshots / "snapshot-2")
        await job.committed([1, 2, 3])


async def delete_records(place: Place, before: int) -> None:
    """Let retention pass an offset of the stream's partition."""
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        source = TopicPartition(place.topics.events, home_of("flights"))
        await admin.delete_records({source: RecordsToDelete(before_offset=before)})


async def test_a_log_without_events_that_are_needed_stalls_and_nothing_is_skipped(place: Place) -> None:
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
                assert answer.problem is not None
                assert answer.problem.code is Code.LOG_DISCONTINUOUS
                assert stalled(service) == Code.LOG_DISCONTINUOUS
        found = await job.notifications()
        contents: dict[str, set[str]] = {}
        for each in found:
            if isinstance(each.body, RegistrationAnswered):
                contents.setdefault(each.id, set()).add(each.body.model_dump_json())
        assert all(len(found) == 1 for found in contents.values())
        assert read_ids(place.table) == [1]


async def test_bodies_deleted_from_the_log_exclude_their_region(place: Place, impatient: None) -> None:
    partition = str(home_of("flights"))
    async with running(place.settings(memory={"body_budget": 1})) as service, place.job() as job:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        event = await job.written(job.write_files([2]))
        end = await put_raw(job, b"", {}) + 1
        await until(service.status, lambda seen: seen["partitions"][partition]["position"] >= end)
        await delete_records(place, -1)
        await job.complete(event)
        problem = (await until(lambda: stalls(job)))[-1]
        assert problem.code is Code.BODY_UNREADABLE
        assert problem.cause is not None
        assert problem.cause.code is CauseCode.EVENT_DELETED
        assert read_ids(place.table) == [1]
        assert (await job.begin("q2")).accepted
        await job.run_batch([2])
        await job.committed([1, 2])


async def recreate_events(place: Place) -> None:
    """Delete the events topic and make it again."""
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        await admin.delete_topics([place.topics.events])
        await until(admin.list_topics, lambda names: place.topics.events not in names)
    await make_topics(place.bootstrap, place.prefix)


@pytest.mark.parametrize("grown", [False, True], ids=["shorter", "grown past the old end"])
async def test_a_recreated_topic_is_noticed(place: Place, grown: bool) -> None:
    async with place.job() as job, running(place.settings()):
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
    await recreate_events(place)
    async with place.job() as job:
        for number in range(20 if grown else 1):
            await job.run_batch([100 + number])
        async with running(place.settings()):
            answer = await job.register()
            assert not answer.accepted
            assert answer.problem is not None
            assert answer.problem.code is Code.LOG_DISCONTINUOUS
            assert answer.problem.cause is not None
            again = {CauseCode.LOG_ENDS_EARLIER, CauseCode.OTHER_EVENT}
            assert answer.problem.cause.code in again
            assert "the topic was created again" in answer.reason
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
                assert answer.problem is not None
                assert answer.problem.code is Code.STATE_RECORD_NEWER
        assert (await read_records(place.bootstrap, state))[-1].value == newer
        async with AIOKafkaProducer(bootstrap_servers=place.bootstrap) as producer:
            await producer.send_and_wait(state, newest.value, key=newest.key, partition=newest.partition)
        async with running(place.settings()):
            await job.committed([1, 2])
