"""Stalls by table and log have a code, and end by themselves after their cause is removed."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from structlog.testing import capture_logs

from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.service import service as shell_service
from sluicegate.coordinator.service.service import Service
from sluicegate.coordinator.stream.partition import PartitionRunner
from sluicegate.coordinator.stream.state_records import decode_record
from sluicegate.events.codec import read_record
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.models import CutDecided
from sluicegate.events.problems import CauseCode, Code
from sluicegate.kafka import reading
from sluicegate.kafka.clients import started
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import Job, delete_records, make_topics, read_ids, read_records
from tests.integration.letters import headers_of, home_of, put_raw, stalled, stalls
from tests.integration.orders import Spoken, invoke, invoke_here, sluicegate
from tests.integration.waiting import finished, until

pytestmark = pytest.mark.kafka


async def one_commit(place: Place, job: Job) -> None:
    async with running(place.settings()):
        await job.begin_with_a_commit()
        # The commit is visible before the log has its outcome.
        await until(lambda: has_outcome(place))


async def has_outcome(place: Place) -> bool:
    replica = await replica_of(place)
    return replica.state.unresolved is None


async def replica_of(place: Place) -> Replica:
    """Return a replica that has read the whole log."""
    replica = Replica("flights", home_of("flights"))
    for record in await read_records(place.bootstrap, place.topics.events):
        read = read_record(record.offset, record.timestamp, record.headers, record.value).record
        if record.partition == home_of("flights") and read is not None:
            replica.step(read)
    return replica


async def decide(place: Place, job: Job) -> None:
    """Append the decision that a coordinator would append next before it dies."""
    replica = await replica_of(place)
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
            await job.commit([3], [1, 2, 3])


@pytest.mark.seam
async def test_events_that_are_deleted_before_a_running_service_reads_them_are_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, standing = threading.Event(), threading.Event()
    read = reading.read_batches

    async def held_up(*sources: object, **how: object) -> object:
        """Reading stands still, as on a machine without time for it."""
        if held.is_set():
            standing.set()
        await until(lambda: not held.is_set())
        return await read(*sources, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(shell_service, "read_batches", held_up)
    async with place.job() as job, running(place.settings()) as service:
        await job.begin_with_a_commit()
        held.set()
        # A read that was under way would get all of the next events.
        await until(standing.is_set)
        for number in range(2, 6):
            await job.run_batch([number])
        await delete_records(place.bootstrap, place.topics.events, "flights")
        held.clear()
        await until(lambda: stalled(service), lambda code: code == Code.LOG_DISCONTINUOUS)
        # The client fetches ahead: it has what was in the log when the first of these events came.
        assert read_ids(place.table) in ([1], [1, 2])


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
                await second.commit([2], [2])
                problem = (await until(lambda: stalls(job)))[-1]
                assert problem.code is Code.RECORD_UNREADABLE
                assert "KeyError" in problem.detail
        async with running(settings):
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
        await job.begin_with_a_commit()
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


@asynccontextmanager
async def idle(place: Place) -> AsyncIterator[tuple[Service, Job]]:
    """A service that looks at its table often, and has nothing to do after two commits."""
    async with running(place.settings(table_check_interval="300ms")) as service, place.job() as job:
        await job.register()
        for number in (1, 2):
            await job.commit([number], range(1, number + 1))
        yield service, job


async def recorded(place: Place) -> StateRecord:
    newest = (await read_records(place.bootstrap, place.topics.state))[-1]
    found = decode_record("flights", newest.value)
    assert isinstance(found, StateRecord)
    return found


async def check(place: Place) -> Spoken:
    return await invoke(place, "check")


@pytest.mark.seam
async def test_a_rollback_is_noticed_without_work_and_its_end_is_shown(place: Place, impatient: None) -> None:
    snapshots, kept = Path(place.table) / "snapshot", place.root / "snapshot-2"
    async with idle(place) as (service, job):
        os.rename(snapshots / "snapshot-2", kept)
        (snapshots / "LATEST").write_text("1")
        await until(lambda: stalled(service), lambda code: code == Code.TABLE_CONTRADICTS)
        said = await check(place)
        assert said.exit_code == 1
        assert "table of flights, history" in said.stdout
        os.rename(kept, snapshots / "snapshot-2")
        await until(lambda: stalled(service) is None)
        # The state record follows, which `status` reads.
        await until(lambda: recorded(place), lambda record: not record.conditions)
        await job.commit([3], [1, 2, 3])


STREAM = ("--stream", "flights")


@pytest.mark.seam
async def test_an_order_skips_a_record_and_everything_after_it_is_committed_once(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()) as service:
            await job.begin_with_a_commit()
            first = await put_raw(job, b"{}", headers_of(job, "sluicegate.files.written.v9", checkpoint=1))
            await job.run_batch([2])
            second = await put_raw(job, b"{}", headers_of(job, "sluicegate.cut.decided.v9"))
            await until(lambda: stalled(service), lambda code: code == Code.RECORD_UNREADABLE)
            # The text names the order, which shows the record first.
            answer = await job.answer_to(await job.send_registration(probe=True))
            assert "`sluicegate stream skip --stream flights` shows it" in answer.reason
            shown = await invoke(place, "stream", "skip", *STREAM)
            assert (shown.exit_code, "sluicegate.files.written.v9" in shown.stdout) == (1, True)
            assert f"sluicegate stream skip --stream flights --offset {first}" in shown.stdout
            other = await invoke(place, "stream", "skip", *STREAM, "--offset", str(second))
            assert (other.exit_code, f"but at offset {first}" in other.stderr) == (2, True)
            told = await sluicegate(place, "stream", "skip", *STREAM, "--offset", str(first))
            assert "sluicegate region reset --stream flights --region r1" in told
            assert f"sluicegate stream skip --stream flights --offset {second}" in told
            await sluicegate(place, "stream", "skip", *STREAM, "--offset", str(second))
            await until(lambda: stalled(service), lambda code: code == Code.RECORD_SKIPPED)
            late = await invoke(place, "stream", "skip", *STREAM, "--offset", str(second))
            assert (late.exit_code, "is skipped already" in late.stderr) == (2, True)
            # The completed checkpoint is discarded: what the skipped record said of it is unknown.
            assert (await job.begin("q9")).accepted
            await job.commit([2, 3], [1, 2, 3])
        # Another coordinator reads the same, from its record; and so does a reader of the whole log.
        async with running(place.settings()):
            await job.commit([4], [1, 2, 3, 4])
        verified = await invoke_here(place, "replay", "verify", *STREAM, "--all")
        assert (verified.exit_code, "3" in verified.stdout) == (0, True), verified.output
        audited = await invoke_here(place, "audit", *STREAM)
        assert (audited.exit_code, audited.stdout.count("stream skip") >= 2) == (0, True), audited.output
    assert sorted(read_ids(place.table)) == [1, 2, 3, 4]


class Broken(Exception):
    """What no code expects."""


async def test_a_partition_that_cannot_start_says_why_and_is_tried_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, mended = PartitionRunner.start, asyncio.Event()

    async def failing(self: PartitionRunner) -> None:
        if not mended.is_set():
            raise Broken("no such thing")
        await start(self)

    monkeypatch.setattr(PartitionRunner, "start", failing)
    with capture_logs() as logged:
        async with running(place.settings(), ready=False) as service, place.job() as job:
            await until(service.unready, lambda reasons: any("no such thing" in each for each in reasons))
            mended.set()
            await until(service.unready, lambda reasons: not reasons)
            assert (await job.register()).accepted
    found = [line for line in logged if line["event"].startswith("partition not started")]
    assert found
    assert all(line["exc_info"] for line in found)


@pytest.mark.seam
async def test_an_outcome_that_cannot_be_handled_ends_the_process(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise Broken("no such outcome")

    monkeypatch.setattr(StreamMachine, "finished", failing)
    with pytest.raises(Broken, match="no such outcome"):
        await finished(Service(place.settings()).run(asyncio.Event()))
