"""A table format that lives in memory: for users' tests and for the deterministic simulator.

No I/O, threads, clock or randomness. It keeps the port's contract as the real formats do, and it can be
made to fail at every point where they can. Only the writer half needs pyarrow.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from sluicegate.events.causes import Cause, CauseCode
from sluicegate.events.models import FilesWritten
from sluicegate.lakes.history import NoParent, PastSnapshot, look_for, newest_decisions
from sluicegate.lakes.memory_maintenance import MemoryMaintenance
from sluicegate.lakes.memory_writer import MemoryWriter
from sluicegate.lakes.port import (
    PORT_VERSION,
    Answer,
    BadFiles,
    CommitRequest,
    Conflict,
    LakeUnavailable,
    NotPublished,
    OutcomeUnknown,
    Publication,
    Published,
    Refused,
    SnapshotRef,
    TableRef,
    TableRefused,
    TableReplaced,
    TableState,
)

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "memory"
FORMAT_VERSION: Final = 1
SCHEME: Final = "memory://"
FOREIGN_USER: Final = "another-writer"

FaultPoint = Literal["inspect", "ask", "check", "publish.before", "publish.after"]
Faults = Callable[[FaultPoint], Publication | None]
"""Called at each point: returns None to continue, or raises LakeUnavailable.

