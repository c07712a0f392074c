"""An orphan is deletable when the record that made it one is old, and nothing has named its file since."""

from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import AsyncMock, MagicMock

import pytest

from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.replay.decisions import Arrival, Comparison, Orphan, Start, Verdict
from sluicegate.coordinator.replay.orphans import Deletable, Search, Unnamed, _Home, _paths_in
from sluicegate.events.encoding import Message, encode_event
from sluicegate.events.envelope import EventType
from sluicegate.events.models import CutCommitted, SnapshotRef
from sluicegate.lakes.drafts import DraftNames, draft_names
from sluicegate.lakes.history import PastSnapshot, TableHistory
from tests.events.examples import CARRIED, CARRYING, FILES

GRACE = 100
PATHS = {file.path for file in FILES.files}
NOW = 1_000


def orphan(since: int, offset: int = 3) -> Orphan:
    """Return an orphan whose own event is very old."""
    return Orphan(Arrival(offset, 0, "e", "r1", "q", 0, "w"), "lost", since)


def search_of(*found: Orphan, end: int = 10) -> Search:
    """Return a search that has read the log up to offset 10."""
    log = MagicMock(end=AsyncMock(return_value=end), partition=0)
    table = MagicMock()
    table.name = ""
    made = Search("s", log, Start(0, LogState(), -1), [table], GRACE)
    made._position = 10
    made._old = {each.arrival.offset for each in found}
    events: Any = SimpleNamespace(orphans=lambda state: iter(found))
    made._events = events
    return made


def home_of(made: Search, table: str = "t") -> _Home:
    """Return the anchor of a search, with this identity."""
    home = made._homes[""]
    home.history = Comparison(TableHistory(table, (), whole=True), "sluicegate-s")
    stub: Any = home.table
    stub.settings.commit_user = "sluicegate-s"
    stub.capable.return_value.branch = "main"
    return home


@pytest.mark.parametrize(("since", "old"), [(NOW - GRACE, 1), (NOW - GRACE + 1, 0), (NOW, 0)])
def test_the_grace_period_counts_from_the_record_that_made_the_orphan(since: int, old: int) -> None:
    found, young = search_of(orphan(since))._orphans(NOW)
    assert (len(found), young) == (old, 1 - old)


@pytest.mark.parametrize(
    ("path", "since", "deletable"),
    [("free", 0, True), ("named", 0, False), ("free", NOW, False)],
    ids=["as before", "named since", "younger than it was"],
)
async def test_a_file_is_looked_at_again_before_its_deletion(
    path: str, since: int, *, deletable: bool
) -> None:
    made = search_of(lost := orphan(since), end=11)

    async def read(end: int, seen: Any = None, *, compare: bool = False) -> None:
        made._named_since.add("named")

    made._read = read  # type: ignore[method-assign]
    assert await made._still(Deletable(path, 1, lost), NOW) is deletable


NAME = f"data-{32 * '0'}-{16 * 'q'}-0-x.parquet"


@pytest.mark.parametrize(
    ("since", "named", "deletable"),
    [(0, "", True), (NOW, "", False), (None, "", False), (0, f"elsewhere/{NAME}", False)],
    ids=["as before", "younger than it was", "may be committed", "named since"],
)
async def test_a_file_without_an_event_is_looked_at_again(
    since: int | None, named: str, *, deletable: bool
) -> None:
    made = search_of(end=11)

    async def read(end: int, seen: Any = None, *, compare: bool = False) -> None:
        made._named_since.add(named)

    made._read = read  # type: ignore[method-assign]
    events: Any = SimpleNamespace(judge=lambda *_: Verdict("lost", since), orphans=lambda state: iter(()))
    made._events = events
    assert await made._still(Unnamed(f"r=1/{NAME}", 1, "q", 0, "lost", 0), NOW) is deletable


def test_a_table_without_the_newest_decision_proves_nothing() -> None:
    """It was rolled back, or its history has expired: a winner may look like an orphan."""
    made = search_of()
    home, state = home_of(made), made._fold.replica.log.state
    state.decided = 3
    for newest, proves in ((2, False), (3, True), (4, False)):
        past = PastSnapshot(SnapshotRef(1, "s"), "sluicegate-s", newest, "digest")
        home.history = Comparison(TableHistory("t", (past,), whole=True), "sluicegate-s")
        # One with a later decision has another log, which may have this file as pending.
        assert (home.unproven_by(state) is None) is proves
    assert home_of(made).unproven_by(state) is not None
    events: Any = SimpleNamespace(judge=lambda *_: Verdict("lost", 0))
    made._events = events
    assert made._judged(home, NAME, 1).since == 0
    home.unproven = "no proof"
    assert made._judged(home, NAME, 1).since is None


def test_a_short_incarnation_proves_nothing() -> None:
    """It is not random: another stream of the table, whose log is elsewhere, may have the same."""
    made = search_of()
    events: Any = SimpleNamespace(judge=lambda *_: Verdict("lost", 0))
    made._events = events
    assert made._judged(home_of(made), f"data-{32 * '0'}-{15 * 'q'}-0-x.parquet", 1).since is None


DRAFTS: Final = draft_names("t", "main", "sluicegate-s", 3)
OTHERS: Final = (
    draft_names("t", "main", "sluicegate-t", 3),
    draft_names("t", "b", "sluicegate-s", 3),
    draft_names("u", "main", "sluicegate-s", 3),
)


def draft_paths(names: DraftNames) -> list[str]:
    return [f"metadata/{names.name('manifest')}-m0.avro", f"metadata/00007-{names.uuid()}.metadata.json"]


