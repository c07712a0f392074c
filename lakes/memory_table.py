"""Tables of the format that lives in memory, and what others do to them behind a coordinator's back."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.history import Marker, NoParent, PastSnapshot
from sluicegate.lakes.port import CommitRequest, SnapshotRef

if TYPE_CHECKING:
    import pyarrow as pa

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
        head = self.head
        if (head.ref if head else None) != request.head:
            return None
        before = head.watermark if head else None
        marks = [mark for mark in (before, request.watermark) if mark is not None]
        files = [file for event in events for file in event.files]
        snapshot = self._snapshot(
            head,
            (commit_user, request.decision, request.digest),
            max(marks, default=None),
            [file.path for file in files],
            sum(file.rows for file in files),
        )
        self._visible[snapshot.id] = snapshot
        if self.markers != "none":
            self._marked[commit_user] = self._marker_of(snapshot)
        return snapshot

    def past(self, number: int) -> PastSnapshot | None:
        """Return the commit of the snapshot at a position; None if none is there."""
        return _past(self.at(number))

    def referenced(self) -> set[str]:
        """Every path that any snapshot has, in the history or beside it."""
        return {*self.files, *(path for each in self._beside.values() for path in each.files)}

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
