"""A table format that lives in memory: for the golden cases and the deterministic simulator.

No I/O, threads, clock or randomness. It keeps the port's contract as the real formats do, and it can be
made to fail at every point where they can. Only the writer half needs pyarrow.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from sluicegate.events.files import stated_attempt
from sluicegate.events.models import FileInfo, FilesWritten, SnapshotRef
from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.capabilities import FileStatus, TableColumns
from sluicegate.lakes.committer import OVERTAKEN, checked_event, is_plain
from sluicegate.lakes.history import (
    Marker,
    NoParent,
    PastSnapshot,
    TableHistory,
    look_for,
    newest_decisions,
    read_history,
)
from sluicegate.lakes.port import (
    PORT_VERSION,
    Answer,
    BadFiles,
    Checked,
    CommitRequest,
    LakeUnavailable,
    OutcomeUnknown,
    Premises,
    Publication,
    Published,
    Refused,
    SchemaMismatch,
    TableRef,
    TableRefused,
    TableReplaced,
    TableState,
)

if TYPE_CHECKING:
    import pyarrow as pa


# Tables of the format that lives in memory, and what others do to them behind a coordinator's back.

SCHEME: Final = "memory://"
FOREIGN_USER: Final = "another-writer"

MarkerKind = Literal["none", "property", "state"]
"""Marker of the newest commit of a commit user, which the tables of a format have.

