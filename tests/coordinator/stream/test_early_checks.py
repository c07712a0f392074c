"""Events are checked while they wait, and the check before a decision reads only what did not pass."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from sluicegate.coordinator.core.effects import CheckFiles, FilesChecked, InspectTable, Publish
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream import prechecks
from sluicegate.coordinator.stream.prechecks import EarlyChecks, Known, Passed, Terms
from sluicegate.coordinator.stream.summary import NAMED
from sluicegate.coordinator.stream.table import StreamTable
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import CheckpointCompleted, FileInfo, FilesWritten
from sluicegate.events.problems import Code
from sluicegate.kafka.bodies import Bodies, Budget, WrittenEvent
from sluicegate.lakes.port import CHECK_LASTS, Checked, LakeUnavailable, Premises, Published, TableReplaced
from tests.doubles.memory_lake import ADAPTER, MemoryTable
from tests.integration.waiting import until

STREAM = "early"
ALLOWED = (f"memory://{STREAM}",)
TERMS = Terms(ALLOWED, names_checked=False)


def event(number: int, *paths: str, location: str = f"memory://{STREAM}") -> WrittenEvent:
    """Return the event of one writer with these files."""
    at = Envelope(
        f"e{number}", EventType.FILES_WRITTEN, STREAM, "r1", "q.0", 3, f"w{number}", "a", len(paths)
    )
    files = tuple(FileInfo(path=path, size=1, rows=1) for path in paths)
    body = FilesWritten(format="memory", format_version=1, location=location, schema_id=0, files=files)
    return WrittenEvent(at, body.model_dump_json().encode())


class Given(Mapping[int, WrittenEvent]):
    """Bodies by offset, with a note of those that were read."""

    def __init__(self, **events: WrittenEvent) -> None:
        self.events = {int(name.removeprefix("at")): each for name, each in events.items()}
        self.read: list[int] = []

    def __getitem__(self, offset: int) -> WrittenEvent:
        self.read.append(offset)
        return self.events[offset]

    def __iter__(self) -> Iterator[int]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[StreamTable, MemoryTable]]:
    settings = StreamSettings(format="memory", table=f"memory://{STREAM}", commit_user="u")
    made = ADAPTER.create(STREAM)
    try:
        with ThreadPoolExecutor(2) as threads:
            table = StreamTable(settings, threads)
            await table.inspect(InspectTable())
            yield table, made
            table.close()
    finally:
        ADAPTER.drop(STREAM)


def wanted(table: MemoryTable, *offsets: int, allowed: tuple[str, ...] = ALLOWED) -> CheckFiles:
    return CheckFiles({"r1": offsets}, allowed, table.identity, names_checked=False)


async def test_events_that_passed_are_not_read_before_the_decision() -> None:
    async with opened() as (table, made):
        given = Given(at1=event(1, "a"), at2=event(2, "b"), at3=event(3, "c"))
        passed = await table.check_early({1: given.events[1], 2: given.events[2]}, TERMS)
        assert sorted(passed) == [1, 2]
        found = await table.check(wanted(made, 1, 2, 3), given, Known(passed))
        assert found == FilesChecked({})
        assert given.read == [3]


async def test_a_completion_that_carries_files_is_an_event_with_files() -> None:
    plain, bodies = event(1, "a"), Bodies(Budget(1 << 20))
    carrying = plain.envelope._replace(type=EventType.CHECKPOINT_COMPLETED)
    files = FilesWritten.model_validate_json(plain.body)
    body = CheckpointCompleted(files=files, predecessor=None).model_dump_json().encode()
    bodies.keep(1, carrying, body)
    bodies.keep(2, event(2, "b").envelope, event(2, "b").body)
    held = bodies.first_of([1, 2])
    assert held == {1: WrittenEvent(carrying, body), 2: event(2, "b")}
    async with opened() as (table, made):
        passed = await table.check_early(held, TERMS)
        assert sorted(passed) == [1, 2]
        assert await table.check(wanted(made, 1, 2), held, Known(passed)) == FilesChecked({})
        broken = {1: WrittenEvent(carrying, body.replace(b'"path":"a"', b'"path":"../a"'))}
        found = await table.check(wanted(made, 1), broken)
        assert isinstance(found, FilesChecked)
        assert found.problems["r1"].code is Code.BODY_UNREADABLE
        assert table.broken[1][1].names == ("files.files.0.path",)


async def test_what_fails_is_told_before_the_decision() -> None:
    async with opened() as (table, made):
        given = Given(at1=event(1, "a"), at2=event(2, "b", location="memory://elsewhere"))
        passed = await table.check_early(given.events, TERMS)
        assert sorted(passed) == [1]
        found = await table.check(wanted(made, 1, 2), given, Known(passed))
        assert isinstance(found, FilesChecked)
        assert found.problems["r1"].code is Code.LOCATION_NOT_ALLOWED


async def test_other_terms_need_another_check() -> None:
    async with opened() as (table, made):
        given = Given(at1=event(1, "a"))
        passed = await table.check_early(given.events, TERMS)
        found = await table.check(wanted(made, 1, allowed=("memory://other",)), given, Known(passed))
        assert isinstance(found, FilesChecked)
        assert found.problems["r1"].code is Code.LOCATION_NOT_ALLOWED


async def test_another_schema_needs_another_check() -> None:
    async with opened() as (table, made):
        given = Given(at1=event(1, "a"))
        passed = await table.check_early(given.events, TERMS)
        made.columns = ("id", "more")
        assert await table.check(wanted(made, 1), given, Known(passed)) == FilesChecked({})
        assert given.read == [1]


@pytest.mark.parametrize("late", [(), (2,)], ids=str)
async def test_a_replaced_table_is_found_though_events_passed(late: tuple[int, ...]) -> None:
    async with opened() as (table, made):
        given = Given(at1=event(1, "a"), at2=event(2, "b"))
        passed = await table.check_early(given.events, TERMS)
        known = Known({offset: each for offset, each in passed.items() if offset not in late})
        effect = wanted(made, 1, 2)
        made.replace()
        assert await table.check(effect, given, known) == TableReplaced(made.identity)


async def test_an_old_check_is_repeated() -> None:
    async with opened() as (table, made):
        given = Given(at1=event(1, "a"), at2=event(2, "b"))
        passed = dict(await table.check_early(given.events, TERMS))
        passed[2] = passed[2]._replace(at=passed[2].at - CHECK_LASTS)
        assert await table.check(wanted(made, 1, 2), given, Known(passed)) == FilesChecked({})
        assert given.read == [2]


@pytest.mark.parametrize("late", [(), (2,), (1, 2)], ids=str)
async def test_one_file_in_two_events_is_found_though_each_passed(late: tuple[int, ...]) -> None:
    async with opened() as (table, made):
        given = Given(at1=event(1, "a", "b"), at2=event(2, "c", "b"))
        passed = await table.check_early(given.events, TERMS)
        kept = {offset: each for offset, each in passed.items() if offset not in late}
        found = await table.check(wanted(made, 1, 2), given, Known(kept))
        assert isinstance(found, FilesChecked)
        assert found.problems["r1"].code is Code.FILES_EXCLUDED
        assert "the file b is there twice" in found.problems["r1"].detail


CHECKED = Checked(premises=Premises("", ""), files=1, rows=1, size=1, paths=b"p" * 16, content=None, held=100)


class Slow:
    """A table whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.go = asyncio.Semaphore(0)
        self.error: Exception | None = None

    async def check_early(self, events: Mapping[int, WrittenEvent], terms: Terms) -> dict[int, Passed]:
        self.asked.append(list(events))
        await self.go.acquire()
        if self.error is not None:
            raise self.error
        return {offset: Passed(terms, 0.0, CHECKED, {}) for offset in events}