At `publish.before` it may return Conflict, NotPublished, Refused or OutcomeUnknown, and nothing becomes
visible; at `publish.after`, where the snapshot is visible, it may return OutcomeUnknown.
"""


def _by_one() -> int:
    """Return the rise of positions without gaps."""
    return 1


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """One commit; `files` are the paths that it added."""

    id: int
    identity: str
    commit_user: str
    decision: int
    digest: str
    watermark: int | None
    files: tuple[str, ...] = ()
    rows: int = 0
    parent: str = ""
    """Identity of the snapshot that it was made on, of the table for the first one."""
    parent_id: int = 0

    @property
    def ref(self) -> SnapshotRef:
        return SnapshotRef(self.id, self.identity)

    @property
    def foreign(self) -> bool:
        """Made by another product, perhaps under our commit user."""
        return not self.digest


@dataclass
class MemoryTable:
    """A table, its history, and what tests do to it behind a coordinator's back."""

    name: str
    columns: tuple[str, ...] | None = None
    """The columns that the writer half accepts; None: any."""
    refusal: str | None = None
    """Reason for which the table is out of scope; None if it is not."""
    data: dict[str, "list[pa.RecordBatch]"] = field(default_factory=dict)
    """The rows of each path that was written, committed or not."""
    rise: Callable[[], int] = field(default=_by_one, kw_only=True, repr=False)
    """By how much the position of the next snapshot is higher; for tables whose positions have gaps."""
    _generation: int = 0
    _branching: int = 0
    _expired: list[MemorySnapshot] = field(default_factory=list)
    _visible: dict[int, MemorySnapshot] = field(default_factory=dict)
    _strays: dict[int, MemorySnapshot] = field(default_factory=dict)
    """Put where the history has expired; in no history themselves."""
    _writers: int = 0

    @property
    def location(self) -> str:
        return f"{SCHEME}{self.name}"

    @property
    def identity(self) -> str:
        """Changes with `replace`."""
        return f"{self.name}#{self._generation}"

    @property
    def snapshots(self) -> list[MemorySnapshot]:
        """The history that can still be read, oldest first."""
        return list(self._visible.values())

    @property
    def history(self) -> list[MemorySnapshot]:
        """Every snapshot that there was and that was not rolled back, oldest first."""
        return [*self._expired, *self._visible.values()]

    @property
    def head(self) -> MemorySnapshot | None:
        return self._visible[max(self._visible)] if self._visible else None

    @property
    def files(self) -> list[str]:
        """Every committed path, once per commit that added it; expiry does not remove any."""
        return [path for snapshot in (*self._expired, *self._visible.values()) for path in snapshot.files]

    @property
    def rows(self) -> int:
        return sum(snapshot.rows for snapshot in (*self._expired, *self._visible.values()))

    def at(self, number: int) -> MemorySnapshot | None:
        return self._visible.get(number)

    def parent(self, past: PastSnapshot) -> PastSnapshot | NoParent:
        """Read the snapshot that one was made on."""
        made = self.at(past.ref.id)
        if made is not None and made.parent == self.identity:
            return NoParent.FIRST
        before = self.past(made.parent_id) if made is not None else None
        if made is None or before is None or before.ref.identity != made.parent:
            return NoParent.UNREADABLE
        return before

    def made_on(self, head: SnapshotRef | None) -> MemorySnapshot | None:
        """Return the snapshot that was made on this one, None if there is none."""
        parent = head.identity if head is not None else self.identity
        return next((each for each in self._visible.values() if each.parent == parent), None)

    def expire(self, keep: int) -> None:
        """Forget all but the newest `keep` snapshots; their files stay in the table."""
        if keep < 1:
            raise ValueError("the newest snapshot never expires: keep at least 1")
        for number in sorted(self._visible)[:-keep]:
            self._expired.append(self._visible.pop(number))

    def restore(self, snapshots: Sequence[MemorySnapshot]) -> None:
        """Put snapshots back that have expired, as from a backup of the table's metadata."""
        back = {snapshot.id: snapshot for snapshot in snapshots}
        self._expired = [each for each in self._expired if each.id not in back]
        self._visible = dict(sorted({**back, **self._visible}.items()))

    def rollback(self, to: int) -> None:
        """Drop every snapshot after this one, with its files; 0 drops the whole history."""
        if to and to not in self._visible:
            raise ValueError(f"{self.name} has no snapshot {to} to roll back to")
        self._visible = {number: kept for number, kept in self._visible.items() if number <= to}
        if to == 0:
            self._expired.clear()
        self._branching += 1

    def replace(self) -> None:
        """Drop the table and make it again under the same name."""
        self._generation += 1
        self._expired.clear()
        self._visible.clear()

    def foreign_commit(
        self, files: Sequence[str] = (), rows: int = 0, made_by: tuple[str, int] = (FOREIGN_USER, 0)
    ) -> SnapshotRef:
        """Commit as another writer of the table does; `made_by` is its commit user and its own commit id."""
        head = self.head
        snapshot = self._snapshot(head, (*made_by, ""), head.watermark if head else None, files, rows)
        self._visible[snapshot.id] = snapshot
        return snapshot.ref

    def commit(self, commit_user: str, request: CommitRequest) -> MemorySnapshot | None:
        """Put the snapshot on top of the head that the request names; None if that is not the head."""
        head = self.head
        if (head.ref if head else None) != request.head:
            return None
        before = head.watermark if head else None
        marks = [mark for mark in (before, request.watermark) if mark is not None]
        files = [file for event in request.files for file in event.files]
        snapshot = self._snapshot(
            head,
            (commit_user, request.decision, request.digest),
            max(marks, default=None),
            [file.path for file in files],
            sum(file.rows for file in files),
        )
        taken = self._visible.setdefault(snapshot.id, snapshot)
        return snapshot if taken is snapshot else None

    def strand(self, commit_user: str, head: MemorySnapshot | None, request: CommitRequest) -> None:
        """Put the snapshot after a former head, as a process does that stood still until that expired."""
        made_by = (commit_user, request.decision, request.digest)
        files = [file.path for event in request.files for file in event.files]
        stray = self._snapshot(head, made_by, request.watermark, files, 0)
        if stray.id in self._visible:
            raise ValueError(f"snapshot {stray.id} of {self.name} is there: nothing can be put in its place")
        self._strays[stray.id] = stray

    def past(self, number: int) -> PastSnapshot | None:
        """Return the commit of the snapshot at a position; None if none is there."""
        return _past(self.at(number))

    def referenced(self) -> set[str]:
        """Every path that any snapshot has, in the history or beside it."""
        return {*self.files, *(path for stray in self._strays.values() for path in stray.files)}

    def next_writer(self) -> int:
        self._writers += 1
        return self._writers

    def _snapshot(
        self,
        head: MemorySnapshot | None,
        made_by: tuple[str, int, str],
        watermark: int | None,
        files: Sequence[str],
        rows: int,
    ) -> MemorySnapshot:
        before = head.id if head else 0
        number = before + self.rise()
        user, decision, digest = made_by
        parent = head.identity if head else self.identity
        content = repr((parent, self._branching, number, made_by, watermark, tuple(files), rows))
        identity = hashlib.sha256(content.encode()).hexdigest()[:32]
        return MemorySnapshot(
            number, identity, user, decision, digest, watermark, tuple(files), rows, parent, before
        )


def _no_faults(point: FaultPoint) -> None:
    """The hook of a table that never fails."""


