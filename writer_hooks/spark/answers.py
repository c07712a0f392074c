"""Openings of this process whose answers arrive in the background; a refusal ends the query."""

from typing import Final

from sluicegate.writer_hooks.errors import OpeningRefused
from sluicegate.writer_hooks.opening import Opening
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint

_unanswered: Final[dict[str, Opening]] = {}


def expect(lineage: str, opening: Opening) -> None:
    """Keep an opening until its answer arrives."""
    _unanswered[lineage] = opening


def glance(checkpoint: Checkpoint, lineage: str) -> None:
    """Check, without waiting, if the coordinator has refused an incarnation that an earlier run had opened.

    Raises OpeningRefused in that case, after removing the opened marker, so that the next run asks again.
    """
    opening = _unanswered.get(lineage)
    try:
        if opening is not None and opening.glance():
            del _unanswered[lineage]
    except OpeningRefused:
        del _unanswered[lineage]
        checkpoint.forget_opened(lineage)
        raise