def held(*offsets: int) -> Bodies:
    bodies = Bodies(Budget(1 << 20))
    for offset in offsets:
        envelope, body = event(offset, f"f{offset}")
        bodies.keep(offset, envelope, body)
    return bodies


async def test_events_are_checked_in_pieces_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prechecks, "PIECE", 2 * len(event(1, "f1").body))
    table, bodies = Slow(), held(1, 2, 3)
    checks = EarlyChecks(table, bodies, Budget(1 << 20))
    assert checks.start(TERMS) is None
    for offset in (1, 2, 3):
        checks.arrived(offset)
    task = checks.start(TERMS)
    assert task is not None
    assert checks.start(TERMS) is None
    table.go.release()
    table.go.release()
    await task
    assert table.asked == [[1, 2], [3]]
    assert sorted(checks.passed) == [1, 2, 3]
    checks.forget([2])
    assert sorted(checks.passed) == [1, 3]


async def test_an_event_that_is_left_or_dropped_meanwhile_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prechecks, "PIECE", 1)
    table, bodies = Slow(), held(1, 2, 3, 4)
    checks = EarlyChecks(table, bodies, Budget(1 << 20))
    for offset in (1, 2, 3, 4):
        checks.arrived(offset)
    task = checks.start(TERMS)
    assert task is not None
    await until(lambda: table.asked == [[1]])
    checks.leave([2])
    bodies.drop([1, 3])
    checks.forget([1, 3])
    table.go.release()
    table.go.release()
    await task
    assert table.asked == [[1], [4]]
    assert sorted(checks.passed) == [4]


