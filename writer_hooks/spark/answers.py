"""Openings of this process that nobody waits for, and whose refusal ends the query once it is known."""

from typing import Final

from sluicegate.writer_hooks.errors import OpeningRefused
from sluicegate.writer_hooks.opening import Opening
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint

_unanswered: Final[dict[str, Opening]] = {}


def expect(lineage: str, opening: Opening) -> None:
    """Keep an opening until its answer is there."""
    _unanswered[lineage] = opening


def glance(checkpoint: Checkpoint, lineage: str) -> None:
    """Look whether the coordinator has meanwhile refused what it had accepted in an earlier run.

    Raises OpeningRefused then, and lets the next run ask again.
    """
    opening = _unanswered.get(lineage)
    try:
        if opening is not None and opening.glance():
            del _unanswered[lineage]
    except OpeningRefused:
        del _unanswered[lineage]
        checkpoint.forget_opened(lineage)
        raise
