"""A table format that lives in memory: for users' tests and for the deterministic simulator.

No I/O, threads, clock or randomness. It keeps the port's contract as the real formats do, and it can be
made to fail at every point where they can. Only the writer half needs pyarrow.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from sluicegate.events.models import FilesWritten
from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.checked import Checked, Premises
from sluicegate.lakes.evolution import TableColumns
from sluicegate.lakes.history import look_for, newest_decisions
from sluicegate.lakes.memory_maintenance import MemoryMaintenance
from sluicegate.lakes.memory_table import SCHEME, MarkerKind, MemoryTable, by_one
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
from sluicegate.lakes.twins import is_plain, paths_of

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "memory"
FORMAT_VERSION: Final = 1

FaultPoint = Literal["inspect", "ask", "check", "publish.before", "publish.after"]
Faults = Callable[[FaultPoint], Publication | None]
"""Called at each point: returns None to continue, or raises LakeUnavailable.

At `publish.before` it may return Conflict, NotPublished, Refused or OutcomeUnknown, and nothing becomes
visible; at `publish.after`, where the snapshot is visible, it may return OutcomeUnknown.
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
        return TableState(table.identity, head.ref if head else None, *newest)

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
        paths = paths_of(event)
        return Checked(
            premises=self.premises(),
            files=len(event.files),
            rows=sum(file.rows for file in event.files),
            size=sum(file.size for file in event.files),
            paths=paths,
            content=event,
            held=len(paths) + sum(len(file.metadata) for file in event.files),
        )

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
        given = list(request.files)
        events = [_event(each) for each in given]
        if any(isinstance(each, Checked) and each.premises != self.premises() for each in given):
            return NotPublished(cause=Cause(code=CauseCode.CHECKS_OUTDATED))
        problem = self._problem(events)
        if problem is not None:
            return Refused(problem)
        made = self._table.commit(self._user, request, events)
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
        digest: str | None = None,
    ) -> MemoryWriter:
        return MemoryWriter(self.table(table.location), event_time_column, digest)

    def read_columns(self, table: TableRef) -> TableColumns:
        found = self.table(table.location)
        if found.schema is None:
            raise TableRefused(
                f"the columns of {found.location} have no types, so none can be added; make the table with "
                "ADAPTER.create(name, schema=...)"
            )
        return TableColumns(found.schema, f"{found.identity} {found.schema_id}")

    def add_columns(self, table: TableRef, columns: Sequence["pa.Field"], seen: TableColumns) -> bool:
        from sluicegate.lakes.memory_writer import refuse_types

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