def test_a_draft_of_another_stream_branch_or_table_stays() -> None:
    """Their decisions have the same numbers, and their outcomes are in another log."""
    made = search_of()
    home = home_of(made)
    events: Any = SimpleNamespace(judge_draft=lambda decision: Verdict("settled", decision))
    made._events = events
    for path in draft_paths(DRAFTS):
        assert made._judged(home, path, 1) == Unnamed(path, 1, None, None, "settled", 3)
    for path in (path for names in OTHERS for path in draft_paths(names)):
        assert made._judged(home, path, 1).since is None
    home.unproven = "no proof"
    assert [made._judged(home, path, 1).since for path in draft_paths(DRAFTS)] == [None, None]


def list_paths(decision: int, snapshot: str) -> list[str]:
    """Return a list of manifests and another draft of one attempt."""
    names = draft_names("t", "main", "sluicegate-s", decision)
    return [f"metadata/{names.name(f'snap-{snapshot}-0')}.avro", f"metadata/{names.name('manifest')}-m0.avro"]


@pytest.mark.parametrize(
    ("snapshot", "settled"),
    [(SnapshotRef(5, "77"), [None, None, 0, 0]), (None, [None, None, None, None])],
    ids=["named", "unknown"],
)
def test_a_draft_that_the_log_names_as_published_stays(
    snapshot: SnapshotRef | None, settled: list[int | None]
) -> None:
    """The table's metadata may list the newest snapshot alone, while a tag of the catalog has others."""
    made = search_of()
    home = home_of(made)
    events: Any = SimpleNamespace(judge_draft=lambda decision: Verdict("settled", 0))
    made._events = events
    paths = [*list_paths(3, "77"), *list_paths(3, "78")]
    home.note_lists(paths, 0)
    assert [made._judged(home, path, 1).since for path in paths] == [0, 0, 0, 0]
    logged: Any = SimpleNamespace(decision=SimpleNamespace(id=3), outcome=SimpleNamespace(snapshot=snapshot))
    home.note_published(logged)
    assert [made._judged(home, path, 1).since for path in paths] == settled


def test_a_draft_of_a_decision_whose_outcome_the_log_lacks_may_be_published() -> None:
    made = search_of()
    home = home_of(made)
    home.note_lists([path for decision in (3, 4) for path in list_paths(decision, "77")], 3)
    assert {decision for _, decision, _ in home.published} == {3}


async def test_what_is_drafted_after_the_history_was_read_is_not_in_the_list() -> None:
    """A repair publishes decisions that have outcomes: it may begin after a rollback, at any moment."""
    steps: list[str] = []
    made = search_of()

    async def call(step: Any) -> Any:
        return step()

    def stated_files() -> dict[str, int]:
        steps.append("list")
        return {}

    finder = SimpleNamespace(stated_files=stated_files, file_status=lambda paths: {}, branch="main")

    async def comparison() -> Comparison:
        steps.append("history")
        return Comparison(TableHistory("t", (), whole=True), "sluicegate-s")

    async def end() -> int:
        steps.append("log")
        return made._position

    maintenance = SimpleNamespace(location="file:///t")
    settings = SimpleNamespace(commit_user="sluicegate-s")
    table: Any = SimpleNamespace(
        name="",
        capable=lambda *_: finder,
        call=call,
        comparison=comparison,
        maintenance=maintenance,
        settings=settings,
    )
    log: Any = SimpleNamespace(end=end)
    made._homes, made._log = {"": _Home(table)}, log

    async def read(end: int, seen: Any = None, *, compare: bool = False) -> None:
        made._fold.replica.log.state.policy = MagicMock()

    made._read = read  # type: ignore[method-assign]
    await made.find(NOW)
    assert steps == ["list", "history", "log"]


def paths_in(message: Message) -> set[str]:
    return _paths_in(SimpleNamespace(headers=tuple(message.headers), value=message.value))


def test_the_paths_of_a_completion_with_files_are_named() -> None:
    """Its offsets may have escapes, and text that looks like a path."""
    plain = CARRIED.model_copy(update={"source_offsets": None})
    for body in (plain, CARRIED, CARRIED.model_copy(update={"source_offsets": '{"path": "other"}'})):
        assert paths_in(encode_event(CARRYING, body, 0)) == PATHS
    written = CARRYING._replace(type=EventType.FILES_WRITTEN)
    assert paths_in(encode_event(written, FILES, 0)) == PATHS
    naming = CARRIED.model_copy(update={"files": None, "events": ("e1",)})
    without = CARRYING._replace(writer="", attempt="", files=0, rows=0, bytes=0)
    assert paths_in(encode_event(without, naming, 0)) == set()


def test_what_the_log_may_still_give_a_further_table_has_drafts_that_stay() -> None:
    """A repair publishes a decision of which the table was left out."""
    made = search_of()
    home = home_of(made)
    home.name = "items"
    events: Any = SimpleNamespace(judge_draft=lambda decision: Verdict("settled", 0))
    made._events = events
    # Of the first attempt, a process that died has written no list yet.
    paths = [list_paths(3, "77")[1], *list_paths(4, "78"), *list_paths(4, "79")]
    home.note_lists(paths, 0)
    for decision, tables in ((3, {}), (4, {"items": SnapshotRef(5, "78")})):
        outcome = CutCommitted(decision=decision, digest="d", table="t", tables=tables)
        logged: Any = SimpleNamespace(
            decision=SimpleNamespace(id=decision, tables={"items": None}), outcome=outcome
        )
        home.note_published(logged)
    assert [made._judged(home, path, 1).since for path in paths] == [None, None, None, 0, 0]
    # The order after a repair names the snapshot that the table has now.
    home.note_stated(SnapshotRef(6, "79"))
    assert [made._judged(home, path, 1).since for path in paths[3:]] == [None, None]
