"""Times and counts of single checkpoints, for the page. Nothing is decided from them."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sluicegate.coordinator.core.log import Checkpoint, Log, Sealed
from sluicegate.events.envelope import EventType, LogRecord

KEPT: Final = 100
"""Decided checkpoints of each stream. Each takes about 300 bytes."""
MOST_TIMES: Final = 1_000
"""Completions of each stream whose time is kept."""

COUNTED: Final = 10_000
"""Events of a checkpoint whose attempts and bytes are counted at its decision: a count takes milliseconds."""

_Place = tuple[str, str, int]
"""Region, incarnation and number of a checkpoint."""


class CheckpointFacts(NamedTuple):
    """Facts of one checkpoint; times are append times in Unix milliseconds."""

    region: str
    incarnation: str
    checkpoint: int
    named: int | None
    """Number of events that its completion names; None: it is not completed."""
    arrived: int
    attempts: int | None
    """Number of attempts of writers whose events have arrived; None: not counted, as there are too many."""
    files: int
    rows: int
    bytes: int | None
    first_event: int
    last_event: int
    completed: int | None
    """None: it is not completed, or this process has started after that."""
    sealed_at: int | None
    """None: it is not sealed."""
    decision: int | None = None
    decided: int | None = None


class CheckpointHistory:
    """Completions and decisions of one stream that this process has read."""

    def __init__(self) -> None:
        self._completed: dict[_Place, int] = {}
        self._decided: deque[CheckpointFacts] = deque(maxlen=KEPT)

    def applied(self, record: LogRecord, log: Log) -> None:
        """Note a completion or a decision that the log has just applied."""
        envelope = record.envelope
        if envelope.type is EventType.CHECKPOINT_COMPLETED:
            place = envelope.region, envelope.incarnation, envelope.checkpoint
            # The first completion of a checkpoint counts.
            self._completed.setdefault(place, record.time)
            if len(self._completed) > MOST_TIMES:
                del self._completed[next(iter(self._completed))]
        elif envelope.type is EventType.CUT_DECIDED and log.state.pending is not None:
            self._note(log.state.pending.id, log.included, record.time)

    def _note(self, decision: int, included: Mapping[str, Sequence[Sealed]], time: int) -> None:
        if self._decided and self._decided[-1].decision == decision:
            return
        for region, checkpoints in sorted(included.items()):
            for each in checkpoints:
                at = each.position
                found = self.facts(region, at.incarnation, at.checkpoint, each.checkpoint, each.time)
                self._decided.append(found._replace(decision=decision, decided=time))

    def recent(self) -> Iterator[CheckpointFacts]:
        """Yield the decided checkpoints, the oldest first."""
        return iter(self._decided)

    def facts(
        self, region: str, incarnation: str, number: int, found: Checkpoint, sealed_at: int | None = None
    ) -> CheckpointFacts:
        """Return the facts of a checkpoint that no decision includes yet."""
        parts = found.parts.values() if len(found.parts) <= COUNTED else None
        return CheckpointFacts(
            region=region,
            incarnation=incarnation,
            checkpoint=number,
            named=len(set(found.body.events)) if found.body is not None else None,
            arrived=len(found.parts),
            attempts=None if parts is None else len({(part.writer, part.attempt) for part in parts}),
            files=found.files,
            rows=found.rows,
            bytes=None if parts is None else sum(part.bytes for part in parts),
            first_event=found.first_time,
            last_event=found.last_time,
            completed=self._completed.get((region, incarnation, number)) if found.body is not None else None,
            sealed_at=sealed_at,
        )
