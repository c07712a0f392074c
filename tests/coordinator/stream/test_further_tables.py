"""Trouble of one further table excludes the regions that touch it, and shows before a touch."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sluicegate.coordinator.core.effects import CheckFiles, Failed, FilesChecked, InspectTable
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.table import StreamTable
from sluicegate.coordinator.stream.table_watch import TableWatch
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import (
    FilesWritten,
    FurtherTable,
    KnownTable,
    SnapshotRef,
    StreamPolicy,
    TableVersion,
)
from sluicegate.events.problems import CauseCode, Code, Problem
from sluicegate.kafka.bodies import WrittenEvent
from sluicegate.lakes.port import LakeUnavailable, TableState
from tests.shop import STREAM, Shop, write

LONG = 3_600.0


@asynccontextmanager
async def opened(shop: Shop, stall_after: float) -> AsyncIterator[tuple[StreamTable, TableState]]:
    settings = StreamSettings.model_validate({**shop.stream(), "commit_user": "u"})
    with ThreadPoolExecutor(2) as threads:
        table = StreamTable(settings, threads, stall_after)
        try:
            found = await table.inspect(InspectTable())
            assert isinstance(found, TableState)
            yield table, found
        finally:
            table.close()


def known(state: TableState, newest: TableVersion | None = None) -> dict[str, KnownTable]:
    items = state.tables["items"]
    assert isinstance(items, FurtherTable), items
    return {"items": KnownTable(terms=items, newest=newest or TableVersion())}


def touching(state: TableState, tables: Mapping[str, KnownTable], *offsets: int) -> CheckFiles:
    """Return the check of a cut in which `both` touches the items, and `plain` does not."""
    return CheckFiles(
        {"both": offsets, "plain": ()},
        (),
        state.identity,
        names_checked=False,
        tables=tables,
        touched={"both": frozenset(tables), "plain": frozenset()},
    )


def hide(path: Path) -> Path:
    """Put a file where nobody looks for it; return that place."""
    hidden = path.with_name(f"{path.name}.away")
    os.replace(path, hidden)
    return hidden


@pytest.mark.parametrize("stall_after", [0.0, LONG])
async def test_a_table_that_is_away_for_too_long_excludes_the_regions_that_touch_it(
    stall_after: float, tmp_path: Path
) -> None:
    shop = Shop(tmp_path)
    async with opened(shop, LONG) as (_, state):
        pass
    metadata = shop.metadata("items")
    hidden = hide(metadata)
    async with opened(shop, stall_after) as (table, _):
        effect = touching(state, known(state))
        found = await table.check(effect, {})
        if stall_after:
            assert isinstance(found, Failed)
            assert str(metadata) in found.reason
            assert found.reason.startswith("the table items: ")
            assert await table.compare(known(state)) == {}
            return
        assert isinstance(found, FilesChecked)
        assert [*found.problems] == ["both"]
        assert (found.problems["both"].code, found.problems["both"].table) == (Code.TABLE_UNUSABLE, "items")
        assert str(metadata) in found.problems["both"].detail
        assert await table.compare(known(state)) == {"items": found.problems["both"]}
        os.replace(hidden, metadata)
        assert await table.check(effect, {}) == FilesChecked({})
        assert await table.compare(known(state)) == {}


async def test_a_table_that_was_dropped_or_made_again_excludes_them_at_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    async with opened(shop, LONG) as (table, state):
        effect = touching(state, known(state))
        assert await table.check(effect, {}) == FilesChecked({})
        shop.drop("items")
        for words in ("has no table shop.items", "shop.items is another table now"):
            found = await table.check(effect, {})
            assert isinstance(found, FilesChecked)
            assert [*found.problems] == ["both"]
            assert words in format_problem(found.problems["both"], STREAM)
            if words.startswith("has"):
                shop.make("items")


async def test_a_decision_that_the_table_lacks_is_a_contradiction(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    async with opened(shop, LONG) as (table, state):
        lacking = TableVersion(decision=4, snapshot=SnapshotRef(id=2, identity="22"))
        found = await table.compare(known(state, lacking))
        cause = found["items"].cause
        assert cause is not None
        assert (cause.code, cause.number, cause.other) == (CauseCode.OTHER_NEWEST, 0, 4)


async def test_a_table_that_was_seen_without_a_decision_stays_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its history may expire after a rollback. Only a look that finds the decision ends the doubt."""
    shop = Shop(tmp_path)
    async with opened(shop, LONG) as (table, state):
        lacking = known(state, TableVersion(decision=4, snapshot=SnapshotRef(id=2, identity="22")))
        await table.compare(lacking)
        assert table.doubted == {"items": 4}
        seen = list[bool]()

        def trouble(tables: Mapping[str, KnownTable]) -> Mapping[str, Problem]:
            seen.append(tables["items"].doubted)
            return {}

        monkeypatch.setattr(table._group(), "trouble", trouble)
        await table.compare(known(state, TableVersion(decision=5)))
        table.doubted["items"] = 4
        await table.compare(lacking)
        assert (seen, table.doubted) == ([False, True], {})


