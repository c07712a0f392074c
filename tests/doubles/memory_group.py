"""Several tables in memory that one decision changes together, as a catalog of the real format does it.

`MemoryCatalog` has the tables by name. It is atomic, or applies a transaction table by table, as some servers
do. The group itself is the product's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sluicegate.events.models import FilesWritten, SnapshotRef, TableVersion
from sluicegate.lakes.committer import OVERTAKEN
from sluicegate.lakes.group import Group, GroupTable, Member, Unchanged, Vector
from sluicegate.lakes.history import Evidence, evidence_of
from sluicegate.lakes.port import CommitRequest, LakeError, Publication, Refused, TableRefused
from sluicegate.lakes.storage import Uncertain
from tests.doubles.memory_lake import MemoryCommitter, MemorySnapshot, MemoryTable, events_of


@dataclass(frozen=True)
class MemoryState:
    """A table at one moment."""

    table: MemoryTable
    identity: str
    head: SnapshotRef | None
    rollbacks: int = 0


@dataclass(frozen=True)
class MemoryPart:
    """One table's part of a commit."""

    base: MemoryState
    request: CommitRequest
    events: tuple[FilesWritten, ...]
    made: MemorySnapshot
    vector: Vector | None = None

    @property
    def snapshot(self) -> SnapshotRef:
        return self.made.ref

    def with_vector(self, vector: Vector) -> "MemoryPart":
        return replace(self, vector=dict(vector))


def state_of(table: MemoryTable) -> MemoryState:
    """Return the state of a table now."""
    return MemoryState(table, table.identity, table.head.ref if table.head else None, table.rollbacks)


class MemoryGroupTable(MemoryCommitter):
    """The committer of one table, in the steps that a group takes."""

    def __init__(self, catalog: "MemoryCatalog", name: str, user: str) -> None:
        super().__init__(catalog.tables[name], user)
        self._catalog, self._name = catalog, name

    def expect(self, identity: str) -> None:
        self._identity = identity

    def load(self) -> MemoryState:
        table = self._catalog.tables.get(self._name)
        if table is None:
            raise TableRefused(f"the catalog has no table {self._name}")
        self._table = table
        return state_of(table)

    def describe(self, state: MemoryState) -> tuple[str, str]:
        return state.identity, state.table.location

    def version(self, state: MemoryState) -> object:
        return state.identity, state.head, state.rollbacks

    def head(self, state: MemoryState) -> SnapshotRef | None:
        return state.head

    def evidence(self, state: MemoryState, asked: tuple[int, str], newest: TableVersion) -> Evidence:
        table = state.table
        marker = table.marker(self._user)
        return evidence_of(table.newest, table.parent, table.past, self._user, asked, newest, marker)

    def compose(self, request: CommitRequest, state: MemoryState) -> MemoryPart | Publication:
        if self._identity not in (None, state.identity) or state.head != request.head:
            return OVERTAKEN
        events = events_of(request.files)
        problem = self._problem(events)
        if problem is not None:
            return Refused(problem)
        made = state.table.make(self._user, request, events)
        return MemoryPart(state, request, tuple(events), made)

    def remember(self, composed: MemoryPart) -> None:
        """Nothing is read less for it."""


class Interrupted(Exception):
    """The process is gone in the middle of a transaction."""


@dataclass
class MemoryCatalog:
    """The tables of one catalog, by identifier, and its one step over several of them."""

    tables: dict[str, MemoryTable] = field(default_factory=dict)
    atomic: bool = True
    vector: Vector | None = None
    """The anchor's newest one, for readers."""
    vector_of: int = 0
    """The decision that it is of."""
    crash_after: int | None = None
    """The next transaction that is not atomic ends after so many tables."""
    drops: str = ""
    """A table whose part of the next transaction is dropped, with a success as answer."""

    def scope(self, state: MemoryState) -> str | None:
        return None

    def load_all(
        self, tables: Sequence[GroupTable[MemoryState, MemoryPart]]
    ) -> list[MemoryState | LakeError]:
        found: list[MemoryState | LakeError] = []
        for each in tables:
            try:
                found.append(each.load())
            except LakeError as error:
                found.append(error)
        return found

    def commit_all(
        self,
        members: Sequence[Member[MemoryState, MemoryPart]],
        unchanged: Unchanged[MemoryState, MemoryPart] | None = None,
    ) -> bool:
        if unchanged is not None and not _is_current(unchanged.state):
            return False
        if self.atomic and not all(_is_current(each.composed.base) for each in members):
            return False
        limit, self.crash_after = self.crash_after, None
        dropped, self.drops = self.drops, ""
        for done, each in enumerate(members):
            if done == limit:
                raise Interrupted
            if not _is_current(each.composed.base):
                if done:
                    raise Uncertain("a table of the transaction has changed")
                return False
            part = each.composed
            if part.base.table.name == dropped:
                continue
            part.base.table.put(part.made)
            if part.vector is not None:
                self.vector, self.vector_of = part.vector, part.request.decision
        if dropped:
            raise Uncertain("the change is not seen everywhere")
        return True

    def group(
        self, anchor: str, user: str, wanted: Mapping[str, tuple[str, Sequence[str]]]
    ) -> Group[MemoryState, MemoryPart]:
        """Return the committer of the tables of one stream."""

        def opened(identifier: str) -> MemoryGroupTable:
            if identifier not in self.tables:
                raise TableRefused(f"the catalog has no table {identifier}")
            return MemoryGroupTable(self, identifier, user)

        return Group(MemoryGroupTable(self, anchor, user), opened, lambda: self, wanted)


def _is_current(state: MemoryState) -> bool:
    now = state_of(state.table)
    return (now.identity, now.head) == (state.identity, state.head)