A property is of the table: a rollback leaves it, and the snapshots that it drops are still there, beside the
history. A state is that of the head: a rollback takes it back.
"""


def by_one() -> int:
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
    rise: Callable[[], int] = field(default=by_one, kw_only=True, repr=False)
    """By how much the position of the next snapshot is higher; for tables whose positions have gaps."""
    markers: MarkerKind = field(default="none", kw_only=True)
    joined: str | None = field(default=None, kw_only=True)
    """Reason for which all writers are one region, as a real table with fixed buckets has it."""
    schema: "pa.Schema | None" = field(default=None, kw_only=True)
    """The columns with their types; None: the types are not known, so no column can be added."""
    schema_id: int = 0
    """Rises with each change of the schema."""
    _generation: int = 0
    _branching: int = 0
    _expired: list[MemorySnapshot] = field(default_factory=list)
    _visible: dict[int, MemorySnapshot] = field(default_factory=dict)
    _beside: dict[int, MemorySnapshot] = field(default_factory=dict)
    """Left by a rollback; in no history."""
    _marked: dict[str, Marker] = field(default_factory=dict)
    """By commit user."""
    _last: int = 0
    """The highest position that there was."""
    _writers: int = 0

    @property
    def location(self) -> str:
        return f"{SCHEME}{self.name}"

    @property
    def identity(self) -> str:
        """Changes with `replace`."""
        return f"{self.name}#{self._generation}"

    @property
    def rollbacks(self) -> int:
        return self._branching

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
    def newest(self) -> PastSnapshot | None:
        """The head, and the commit that made it."""
        return _past(self.head)

    @property
    def files(self) -> list[str]:
        """Every committed path, once per commit that added it; expiry does not remove any."""
        return [path for snapshot in (*self._expired, *self._visible.values()) for path in snapshot.files]

    @property
    def rows(self) -> int:
        return sum(snapshot.rows for snapshot in (*self._expired, *self._visible.values()))

    def at(self, number: int) -> MemorySnapshot | None:
        """Return the snapshot at a position, in the history or beside it; None if none is there."""
        return self._visible.get(number) or self._beside.get(number)

    def marker(self, commit_user: str) -> Marker | None:
        """Return the marker of a commit user, None if there is none."""
        return self._marked.get(commit_user)

    def unmark(self, commit_user: str) -> None:
        """Remove the marker, as an administrator can."""
        self._marked.pop(commit_user, None)

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

    def change(self, schema: "pa.Schema") -> None:
        """Give the table another schema; its files stay as they are."""
        self.schema, self.columns = schema, tuple(schema.names)
        self.schema_id += 1

    def expire(self, keep: int) -> None:
        """Forget all but the newest `keep` snapshots of the history; their files stay in the table."""
        if keep < 1:
            raise ValueError("the newest snapshot never expires: keep at least 1")
        for number in sorted(self._visible)[:-keep]:
            self._expired.append(self._visible.pop(number))

    def expire_beside(self) -> None:
        """Forget the snapshots that a rollback has left."""
        self._beside.clear()

    def restore(self, snapshots: Sequence[MemorySnapshot]) -> None:
        """Put snapshots back that have expired or were rolled back, as from a backup of the metadata."""
        back = {snapshot.id: snapshot for snapshot in snapshots}
        self._expired = [each for each in self._expired if each.id not in back]
        self._beside = {number: each for number, each in self._beside.items() if number not in back}
        self._visible = dict(sorted({**back, **self._visible}.items()))

    def rollback(self, to: int) -> None:
        """Drop every snapshot after this one, with its files; 0 drops the whole history."""
        if to and to not in self._visible:
            raise ValueError(f"{self.name} has no snapshot {to} to roll back to")
        dropped = {number: each for number, each in self._visible.items() if number > to}
        self._visible = {number: kept for number, kept in self._visible.items() if number <= to}
        if to == 0:
            self._expired.clear()
        if self.markers == "property":
            self._beside |= dropped
        if self.markers == "state":
            ours = sorted((each for each in self.history if not each.foreign), key=lambda each: each.decision)
            self._marked = {each.commit_user: self._marker_of(each) for each in ours}
        self._branching += 1

    def replace(self) -> None:
        """Drop the table and make it again under the same name."""
        self._generation += 1
        self._last = 0
        self._expired.clear()
        self._visible.clear()
        self._beside.clear()
        self._marked.clear()

    def foreign_commit(
        self, files: Sequence[str] = (), rows: int = 0, made_by: tuple[str, int] = (FOREIGN_USER, 0)
    ) -> SnapshotRef:
        """Commit as another writer of the table does; `made_by` is its commit user and its own commit id."""
        head = self.head
        snapshot = self._snapshot(head, (*made_by, ""), head.watermark if head else None, files, rows)
        self._visible[snapshot.id] = snapshot
        return snapshot.ref

    def commit(
        self, commit_user: str, request: CommitRequest, events: Sequence[FilesWritten] = ()
    ) -> MemorySnapshot | None:
        """Put a snapshot of these events on the head that the request names; None if that is not the head."""
        if (self.head.ref if self.head else None) != request.head:
            return None
        snapshot = self.make(commit_user, request, events)
        self.put(snapshot)
        return snapshot

    def make(
        self, commit_user: str, request: CommitRequest, events: Sequence[FilesWritten] = ()
    ) -> MemorySnapshot:
        """Return the snapshot of these events on the head, which is not visible yet."""
        head = self.head
        before = head.watermark if head else None
        marks = [mark for mark in (before, request.watermark) if mark is not None]
        files = [file for event in events for file in event.files]
        return self._snapshot(
            head,
            (commit_user, request.decision, request.digest),
            max(marks, default=None),
            [file.path for file in files],
            sum(file.rows for file in files),
        )

    def put(self, snapshot: MemorySnapshot) -> None:
        """Make a snapshot that was made on the head visible, with its mark."""
        self._visible[snapshot.id] = snapshot
        if self.markers != "none":
            self._marked[snapshot.commit_user] = self._marker_of(snapshot)

    def past(self, number: int) -> PastSnapshot | None:
        """Return the commit of the snapshot at a position; None if none is there."""
        return _past(self.at(number))

    def referenced(self) -> set[str]:
        """Every path that any snapshot has, in the history or beside it."""
        return {*self.files, *self.rolled_back_files}

    @property
    def rolled_back_files(self) -> set[str]:
        """Every path of the snapshots that a rollback has left."""
        return {path for each in self._beside.values() for path in each.files}

    def next_writer(self) -> int:
        self._writers += 1
        return self._writers

    def _marker_of(self, made: MemorySnapshot) -> Marker:
        return Marker(made.decision, made.digest, made.ref, certain=self.markers == "state")

    def _snapshot(
        self,
        head: MemorySnapshot | None,
        made_by: tuple[str, int, str],
        watermark: int | None,
        files: Sequence[str],
        rows: int,
    ) -> MemorySnapshot:
        before = head.id if head else 0
        self._last = number = (self._last if self.markers == "property" else before) + self.rise()
        user, decision, digest = made_by
        parent = head.identity if head else self.identity
        content = repr((parent, self._branching, number, made_by, watermark, tuple(files), rows))
        identity = hashlib.sha256(content.encode()).hexdigest()[:32]
        return MemorySnapshot(
            number, identity, user, decision, digest, watermark, tuple(files), rows, parent, before
        )


def _past(snapshot: MemorySnapshot | None) -> PastSnapshot | None:
    if snapshot is None:
        return None
    return PastSnapshot(snapshot.ref, snapshot.commit_user, snapshot.decision, snapshot.digest)


# The writer half of the format that lives in memory.


class MemoryWriter:
    """The writer half: one file per attempt, its rows in the table's `data`."""

    def __init__(self, table: "MemoryTable", event_time_column: str | None, label: str | None) -> None:
        self.location = table.location
        self.schema_id, self.spec_id, self.table_identity = table.schema_id, 0, table.identity
        self.schema_digest = ""
        self._schema = table.schema
        self._table = table
        self._event_time = event_time_column
        number = f"{table.next_writer():05d}"
        self._path = f"part-{number}" if label is None else f"part-{label}-{number}"
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: "pa.RecordBatch") -> None:
        if self._schema is None:
            self._check_names(batch.schema.names)
        if self._event_time is not None and self._event_time not in batch.schema.names:
            raise SchemaMismatch(f"the rows have no event time column {self._event_time}")
        self._batches.append(batch if self._schema is None else _conform(batch, self._schema))

    def _check_names(self, names: Sequence[str]) -> None:
        known = self._table.columns
        if known is not None and tuple(names) != known:
            unknown = sorted(set(names) ^ set(known))
            raise SchemaMismatch(f"the columns {', '.join(unknown)} are only in the rows or in the table")

    def finish(self) -> Iterator[FileInfo]:
        rows = sum(batch.num_rows for batch in self._batches)
        if rows == 0:
            return
        self._table.data[self._path] = self._batches
        lowest, highest = self._event_times()
        yield FileInfo(
            path=self._path,
            size=sum(batch.nbytes for batch in self._batches),
            rows=rows,
            min_event_time=lowest,
            max_event_time=highest,
        )

    def abort(self) -> None:
        self._batches = []

    def _event_times(self) -> tuple[int | None, int | None]:
        if self._event_time is None:
            return None, None
        from sluicegate.lakes.parquet import event_time_range

        ranges = [event_time_range(batch.column(self._event_time)) for batch in self._batches]
        lowest = [low for low, _ in ranges if low is not None]
        highest = [high for _, high in ranges if high is not None]
        return min(lowest, default=None), max(highest, default=None)


