"""Verification, rebuild and repair of whole tables in memory, from the logs of simulated schedules."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sluicegate.coordinator.replay.decisions import Start
from sluicegate.coordinator.replay.reading import Window, parse_mark
from sluicegate.coordinator.replay.rebuild import Rebuild, Rebuilt
from sluicegate.coordinator.replay.repair import Repair, Repaired
from sluicegate.coordinator.replay.tables import ReplayTable
from sluicegate.coordinator.replay.verify import Verdict, verify
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.events.models import SnapshotRef, StreamCommand
from tests.doubles.memory_lake import ADAPTER, MemoryTable
from tests.replay.schedules import EMPTY, MemoryLog, Watched, starts, watched
from tests.simulator.world import COMMIT_USER, STREAM

SEEDS = range(101_500, 101_524)
TARGET = "memory://rebuilt"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture(autouse=True)
def fresh_target() -> Iterator[None]:
    yield
    ADAPTER.drop("rebuilt")


def whole() -> Window:
    return Window(parse_mark("earliest"), parse_mark("latest"))


def ignore(_: str) -> None:
    """Print no progress."""


def open_table(location: str, threads: ThreadPoolExecutor) -> ReplayTable:
    settings = StreamSettings(format="memory", table=location, commit_user=COMMIT_USER)
    return ReplayTable(settings, threads, STREAM)


def table_of(schedule: Watched, threads: ThreadPoolExecutor) -> ReplayTable:
    """Return the schedule's own table, with all files that its log names."""
    table = schedule.world.table
    for entry in schedule.world.log:
        if entry.files is not None:
            for file in entry.files.files:
                table.data.setdefault(file.path, [])
    ADAPTER._tables[table.name] = table
    return open_table(table.location, threads)


def content(table: MemoryTable) -> list[tuple[int, str, tuple[str, ...]]]:
    """Return the stream's commits, the oldest first."""
    ours = [each for each in table.history if each.commit_user == COMMIT_USER]
    return [(each.decision, each.digest, tuple(sorted(each.files))) for each in ours]


async def verified(schedule: Watched, table: ReplayTable) -> Verdict:
    return await verified_from(schedule, table, EMPTY)


async def verified_from(
    schedule: Watched, table: ReplayTable, start: Start, *, everything: bool = False
) -> Verdict:
    log = MemoryLog(schedule.world.log)
    found = await verify(log, STREAM, start, whole(), [table], everything=everything)
    verdict = found[""]
    assert isinstance(verdict, Verdict)
    return verdict


async def rebuilt(
    schedule: Watched, table: ReplayTable, target: ReplayTable, *, dry: bool = False
) -> Rebuilt:
    rebuild = Rebuild(MemoryLog(schedule.world.log), STREAM, table, target, dry=dry)
    return await rebuild.run(EMPTY, whole())


async def repaired(
    schedule: Watched, table: ReplayTable, *, dry: bool = False, window: Window | None = None
) -> Repaired:
    async def nobody() -> None:
        """No coordinator runs."""

    repair = Repair(MemoryLog(schedule.world.log), STREAM, table, nobody, dry=dry)
    return await repair.run(EMPTY, window or whole(), ignore)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_log_of_every_schedule_verifies_against_its_table(
    seed: int, threads: ThreadPoolExecutor
) -> None:
    schedule = watched(seed)
    table = table_of(schedule, threads)
    verdict = await verified(schedule, table)
    assert not verdict.wrong, (verdict.findings, verdict.foreign)
    assert sum(verdict.counts.values()) == schedule.checks.truth.decided
    for _, start in [*starts(schedule)][-3:]:
        again = await verified_from(schedule, table, start, everything=True)
        assert not again.wrong
        assert [each.decision for each in again.findings] == list(
            range(start.resolved + 1, schedule.checks.truth.decided + 1)
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_every_schedules_table_is_rebuilt_from_its_log(seed: int, threads: ThreadPoolExecutor) -> None:
    schedule = watched(seed)
    table, target = table_of(schedule, threads), open_table(TARGET, threads)
    planned = await rebuilt(schedule, table, target, dry=True)
    with pytest.raises(Exception, match="no table"):
        ADAPTER.table(TARGET)
    made = await rebuilt(schedule, table, target)
    assert content(ADAPTER.table(TARGET)) == content(schedule.world.table)
    assert (planned.commits, planned.files) == (made.commits, made.files)
    again = await rebuilt(schedule, table, target)
    assert (again.commits, again.found) == (0, made.commits)


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0, 1, 2])
async def test_an_interrupted_rebuild_continues(keep: int, threads: ThreadPoolExecutor) -> None:
    schedule = watched(SEEDS[1])
    table, target = table_of(schedule, threads), open_table(TARGET, threads)
    made = await rebuilt(schedule, table, target)
    copy = ADAPTER.table(TARGET)
    copy.rollback(keep)
    again = await rebuilt(schedule, table, target)
    assert (again.commits, again.found) == (made.commits - keep, keep)
    assert content(copy) == content(schedule.world.table)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[:8])
async def test_a_table_that_was_rolled_back_is_repaired(seed: int, threads: ThreadPoolExecutor) -> None:
    schedule = watched(seed)
    # A copy of it: other tests need the schedule's own table.
    source = table_of(schedule, threads)
    await rebuilt(schedule, source, open_table(TARGET, threads))
    before, copy = content(ADAPTER.table(TARGET)), ADAPTER.table(TARGET)
    own, schedule.world.table = schedule.world.table, copy
    ADAPTER._tables["sim"] = copy
    try:
        copy.name, copy._generation = "sim", own._generation
        assert copy.location == own.location
        kept = len(before) // 2
        copy.rollback(copy.snapshots[kept - 1].id if kept else 0)
        table = open_table(own.location, threads)
        verdict = await verified(schedule, table)
        missing = list(range(kept + 1, len(before) + 1))
        assert [each.decision for each in verdict.findings] == missing
        assert verdict.wrong
        planned = await repaired(schedule, table, dry=True)
        assert ([each.decision for each in planned.committed], planned.orders) == (missing, [])
        made = await repaired(schedule, table)
        assert [each.decision for each in made.committed] == missing
        assert content(copy) == before
        assert not (await verified(schedule, table)).wrong
        assert (await repaired(schedule, table)).committed == []
        # The last outcome of the log names a snapshot that does not exist any more.
        state, head = schedule.checks.reference.state, copy.head
        assert head is not None
        assert state.unresolved is None
        named = SnapshotRef(id=head.id, identity=head.identity)
        if state.snapshot != named:
            resume = StreamCommand(command="resume", decision=state.decided + 1, head=named)
            assert made.orders[:1] == [resume]
            assert [each.command for each in made.orders[1:]] == ["pause"] * state.paused
    finally:
        schedule.world.table = own
