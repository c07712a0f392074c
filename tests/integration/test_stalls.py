"""Stalls by table and log have a code, and end by themselves after their cause is removed."""

import os
import threading
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.new_partitions import NewPartitions

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.service import connections
from sluicegate.coordinator.service import service as shell_service
from sluicegate.events.codec import read_record
from sluicegate.events.envelope import EventType, LogRecord, partition_of
from sluicegate.events.models import CutDecided
from sluicegate.events.problems import Code
from sluicegate.kafka import reading
from sluicegate.kafka.clients import started
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import (
    PARTITIONS,
    Job,
    commit_elsewhere,
    delete_records,
    read_ids,
    read_records,
)
from tests.integration.letters import conditions, home_of, stalled, stalls
from tests.integration.orders import invoke, sluicegate
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def one_commit(place: Place, job: Job) -> None:
    async with running(place.settings()):
        await job.register()
        await job.run_batch([1])
        await job.committed([1])


async def decide(place: Place, job: Job) -> None:
    """Append the decision that a coordinator would append next before it dies."""
    replica = Replica("flights", home_of("flights"))
    for record in await read_records(place.bootstrap, place.topics.events):
        read = read_record(record.offset, record.timestamp, record.headers, record.value).record
        if record.partition == home_of("flights") and read is not None:
            replica.step(read)
    chosen = cuts.choose(replica.log)
    assert isinstance(chosen, CutDecided)
    head = replica.state.snapshot
    await job.send(EventType.CUT_DECIDED, chosen.model_copy(update={"head": head}))


@pytest.mark.seam
async def test_a_decided_file_that_is_gone_stalls_until_it_is_back(place: Place, impatient: None) -> None:
    async with place.job() as job:
        await one_commit(place, job)
        files = job.write_files([2])
        await job.complete(await job.written(files))
        await decide(place, job)
        path, kept = Path(place.table) / files.files[0].path, place.root / "kept"
        os.rename(path, kept)
        async with running(place.settings()):
            problem = (await until(lambda: stalls(job)))[-1]
            assert (problem.code, problem.number) == (Code.COMMIT_REFUSED, 2)
            os.rename(kept, path)
            await job.committed([1, 2])
            await job.run_batch([3])
            await job.committed([1, 2, 3])


@pytest.mark.seam
async def test_a_table_that_is_ahead_of_the_log_is_not_written_to(place: Place, impatient: None) -> None:
    snapshots = Path(place.table) / "snapshot"
    async with place.job() as job:
        await one_commit(place, job)
        commit_elsewhere(place.table, 2, "made elsewhere")
        async with running(place.settings()):
            answer = await job.register()
            assert answer.problem is not None
            assert (answer.problem.code, answer.problem.number, answer.problem.other) == (
                Code.TABLE_AHEAD,
                1,
                2,
            )
            (snapshots / "snapshot-2").unlink()
            (snapshots / "LATEST").write_text("1")
            await until(job.register, lambda found: found.accepted)
            await job.run_batch([2])
            await job.committed([1, 2])


@pytest.mark.seam
async def test_events_that_are_deleted_before_a_running_service_reads_them_are_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    read = reading.read_batches

    async def held_up(*sources: object, **how: object) -> object:
        """Reading stands still, as on a machine without time for it."""
        await until(lambda: not held.is_set())
        return await read(*sources, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(shell_service, "read_batches", held_up)
    async with place.job() as job, running(place.settings()) as service:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        held.set()
        for number in range(2, 6):
            await job.run_batch([number])
        await delete_records(place.bootstrap, place.topics.events, "flights")
        held.clear()
        await until(lambda: stalled(service), lambda code: code == Code.LOG_DISCONTINUOUS)
        assert read_ids(place.table) == [1]


async def test_a_topic_that_is_deleted_under_a_running_service_is_noticed(place: Place) -> None:
    async with place.job() as job, running(place.settings()) as service:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
            await admin.delete_topics([place.topics.events])
        await until(service.unready, lambda reasons: any("does not exist any more" in x for x in reasons))
        await sluicegate(place, "topics", "create")
        await until(lambda: stalled(service), lambda code: code == Code.LOG_DISCONTINUOUS)
        assert read_ids(place.table) == [1]


async def test_a_topic_that_has_grown_is_noticed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "METADATA_MS", 500)
    grown = next(count for count in range(4, 20) if partition_of("flights", count) != home_of("flights"))
    assert grown > PARTITIONS
    async with place.job() as job:
        await one_commit(place, job)
        async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
            async with running(place.settings()) as service:
                await admin.create_partitions({place.topics.events: NewPartitions(total_count=grown)})
                await until(lambda: stalled(service), lambda code: code == Code.OTHER_PARTITION)
            checked = await invoke(place, "check")
            told = next(line for line in checked.stdout.splitlines() if "partition of flights" in line)
            assert checked.exit_code == 1
            assert f"now belongs to partition {partition_of('flights', grown)}" in told
            # It comes before the advice to let the other topics grow, too.
            assert told in checked.stdout.partition("Add the partitions that are missing")[0]
            aligned = (place.topics.commits, place.topics.state)
            await admin.create_partitions({topic: NewPartitions(total_count=grown) for topic in aligned})
        async with running(place.settings()) as service:
            (found,) = await until(lambda: [each for each in conditions(service) if each["kind"] == "stall"])
            assert found["code"] == Code.OTHER_PARTITION
            assert found["arguments"]["number"] == home_of("flights")
        assert read_ids(place.table) == [1]


async def test_a_record_that_the_core_fails_at_stalls_its_stream_and_no_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, step = neighbour("flights", same=True), Replica.step

    def failing(self: Replica, record: LogRecord) -> Applied:
        envelope = record.envelope
        if envelope.stream == "flights" and envelope.type is EventType.CHECKPOINT_COMPLETED:
            raise KeyError("q1")
        return step(self, record)

    settings = place.settings("flights", other)
    async with place.job() as job, place.job(other) as second:
        with monkeypatch.context() as patched:
            patched.setattr(Replica, "step", failing)
            async with running(settings):
                await job.register()
                await second.register()
                await job.run_batch([1])
                await second.run_batch([2])
                await second.committed([2])
                problem = (await until(lambda: stalls(job)))[-1]
                assert problem.code is Code.RECORD_UNREADABLE
                assert "KeyError" in problem.detail
        async with running(settings):
            await job.committed([1, 2])