def _conform(batch: "pa.RecordBatch", schema: "pa.Schema") -> "pa.RecordBatch":
    from sluicegate.lakes.arrow import conform

    return conform(batch, schema)


def refuse_types(columns: Sequence["pa.Field"]) -> None:
    """Refuse columns of durations, as most formats do. Raises SchemaMismatch."""
    from pyarrow import types

    refused = [f"{column.name} ({column.type})" for column in columns if types.is_duration(column.type)]
    if refused:
        raise SchemaMismatch(
            f"tables in memory have no type for the new columns {', '.join(refused)}; convert them to numbers"
        )


# Upkeep of tables in memory: history, file status, copies.


class MemoryMaintenance:
    """The maintenance of one of this process's tables, by its location."""

    branch = ""
    """Tables in memory have no drafts."""

    def __init__(self, tables: "dict[str, MemoryTable]", location: str) -> None:
        self.location = location
        self._tables = tables

    def history(self) -> TableHistory:
        table = self._table(self.location)
        return read_history(table.identity, table.newest, table.parent)

    def stated_files(self) -> dict[str, int]:
        data = self._table(self.location).data.items()
        named = ((path, batches) for path, batches in data if stated_attempt(path.rpartition("/")[2]))
        return {path: sum(batch.nbytes for batch in batches) for path, batches in named}

    def file_status(self, paths: Sequence[str]) -> dict[str, FileStatus]:
        table = self._table(self.location)
        referenced = table.referenced()
        return {path: _status_of(path, table, referenced) for path in paths}

    def delete_unreferenced(self, path: str) -> FileStatus:
        status = self.file_status([path])[path]
        if status is not FileStatus.UNREFERENCED:
            return status
        del self._table(self.location).data[path]
        return FileStatus.DELETED

    def create_like(self, source: TableRef) -> None:
        if not any(table.location == self.location for table in self._tables.values()):
            model = self._table(source.location)
            name = self.location.removeprefix("memory://")
            self._tables[name] = type(model)(
                name, model.columns, rise=model.rise, markers=model.markers, schema=model.schema
            )

    def examine(self, event: FilesWritten, *, lost: bool = False) -> None:
        source = self._table(event.location)
        if lost and event.schema_id != self._table(self.location).schema_id:
            raise BadFiles(f"the files were written with schema {event.schema_id}, which is another one here")
        for file in event.files:
            if file.path not in source.data:
                raise BadFiles(f"the file {file.path} is not in {event.location}")

    def adopt(self, event: FilesWritten, *, lost: bool = False) -> FilesWritten:
        self.examine(event, lost=lost)
        source, table = self._table(event.location), self._table(self.location)
        for file in event.files:
            table.data[file.path] = list(source.data[file.path])
        return event.model_copy(update={"location": self.location})

    def _table(self, location: str) -> "MemoryTable":
        found = next((table for table in self._tables.values() if table.location == location), None)
        if found is None:
            raise LakeUnavailable(f"no table at {location!r}")
        return found