class MemoryCommitter:
    """The committer half, with faults on demand."""

    def __init__(self, table: MemoryTable, commit_user: str, faults: Faults | None = None) -> None:
        self._table = table
        self._user = commit_user
        self._identity: str | None = None
        """Of the table that was asked last."""
        self._faults: Callable[[FaultPoint], Publication | None] = faults or _no_faults

    def inspect(self) -> TableState:
        self._faults("inspect")
        table = self._table
        if table.refusal is not None:
            raise TableRefused(table.refusal)
        head = table.head
        newest = newest_decisions(_past(head), table.parent, table.past, self._user)
        return TableState(table.identity, head.ref if head else None, *newest)

    def ask(self, decision: int, digest: str, table: str, recorded: SnapshotRef | None) -> Answer:
        self._faults("ask")
        if table != self._table.identity:
            return TableReplaced(self._table.identity)
        self._identity = table
        there, asked = self._table, (decision, digest)
        return look_for(_past(there.head), there.parent, there.past, self._user, asked, recorded)

    def identity(self) -> str:
        return self._table.identity

    def check(self, files: Sequence[FilesWritten]) -> None:
        self._faults("check")
        problem = self._problem(files)
        if problem is not None:
            raise BadFiles(problem)

    def publish(self, request: CommitRequest) -> Publication:
        try:
            early = self._faults("publish.before")
        except LakeUnavailable as error:
            return NotPublished(str(error))
        if isinstance(early, Published):
            raise TypeError(
                "a fault cannot publish; return Conflict, NotPublished, Refused or OutcomeUnknown"
            )
        if early is not None:
            return early
        if self._identity not in (None, self._table.identity):
            return Conflict(cause=Cause(code=CauseCode.OTHER_TABLE))
        problem = self._problem(request.files)
        if problem is not None:
            return Refused(problem)
        made = self._table.commit(self._user, request)
        if made is None:
            return self._ours(request) or Conflict()
        late = self._faults("publish.after")
        if late is None:
            return Published(made.ref)
        if not isinstance(late, OutcomeUnknown):
            raise TypeError("the snapshot is visible by now: the only honest fault is OutcomeUnknown")
        return late

    def close(self) -> None:
        """Nothing is held."""

    def _ours(self, request: CommitRequest) -> Published | None:
        """The request's own snapshot, if it was published on the asked head before."""
        there = self._table.made_on(request.head)
        if there is None:
            return None
        same = (there.commit_user, there.decision, there.digest)
        return Published(there.ref) if same == (self._user, request.decision, request.digest) else None

    def _problem(self, files: Sequence[FilesWritten]) -> str | None:
        seen: set[str] = set()
        for event in files:
            if (event.format, event.format_version) != (FORMAT, FORMAT_VERSION):
                return f"metadata of {event.format} version {event.format_version}, expected {FORMAT} 1"
            if event.location != self._table.location:
                return f"files of {event.location}, but the table is {self._table.location}"
            for file in event.files:
                if file.path in seen:
                    return f"the file {file.path} is there twice"
                if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|/", file.path) or ".." in file.path.split("/"):
                    return f"the path {file.path} is not relative to the table"
                seen.add(file.path)
        return None


def _past(snapshot: MemorySnapshot | None) -> PastSnapshot | None:
    if snapshot is None:
        return None
    return PastSnapshot(snapshot.ref, snapshot.commit_user, snapshot.decision, snapshot.digest)


class MemoryAdapter:
    """The adapter; its tables are those of this process, by the name in `memory://name`."""

    name = FORMAT
    format_version = FORMAT_VERSION
    port_version = PORT_VERSION

    def __init__(self) -> None:
        self._tables: dict[str, MemoryTable] = {}

    def create(
        self, name: str, columns: Sequence[str] | None = None, *, rise: Callable[[], int] = _by_one
    ) -> MemoryTable:
        """Make a table, or a new one in the place of the old."""
        table = MemoryTable(name, None if columns is None else tuple(columns), rise=rise)
        self._tables[name] = table
        return table

    def drop(self, name: str) -> None:
        """Forget a table, if it is there."""
        self._tables.pop(name, None)

    def table(self, location: str) -> MemoryTable:
        """The table at `memory://name`. Raises TableRefused if there is none."""
        name = location.removeprefix(SCHEME)
        if not location.startswith(SCHEME) or name not in self._tables:
            raise TableRefused(f"no table at {location!r}; make it first with ADAPTER.create({name!r})")
        return self._tables[name]

    def parse_table(self, text: str, options: Mapping[str, str] | None = None) -> TableRef:
        return TableRef(text, text, dict(options or {}))

    def open_committer(self, table: TableRef, commit_user: str) -> MemoryCommitter:
        return MemoryCommitter(self.table(table.location), commit_user)

    def open_maintenance(self, table: TableRef) -> MemoryMaintenance:
        return MemoryMaintenance(self._tables, table.location)

    def open_writer(
        self,
        table: TableRef,
        event_time_column: str | None,
        digest: str | None = None,
    ) -> MemoryWriter:
        return MemoryWriter(self.table(table.location), event_time_column, digest)


ADAPTER: Final = MemoryAdapter()
