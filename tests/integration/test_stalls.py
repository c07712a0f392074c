"""Stalls and refusals by table and log: each names its way out, and ends by itself once that is taken."""

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.new_partitions import NewPartitions

from sluicegate.coordinator.core import cuts, intake, machine
from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.runtime import service as shell_service
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Body, Event
from sluicegate.events.partitioning import partition_of
from sluicegate.kafka import fetching
from sluicegate.replay.base import bases
from sluicegate.replay.course import Course
from sluicegate.replay.log import open_log, stream_records
from sluicegate.replay.marks import Window, parse_mark
from sluicegate.replay.repair import Repair
from sluicegate.replay.tables import ReplayTable
from tests.integration.conftest import Place, neighbour
from tests.integration.coordinator import running
from tests.integration.job import (
    PARTITIONS,
    Job,
    delete_records,
    expire,
    read_ids,
    read_records,
    read_topic,
    rewrite,
)
from tests.integration.letters import home_of, stalls
from tests.integration.orders import invoke, invoke_here, sluicegate
from tests.integration.test_replay import publish
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def one_commit(place: Place, job: Job) -> None:
    async with running(place.settings()):
        await job.register()
        await job.run_batch([1])
        await job.committed([1])


async def decide(place: Place, job: Job) -> None:
    """Append the decision that a coordinator takes next, and dies."""
    course = Course("flights", None, 0)
    for record in await read_records(place.bootstrap, place.topics.events):
        if record.partition == home_of("flights"):
            course.take(record.offset, record.timestamp, record.headers, record.value)
    choice = cuts.choose(course.book)
    assert choice is not None
    await job.send(EventType.CUT_DECIDED, choice)


async def test_a_decided_file_that_is_gone_stalls_until_it_is_back(place: Place, impatient: None) -> None:
    async with place.job() as job:
        await one_commit(place, job)
        files = job.write_files([2])
        await job.complete(await job.written(files))
        await decide(place, job)
        path, kept = Path(place.table) / files.files[0].path, place.root / "kept"
        os.rename(path, kept)
        async with running(place.settings()):
            reasons = await until(lambda: stalls(job))
            assert "the table refuses decision 2" in reasons[-1]
            assert "sluicegate void --stream flights --decision 2" in reasons[-1]
            os.rename(kept, path)
            await job.committed([1, 2])
            await job.run_batch([3])
            await job.committed([1, 2, 3])


async def test_a_table_that_cannot_be_written_is_tried_again(place: Place, impatient: None) -> None:
    manifests, away = Path(place.table) / "manifest", place.root / "manifests"
    async with place.job() as job, running(place.settings()) as service:
        await job.register()
        shutil.rmtree(manifests, ignore_errors=True)
        manifests.write_text("in the way")
        await job.run_batch([1])
        await until(lambda: read_topic(place.bootstrap, place.topics.events), _decided)
        assert service.status()["streams"]["flights"]["stalled"] is None
        assert read_ids(place.table) == []
        os.rename(manifests, away)
        await job.committed([1])


def _decided(log: list[Event]) -> bool:
    return any(event.envelope.type is EventType.CUT_DECIDED for event in log)


async def test_a_decision_that_is_there_with_other_content_stalls_until_that_is_settled(
    place: Place, impatient: None
) -> None:
    snapshots = Path(place.table) / "snapshot"
    async with place.job() as job, running(place.settings()):
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        publish(place.table, 2, "made elsewhere")
        await job.run_batch([2])
        reasons = await until(lambda: stalls(job))
        assert "decision 2 is in the table with other content (digest made elsewhere" in reasons[-1]
        assert read_ids(place.table) == [1]
        (snapshots / "snapshot-2").unlink()
        (snapshots / "LATEST").write_text("1")
        await job.committed([1, 2])


async def test_a_table_that_is_ahead_of_the_log_is_not_written_to(place: Place, impatient: None) -> None:
    snapshots = Path(place.table) / "snapshot"
    async with place.job() as job:
        await one_commit(place, job)
        publish(place.table, 2, "made elsewhere")
        async with running(place.settings()):
            answer = await job.register()
            assert "the table has decision 2 of this stream, but the log ends at decision 1" in answer.reason
            assert "configure another commit_user" in answer.reason
            (snapshots / "snapshot-2").unlink()
            (snapshots / "LATEST").write_text("1")
            await until(job.register, lambda found: found.accepted)
            await job.run_batch([2])
            await job.committed([1, 2])


async def test_what_an_expired_history_does_not_prove_is_not_committed(place: Place, impatient: None) -> None:
    snapshots, kept = Path(place.table) / "snapshot", place.root / "kept"
    async with place.job() as job:
        await one_commit(place, job)
        await job.run_batch([2])
        await decide(place, job)
        rewrite(place.table)
        shutil.copytree(snapshots, kept)
        expire(place.table, keep=1)
        refused = await invoke_here(place, "replay", "--stream", "flights", "--commit-missing")
        assert (refused.exit_code, "cannot be proven" in refused.stderr) == (2, True), refused.output
        said = await invoke_here(place, "replay", "--stream", "flights", "--verify")
        assert (said.exit_code, "not provable: decision 2" in said.stdout) == (0, True), said.output
        async with running(place.settings()):
            reasons = await until(lambda: stalls(job))
            assert "it cannot be proven whether decision 2 is in the table" in reasons[-1]
            assert "Put the table's snapshots back" in reasons[-1]
            assert read_ids(place.table) == [1]
            shutil.copytree(kept, snapshots, dirs_exist_ok=True)
            await job.committed([1, 2])


