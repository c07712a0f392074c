"""Checkpoints of the streams on the page: those that wait, and the newest ones of decisions."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from sluicegate.coordinator.stream.checkpoints import CheckpointHistory
from sluicegate.coordinator.web.model import Cut, DecidedCheckpoint, PendingCheckpoint

if TYPE_CHECKING:
    from sluicegate.coordinator.stream.runner import StreamRunner

MOST_MISSING: Final = 10
MOST_CHECKPOINTS: Final = 1_000


def pending_checkpoints(runner: "StreamRunner") -> tuple[PendingCheckpoint, ...]:
    """Return the checkpoints that no decision includes, by region and number."""
    found = []
    for region, pending in sorted(runner.machine.replica.log.pending.items()):
        sealed = {each.position.checkpoint: each.time for each in pending.sealed}
        for number, each in sorted(pending.checkpoints.items()):
            facts = runner.checkpoints.facts(region, pending.incarnation, number, each, sealed.get(number))
            found.append(
                PendingCheckpoint(
                    **facts._asdict(),
                    missing=tuple(sorted(each.missing)[:MOST_MISSING]),
                    missing_count=len(each.missing),
                    sealed=number in sealed,
                )
            )
    return tuple(found[:MOST_CHECKPOINTS])


def decided_checkpoints(history: CheckpointHistory, cuts: Mapping[int, Cut]) -> Iterator[DecidedCheckpoint]:
    """Yield the newest decided checkpoints, the oldest first; `cuts` are the committed ones by decision."""
    for each in history.recent():
        cut = cuts.get(each.decision) if each.decision is not None else None
        visible, snapshot = (cut.visible, cut.snapshot) if cut is not None else (None, None)
        yield DecidedCheckpoint.model_validate({**each._asdict(), "visible": visible, "snapshot": snapshot})
