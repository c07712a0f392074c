"""Refusals of the coordinator have a code, and end after their cause is removed."""

import shutil
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from pypaimon import CatalogFactory, Schema

from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import CauseCode, Code
from sluicegate.kafka.clients import started
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import SCHEMA, create_table, make_topics, read_ids
from tests.integration.letters import home_of, put_raw, stalled, stalls
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


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