def of_items(shop: Shop, *, lost: bool = False) -> WrittenEvent:
    place = (STREAM, "both", "q1", 0, "items", "a1")
    body = write(shop, "items", {"order": [1], "price": [2]}, place)
    if lost:
        for each in body.files:
            (shop.place("items") / each.path).unlink()
    at = Envelope(
        "e1", EventType.FILES_WRITTEN, STREAM, "both", "q1", 0, "items", "a1", len(body.files), table="items"
    )
    return WrittenEvent(at, body.model_dump_json().encode())


async def test_files_that_a_further_table_does_not_take_are_named_with_it(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    async with opened(shop, LONG) as (table, state):
        found = await table.check(touching(state, known(state), 7), {7: of_items(shop, lost=True)})
        assert isinstance(found, FilesChecked)
        assert (found.problems["both"].code, found.problems["both"].table) == (Code.FILES_EXCLUDED, "items")
        assert "the table items does not take them" in format_problem(
            found.problems["both"].model_copy(update={"region": "both"}), STREAM
        )


async def test_files_at_another_place_than_that_of_their_own_table_are_refused(tmp_path: Path) -> None:
    """A driver may find another table under the name, in another catalog. The log has the place of each."""
    shop = Shop(tmp_path)
    async with opened(shop, LONG) as (table, state):
        event = of_items(shop)
        body = FilesWritten.model_validate_json(event.body)
        for place in (body.location.replace("items", "orders"), f"{body.location}-of-another-catalog"):
            moved = body.model_copy(update={"location": place})
            files = WrittenEvent(event.envelope, moved.model_dump_json().encode())
            found = await table.check(touching(state, known(state), 7), {7: files})
            assert isinstance(found, FilesChecked)
            problem = found.problems["both"]
            assert (problem.code, problem.table, problem.names[0]) == (
                Code.LOCATION_NOT_ALLOWED,
                "items",
                place,
            )
            assert "tables.items" in format_problem(problem.model_copy(update={"region": "both"}), STREAM)


@pytest.mark.parametrize("stall_after", [0.0, LONG])
async def test_a_storage_that_is_away_counts_as_the_catalog_does(
    stall_after: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    async with opened(shop, stall_after) as (table, state):
        half = table._group().table(known(state)["items"].terms)

        def away(_: object) -> None:
            raise LakeUnavailable("the bucket does not answer")

        monkeypatch.setattr(half, "check", away)
        found = await table.check(touching(state, known(state), 7), {7: of_items(shop)})
        if stall_after:
            assert found == Failed("the bucket does not answer")
        else:
            detail = "the bucket does not answer"
            problem = Problem(code=Code.TABLE_UNUSABLE, table="items", detail=detail)
            assert found == FilesChecked({"both": problem})
        monkeypatch.undo()
        given = {7: of_items(shop)}
        assert await table.check(touching(state, known(state), 7), given) == FilesChecked({})


# --- the watch ------------------------------------------------------------------------------------

ITEMS = FurtherTable(identifier="shop.items", identity="uuid-1", location="file:///items")


class Given:
    """Answers of the tables, which the test gives."""

    def __init__(self) -> None:
        self.troubles: dict[str, Problem] = {}
        self.away = False
        self.compared: list[dict[str, KnownTable]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def compare(self, tables: Mapping[str, KnownTable]) -> Mapping[str, Problem]:
        self.compared.append(dict(tables))
        if self.away:
            raise LakeUnavailable("the catalog does not answer")
        await asyncio.sleep(0)
        self.meanwhile()
        return {name: each for name, each in self.troubles.items() if name in tables}


def logged(**tables: FurtherTable) -> LogState:
    state = LogState(policy=StreamPolicy(number=1, tables=tables))
    state.tables = {name: KnownTable(terms=each) for name, each in tables.items()}
    return state


async def compared(watch: TableWatch, state: LogState) -> list[tuple[str | None, str]]:
    """Let the watch compare; return the table and the detail of each condition."""
    watch._next = 0.0
    task = watch.start(state)
    assert task is not None
    assert watch.start(state) is None
    await task
    found = [*watch.conditions(state)]
    assert {(each.kind, each.problem.code) for each in found} <= {("stall", Code.TABLE_UNUSABLE)}
    return [(each.problem.table, each.problem.detail) for each in found]


async def test_a_stream_of_one_table_compares_nothing() -> None:
    given = Given()
    watch = TableWatch(given, LONG)
    assert watch.start(LogState()) is None
    watch.inspected({})
    assert watch.start(logged()) is None
    assert given.compared == []


async def test_trouble_is_a_condition_until_a_later_comparison_finds_none() -> None:
    given, state = Given(), logged(items=ITEMS)
    watch = TableWatch(given, LONG)
    watch.inspected({"items": ITEMS})
    assert await compared(watch, state) == []
    assert watch.start(state) is None, "the next one is due after the interval"
    given.troubles = {"items": Problem(code=Code.TABLE_UNUSABLE, table="items", detail="dropped")}
    assert await compared(watch, state) == [("items", "dropped")]
    given.away = True
    assert await compared(watch, state) == [("items", "dropped")], "nothing new is known"
    given.away, given.troubles = False, {}
    assert await compared(watch, state) == []


async def test_a_table_that_a_decision_changes_meanwhile_is_in_no_contradiction() -> None:
    given, state = Given(), logged(items=ITEMS)
    watch = TableWatch(given, LONG)

    def outcome() -> None:
        newest = TableVersion(decision=1, snapshot=SnapshotRef(id=1, identity="11"))
        state.tables["items"] = state.tables["items"].model_copy(update={"newest": newest})

    given.meanwhile = outcome
    given.troubles = {"items": Problem(code=Code.TABLE_UNUSABLE, table="items", detail="decision 1")}
    assert await compared(watch, state) == []
    given.meanwhile = lambda: None
    assert await compared(watch, state) == [("items", "decision 1")]


async def test_a_table_of_the_settings_that_cannot_be_used_is_a_condition_until_it_can() -> None:
    watch, state = TableWatch(Given(), LONG), logged()
    watch.inspected({"items": "the catalog has no table shop.items"})
    assert [each.problem.detail for each in watch.conditions(state)] == [
        "the catalog has no table shop.items"
    ]
    watch.inspected({"items": ITEMS})
    assert await compared(watch, logged(items=ITEMS)) == []


async def test_a_table_that_the_settings_name_in_place_of_another_one_is_a_condition() -> None:
    watch, state = TableWatch(Given(), LONG), logged(items=ITEMS)
    other = ITEMS.model_copy(update={"identifier": "shop.items2", "identity": "uuid-2"})
    watch.inspected({"items": other})
    ((table, detail),) = await compared(watch, state)
    assert table == "items"
    assert "shop.items2, which is the table uuid-2, and the stream has the table uuid-1" in detail


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, "shop.items is the table items of the stream, and the settings call it goods"),
        ({"identity": "uuid-2"}, "keeps its data in the folder of the table items"),
    ],
)
async def test_another_name_of_a_table_and_a_table_in_its_folder_are_conditions(
    other: dict[str, str], words: str
) -> None:
    watch, state = TableWatch(Given(), LONG), logged(items=ITEMS)
    watch.inspected({"goods": ITEMS.model_copy(update=other)})
    ((table, detail),) = await compared(watch, state)
    assert (table, words in detail) == ("goods", True)