async def test_events_that_are_deleted_before_a_running_service_reads_them_are_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    read = fetching.read_batches

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
        stalled = await until(lambda: service.status()["streams"]["flights"]["stalled"])
        assert "were deleted before they were committed" in stalled
        assert read_ids(place.table) == [1]


@pytest.mark.parametrize("rows", [[], [1]], ids=["nothing is decided", "something is committed"])
async def test_a_stream_does_not_go_on_as_another_commit_user(place: Place, rows: list[int]) -> None:
    """Nothing need be decided by the record: its first decision may have been published since."""
    user = {"STREAMS__FLIGHTS__COMMIT_USER": "somebody"}
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            if rows:
                await job.run_batch(rows)
                await job.committed(rows)
        another = place.settings(options={"commit_user": "somebody"})
        for _ in range(2):
            async with running(another) as service:
                await job.run_batch([2])
                stalled = await until(lambda: service.status()["streams"]["flights"]["stalled"])
                assert 'Set streams.flights.commit_user = "sluicegate-flights" again' in stalled
                assert read_ids(place.table) == rows
        refused = await invoke(place, "replay", "--stream", "flights", "--verify", **user)
        assert (refused.exit_code, "the stream commits as sluicegate-flights" in refused.stderr) == (2, True)
        checked = await invoke(place, "check", **user)
        assert (checked.exit_code, "the stream commits as sluicegate-flights" in checked.output) == (1, True)
        async with running(place.settings()):
            await job.committed([*rows, 2, 2])
        assert read_ids(place.table) == [*rows, 2, 2]


async def test_a_topic_that_is_deleted_under_a_running_service_is_noticed(place: Place) -> None:
    async with place.job() as job, running(place.settings()) as service:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        admin = AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)
        await admin.start()
        try:
            await admin.delete_topics([place.topics.events])
        finally:
            await admin.close()
        await until(service.unready, lambda reasons: any("does not exist any more" in x for x in reasons))
        await sluicegate(place, "topics", "create")
        stalled = await until(lambda: service.status()["streams"].get("flights", {}).get("stalled"))
        assert "go on in a new stream" in stalled
        assert read_ids(place.table) == [1]


async def test_a_topic_that_has_grown_is_noticed(place: Place) -> None:
    grown = next(count for count in range(4, 20) if partition_of("flights", count) != home_of("flights"))
    async with place.job() as job:
        await one_commit(place, job)
        admin = AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)
        await admin.start()
        try:
            aligned = (place.topics.events, place.topics.commits, place.topics.state)
            await admin.create_partitions({topic: NewPartitions(total_count=grown) for topic in aligned})
        finally:
            await admin.close()
        assert grown > PARTITIONS
        async with running(place.settings()) as service:
            stalled = await until(lambda: service.status()["streams"]["flights"]["stalled"])
            assert "the events topic has grown" in stalled
            assert f"stand in partition {home_of('flights')}" in stalled
        refused = await invoke_here(place, "replay", "--stream", "flights", "--verify")
        assert (refused.exit_code, "the events topic has grown" in refused.stderr) == (2, True)
        assert read_ids(place.table) == [1]


async def test_a_repair_that_races_a_coordinator_doubles_nothing(place: Place) -> None:
    """As if the coordinator had been started right after the repair had looked for one."""

    async def nobody() -> None:
        """No coordinator is seen."""

    async with place.job() as job:
        await one_commit(place, job)
        for number in range(2, 6):
            await job.run_batch([number])
            await decide(place, job)
            settings = place.settings()
            records = await stream_records(settings, "flights")
            with ThreadPoolExecutor(1) as threads:
                table = ReplayTable(settings.streams["flights"], threads)
                async with open_log(settings, "flights") as log, running(settings, ready=False):
                    choices = bases(records, await log.range(), parse_mark("earliest"))
                    window = Window(parse_mark("earliest"), parse_mark("latest"))
                    repair = Repair(log, table, records[-1], nobody, dry=False)
                    await repair.run("flights", choices, window, print)
                    await job.committed(range(1, number + 1))
                table.close()
        said = await invoke_here(place, "replay", "--stream", "flights", "--verify")
        assert "5 are in the table, each once" in said.stdout, said.output


async def test_a_record_that_the_core_fails_at_stalls_its_stream_and_no_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, enter = neighbour("flights", same=True), intake.enter

    def failing(book: Book, offset: int, time: int, envelope: Envelope, body: Body | None) -> str | None:
        if envelope.stream == "flights" and envelope.type is EventType.CHECKPOINT_COMPLETED:
            raise KeyError("q.0")
        return enter(book, offset, time, envelope, body)

    settings = place.settings("flights", other)
    async with place.job() as job, place.job(other) as second:
        with monkeypatch.context() as patched:
            patched.setattr(machine, "enter", failing)
            async with running(settings):
                await job.register()
                await second.register()
                await job.run_batch([1])
                await second.run_batch([2])
                await second.committed([2])
                reasons = await until(lambda: stalls(job))
                assert "KeyError" in reasons[-1]
                assert "defect of Sluicegate" in reasons[-1]
        async with running(settings):
            await job.committed([1, 2])