@pytest.mark.parametrize("error", [LakeUnavailable("away"), ValueError("unexpected")], ids=repr)
async def test_a_failure_leaves_the_events_to_the_check_before_the_decision(error: Exception) -> None:
    table, bodies = Slow(), held(1, 2)
    table.error = error
    checks = EarlyChecks(table, bodies, Budget(1 << 20))
    checks.arrived(1)
    table.go.release()
    task = checks.start(TERMS)
    assert task is not None
    await task
    assert checks.passed == {}
    table.error = None
    checks.arrived(2)
    table.go.release()
    again = checks.start(TERMS)
    assert again is not None
    await again
    assert sorted(checks.passed) == [2]


async def test_an_effect_waits_for_the_call_that_runs_and_not_for_the_next_one() -> None:
    async with opened() as (table, made):
        order: list[str] = []
        gate = threading.Event()

        def wait(name: str) -> None:
            order.append(name)
            gate.wait()

        class Noted(Given):
            def __getitem__(self, offset: int) -> WrittenEvent:
                order.append("check")
                return super().__getitem__(offset)

        first = asyncio.create_task(table._call(lambda: wait("early")))
        await until(lambda: order == ["early"])
        check = asyncio.create_task(table.check(wanted(made, 1), Noted(at1=event(1, "a"))))
        await asyncio.sleep(0)
        second = asyncio.create_task(table._call(lambda: order.append("early again")))
        gate.set()
        assert await check == FilesChecked({})
        await asyncio.gather(first, second)
        assert order == ["early", "check", "early again"]


def publication(*offsets: int, allowed: tuple[str, ...] = ALLOWED) -> Publish:
    return Publish(
        decision=1,
        digest="d",
        head=None,
        watermark=None,
        offsets=offsets,
        allowed_locations=allowed,
        names_checked=False,
    )


async def test_events_that_passed_are_not_read_for_the_publication() -> None:
    async with opened() as (table, made):
        given = Given(at1=event(1, "a"), at2=event(2, "b"))
        passed = await table.check_early({1: given.events[1]}, TERMS)
        result = await table.publish(publication(1, 2), given, passed)
        assert isinstance(result, Published)
        assert given.read == [2]
        assert made.files == ["a", "b"]
        assert table.tally is not None
        assert (table.tally.events, table.tally.rows, table.tally.size) == (2, 2, 2)


@pytest.mark.parametrize("change", ["old", "columns"])
async def test_checks_that_do_not_hold_are_repeated_for_the_publication(change: str) -> None:
    async with opened() as (table, made):
        given = Given(at1=event(1, "a"))
        passed = dict(await table.check_early(given.events, TERMS))
        if change == "old":
            passed[1] = passed[1]._replace(at=passed[1].at - CHECK_LASTS)
        else:
            made.columns = ("id", "more")
        assert isinstance(await table.publish(publication(1), given, passed), Published)
        assert given.read == [1]
        assert made.files == ["a"]


async def test_what_passes_before_the_decision_is_kept_within_the_memory() -> None:
    async with opened() as (table, made):
        given = Given(at1=event(1, "a"), at2=event(2, "b"))
        await table.check(wanted(made, 1, 2), given, Known(room=20 + NAMED))
        kept = table.take_passed()
        assert sorted(kept) == [1]
        assert table.take_passed() == {}
        assert isinstance(await table.publish(publication(1, 2), given, kept), Published)
        assert given.read == [1, 2, 2]


async def test_events_that_passed_take_memory_and_give_it_back() -> None:
    bodies, budget = held(1, 2, 3), Budget(250)
    checks = EarlyChecks(Slow(), bodies, budget)
    passed = Passed(TERMS, 0.0, CHECKED, {})
    checks.keep(dict.fromkeys((1, 2, 3, 9), passed))
    assert sorted(checks.passed) == [1, 2]
    checks.keep({1: passed})
    assert (budget.held, checks.room) == (200, 50)
    checks.forget([1])
    assert budget.held == 100
    checks.stop()
    checks.keep({3: passed})
    assert (budget.held, checks.passed) == (0, {})
