"""Starting points for reading a stream's log: its first record, or one of its state records."""

from collections.abc import Sequence
from typing import NamedTuple

from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.stream.continuity import Home, LogRange, last_events, obstacle
from sluicegate.kafka.bodies import BodyFetcher
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.marks import Mark


class Base(NamedTuple):
    """State before the first record that is read."""

    record: StateRecord | None
    """The state record; None if the log has the stream from its start."""
    begin: int
    """The first offset to read."""
    said: str | None = None
    """Limit of the result because of this starting point; None if there is none."""

    @property
    def whole(self) -> bool:
        """True if every decision of the stream is judged again."""
        return self.record is None


async def check_continuity(
    fetcher: BodyFetcher, home: Home, records: Sequence[StateRecord], log: LogRange
) -> None:
    """Refuse a log or a commit user other than that of the records. Raises ReplayRefused, KafkaError."""
    if not records:
        return
    newest = records[-1]
    events = await last_events(fetcher, home.partition, [newest], log)
    # A record that needs deleted events is not a broken log: `bases` reports it.
    reached = newest.model_copy(update={"low_water": max(newest.low_water, log.begin)})
    if (problem := obstacle(reached, home, log, events)) is not None:
        raise ReplayRefused(problem)


def bases(records: Sequence[StateRecord], log: LogRange, start: Mark) -> list[Base]:
    """Return the possible starting points for a mark, the best one first. Raises ReplayRefused."""
    usable = sorted(
        (record for record in records if record.low_water >= log.begin), key=lambda each: each.applied
    )
    found: list[Base] = []
    if start.offset is not None:
        # The newest usable record needs the least reading.
        found += [_behind(record, None) for record in usable[::-1] if record.applied < start.offset][:1]
    if _has_start(records, log):
        found.append(Base(None, log.begin))
    if usable:
        first = usable[0]
        gone = first.state.decided - len(first.state.pending)
        found.append(
            _behind(
                first,
                f"the log begins at offset {log.begin}, behind the stream's start, so this goes on from the "
                f"state record as of offset {first.applied}: "
                + (f"decisions 1 to {gone} are not judged again" if gone else "no decision is left out"),
            )
        )
    if not found:
        raise ReplayRefused(
            f"the log begins at offset {log.begin}, and no state record of the stream goes on from there "
            f"(the newest needs offset {records[-1].low_water if records else 0}): what it decided before "
            "cannot be told. Raise retention.ms of the events topic for the next time"
        )
    return found


def _behind(record: StateRecord, said: str | None) -> Base:
    return Base(record, record.low_water, said)


def _has_start(records: Sequence[StateRecord], log: LogRange) -> bool:
    """True if the log has the stream from its start."""
    if log.begin == 0 or not records:
        return log.begin == 0
    opened = [
        lived.opened_at for region in records[-1].state.regions.values() for lived in region.lineages.values()
    ]
    # The policy may precede the first opening; the course raises LogStartsLate if it is deleted.
    return bool(opened) and min(opened) >= log.begin