def _status_of(path: str, table: "MemoryTable", referenced: set[str]) -> FileStatus:
    if path in referenced:
        return FileStatus.REFERENCED
    return FileStatus.UNREFERENCED if path in table.data else FileStatus.GONE


FORMAT: Final = "memory"
FORMAT_VERSION: Final = 1

FaultPoint = Literal["inspect", "ask", "check", "publish.before", "publish.after"]
Faults = Callable[[FaultPoint], Publication | None]
"""Called at each point: returns None to continue, or raises LakeUnavailable.

At `publish.before` it may return Refused or OutcomeUnknown, and nothing becomes visible; at `publish.after`,
where the snapshot is visible, it may return OutcomeUnknown.
"""


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
        head = table.newest
        marker = table.marker(self._user)
        newest = newest_decisions(head, table.parent, table.past, self._user, marker)
        return TableState(table.identity, head.ref if head else None, *newest, joined=table.joined)

    def ask(self, decision: int, digest: str, table: str, recorded: SnapshotRef | None) -> Answer:
        self._faults("ask")
        if table != self._table.identity:
            return TableReplaced(self._table.identity)
        self._identity = table
        there, asked, marker = self._table, (decision, digest), self._table.marker(self._user)
        return look_for(there.newest, there.parent, there.past, self._user, asked, recorded, marker)

    def identity(self) -> str:
        return self._table.identity

    def premises(self) -> Premises:
        return Premises(self._table.identity, repr((self._table.columns, self._table.schema_id)))

    def check(self, files: Sequence[FilesWritten]) -> list[Checked]:
        self._faults("check")
        problem = self._problem(files)
        if problem is not None:
            raise BadFiles(problem)
        return [self._checked(event) for event in files]

    def _checked(self, event: FilesWritten) -> Checked:
        held = sum(len(file.metadata) for file in event.files)
        return checked_event(event, self.premises(), event, held)

    def publish(self, request: CommitRequest) -> Publication:
        try:
            early = self._faults("publish.before")
        except LakeUnavailable as error:
            return Refused(str(error), again=True)
        if isinstance(early, Published):
            raise TypeError("a fault cannot publish; return Refused or OutcomeUnknown")
        if early is not None:
            return early
        if self._identity not in (None, self._table.identity):
            return Refused(cause=Cause(code=CauseCode.OTHER_TABLE), again=True)
        given = list(request.files)
        events = [_event(each) for each in given]
        if any(isinstance(each, Checked) and each.premises != self.premises() for each in given):
            return Refused(cause=Cause(code=CauseCode.CHECKS_OUTDATED), again=True)
        problem = self._problem(events)
        if problem is not None:
            return Refused(problem)
        made = self._table.commit(self._user, request, events)
        if made is None:
            return self._ours(request) or OVERTAKEN
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
            if event.location != self._table.location:
                return f"the files are in {event.location}, but the table is {self._table.location}"
            if (event.format, event.format_version) != (FORMAT, FORMAT_VERSION):
                return f"metadata of {event.format} version {event.format_version}, expected {FORMAT} 1"
            for file in event.files:
                if file.path in seen:
                    return f"the file {file.path} is there twice"
                if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|/", file.path) or not is_plain(file.path):
                    return (
                        f"the path {file.path!r} is not relative to the table, without empty parts and dots"
                    )
                seen.add(file.path)
        return None


