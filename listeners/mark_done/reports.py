"""Marks as others read them: the event of the feed, the JSON of a report, the argument of a function."""

from collections.abc import Mapping
from dataclasses import dataclass

from sluicegate.events.notifications import PartitionDone
from sluicegate.listeners.mark_done.policy import Mark


@dataclass(frozen=True)
class DoneMark:
    """A partition that is done, as a function of the action `custom` gets it."""

    key: str
    """The same for a repetition after a crash, and for no other mark of the stream."""
    stream: str
    table: str
    """URI of the table's folder."""
    partition: str
    """Such as `dt=2013-01-01/hour=05`."""
    values: Mapping[str, str | None]
    start: int | None
    """Times of the rows, in milliseconds since the Unix epoch: from start, before end. None: no time."""
    end: int | None
    decision: int
    """Newest commit that gave it files."""
    snapshot: int | None
    """Snapshot of the table that has all its files."""
    watermark: int | None
    late: bool
    """True if it got files after its period had passed: whoever read it before reads it again."""
    number: int
    """1 for its first mark, as far as is remembered."""


def done_mark(mark: Mark, stream: str, table: str) -> DoneMark:
    """Return a mark for a function."""
    start, end = mark.period if mark.period is not None else (None, None)
    return DoneMark(
        key=mark.key,
        stream=stream,
        table=table,
        partition=mark.partition,
        values=mark.values,
        start=start,
        end=end,
        decision=mark.decision,
        snapshot=mark.snapshot,
        watermark=mark.watermark,
        late=mark.late,
        number=mark.number,
    )


def done_event(mark: Mark, table: str) -> PartitionDone:
    """Return the body of the event of a mark."""
    start, end = mark.period if mark.period is not None else (None, None)
    return PartitionDone(
        table=table,
        partition=mark.partition,
        values=dict(mark.values),
        start=start,
        end=end,
        decision=mark.decision,
        snapshot=mark.snapshot,
        watermark=mark.watermark,
        reason=mark.reason,
        late=mark.late,
        number=mark.number,
    )


def report(mark: Mark, name: str, table: str) -> dict[str, object]:
    """Return the JSON of a report: Paimon's fields without `params`, and those of the event."""
    fields = done_event(mark, table).model_dump(exclude={"table"})
    return {"partition": mark.partition, "table": name, "path": table, **fields}
