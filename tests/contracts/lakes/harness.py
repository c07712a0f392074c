"""What the contract suite does to a table of any format, behind a committer's back or through it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa
import pytest

from sluicegate.events.models import FilesWritten, SnapshotRef
from sluicegate.lakes.capabilities import CopiesFiles, EvolvesSchema, FindsOrphans, ReadsHistory
from sluicegate.lakes.port import (
    Absent,
    Adapter,
    Answer,
    BadFiles,
    Checked,
    CommitRequest,
    Committer,
    Publication,
    Published,
    TableRef,
)
from tests.lakes.outcomes import is_refused

USER = "stream-a"


class Fault(Enum):
    """What happens to the next publication."""

    AWAY = "the storage fails before anything could be visible"
    LOST = "unknown outcome, and nothing is visible"
    LANDED = "unknown outcome, and the snapshot is visible"


class Killed(BaseException):
    """The end of a process, which nothing catches."""


class Maintenance(ReadsHistory, FindsOrphans, CopiesFiles, Protocol):
    """Maintenance with all capabilities."""


class Lake(Protocol):
    """A fresh table with one integer column `id`."""

    location: str
    marked: bool
    """True if the table has a marker of the newest commit of each commit user (`history.Marker`)."""

    @property
    def adapter(self) -> Adapter: ...

    def committer(self, user: str = USER, fault: Fault | None = None) -> Committer:
        """Open a committer; the fault strikes its first publication."""
        ...

    def maintenance(self, location: str | None = None) -> Maintenance:
        """Open the maintenance of the table, or of another one."""
        ...

    def event(self, ids: Iterable[int]) -> FilesWritten:
        """Write rows with the adapter's writer half."""
        ...

    def ids(self) -> list[int]:
        """All committed rows, in order, as a reader of the table sees them."""
        ...

    def watermark(self) -> int | None: ...

    def foreign(self, ids: Sequence[int] = ()) -> None:
        """Commit as another product does."""
        ...

    def impostor(self, decision: int, ids: Sequence[int]) -> None:
        """Commit as a foreign job does that was given our commit user, under its own id."""
        ...

    def place(self, ref: SnapshotRef) -> int:
        """Return which snapshot of the table's history it is, counted from 1: positions may have gaps."""
        ...

    def lose(self, place: int) -> None:
        """Lose one snapshot's metadata from the middle of the history."""
        ...

    def expire(self, keep: int) -> None: ...

    def rollback(self, to: int) -> None:
        """Drop every snapshot after this one, counted from 1."""
        ...

    def replace(self) -> None: ...

    def drop(self) -> None: ...


class EvolvingLake(Lake, Protocol):
    """A table whose schema changes."""

    @property
    def adapter(self) -> EvolvesSchema: ...

    options: Mapping[str, str] | None
    """Options with which another process opens the table; None: only this process sees it."""

    def write(self, *batches: pa.RecordBatch) -> FilesWritten:
        """Write rows with the adapter's writer half."""
        ...

    def rows(self) -> list[dict[str, Any]]:
        """All committed rows, in the order of `id`, as a reader of the table sees them."""
        ...

    def alter(self, name: str, kind: pa.DataType) -> None:
        """Add a column as another product does."""
        ...

    def schemas(self) -> int:
        """Return how many schemas the table has had."""
        ...

    def data_files(self) -> int:
        """Return how many data files there are, committed or not."""
        ...

    def strand(self, decision: int, event: FilesWritten, meanwhile: Callable[[], None]) -> None:
        """Publish by a process that stands still right before the deciding step, and dies right after it.

        The fake of a format has no such process. `meanwhile` may raise Killed: then it dies before.
        """
        ...


def written(
    adapter: Adapter,
    table: TableRef,
    *batches: pa.RecordBatch,
    event_time: str | None = None,
    label: str | None = None,
    **options: Any,
) -> FilesWritten:
    """Write rows with the writer half, and describe them as a job does."""
    writer = adapter.open_writer(table, event_time, label, **options)
    for batch in batches:
        writer.write(batch)
    return FilesWritten(
        format=adapter.name,
        format_version=adapter.format_version,
        location=writer.location,
        schema_id=writer.schema_id,
        spec_id=writer.spec_id,
        table_identity=writer.table_identity,
        schema_digest=writer.schema_digest,
        files=tuple(writer.finish()),
    )


class Stream:
    """A coordinator's dealings with one table, reduced to what touches the port."""

    def __init__(self, lake: Lake, committer: Committer | None = None) -> None:
        self.lake = lake
        self.committer = committer or lake.committer()
        state = self.committer.inspect()
        self.table = state.identity
        self.recorded = state.head

    def ask(self, decision: int, digest: str | None = None) -> Answer:
        return self.committer.ask(decision, digest or f"digest-{decision}", self.table, self.recorded)

    def head(self, decision: int) -> SnapshotRef | None:
        answer = self.ask(decision)
        assert isinstance(answer, Absent), answer
        return answer.head

    def publish(
        self,
        decision: int,
        head: SnapshotRef | None,
        events: Sequence[FilesWritten | Checked] = (),
        watermark: int | None = None,
    ) -> Publication:
        request = CommitRequest(decision, f"digest-{decision}", head, watermark, events)
        return self.committer.publish(request)

    def add(
        self, decision: int, *events: FilesWritten, watermark: int | None = None, record: bool = True
    ) -> SnapshotRef:
        """Check files, ask and publish: a decision for which nothing goes wrong."""
        checked = self.committer.check(events)
        outcome = self.publish(decision, self.head(decision), checked, watermark)
        assert isinstance(outcome, Published), outcome
        if record:
            self.recorded = outcome.snapshot
        return outcome.snapshot

    def refuses(self, event: FilesWritten, words: str | None = None) -> None:
        """Require that the check refuses files, and that their publication is refused, too."""
        with pytest.raises(BadFiles, match=words):
            self.committer.check([event])
        assert is_refused(self.publish(1, self.head(1), [event]))

    def commit(
        self, decision: int, ids: Iterable[int] = (), watermark: int | None = None, record: bool = True
    ) -> SnapshotRef:
        """Write rows, and add them. Without any, the commit is empty."""
        rows = list(ids)
        events = [self.lake.event(rows)] if rows else []
        return self.add(decision, *events, watermark=watermark, record=record)


def with_commits(lake: Lake, decisions: int) -> Stream:
    """Return a stream that has committed so many decisions, each with a row of its number."""
    stream = Stream(lake)
    for decision in range(1, decisions + 1):
        stream.commit(decision, [decision])
    return stream