def events_of(given: Sequence[FilesWritten | Checked]) -> list[FilesWritten]:
    """Return the events of a commit."""
    return [_event(each) for each in given]


def _event(given: FilesWritten | Checked) -> FilesWritten:
    event = given.content if isinstance(given, Checked) else given
    if not isinstance(event, FilesWritten):
        raise TypeError("the event was checked by a committer of another format")
    return event


class MemoryAdapter:
    """The adapter; its tables are those of this process, by the name in `memory://name`."""

    name = FORMAT
    format_version = FORMAT_VERSION
    port_version = PORT_VERSION

    def __init__(self) -> None:
        self._tables: dict[str, MemoryTable] = {}

    def create(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        *,
        rise: Callable[[], int] = by_one,
        markers: MarkerKind = "none",
        schema: "pa.Schema | None" = None,
    ) -> MemoryTable:
        """Make a table, or a new one in the place of the old. A schema gives the columns types."""
        known = columns if schema is None else schema.names
        named = None if known is None else tuple(known)
        table = MemoryTable(name, named, rise=rise, markers=markers, schema=schema)
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
        label: str | None = None,
    ) -> MemoryWriter:
        return MemoryWriter(self.table(table.location), event_time_column, label)

    def read_columns(self, table: TableRef) -> TableColumns:
        found = self.table(table.location)
        if found.schema is None:
            raise TableRefused(
                f"the columns of {found.location} have no types, so none can be added; make the table with "
                "ADAPTER.create(name, schema=...)"
            )
        return TableColumns(found.schema, f"{found.identity} {found.schema_id}")

    def add_columns(self, table: TableRef, columns: Sequence["pa.Field"], seen: TableColumns) -> bool:

        refuse_types(columns)
        newest = self.read_columns(table)
        if newest.version != seen.version:
            return False
        found, schema = self.table(table.location), newest.schema
        for column in columns:
            schema = schema.append(column)
        found.change(schema)
        return True


ADAPTER: Final = MemoryAdapter()
