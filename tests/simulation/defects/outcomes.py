"""Defects in what a commit carries, and what is told of it."""

from typing import Final

from sluicegate.coordinator.core import decisions, owing
from sluicegate.coordinator.core.outbox import Outbox
from tests.simulation.planting import Defect

MARKS: Final = (
    Defect(
        "the watermark is the highest of the regions'",
        decisions,
        "_watermark",
        "lowest = min(known)",
        "lowest = max(known)",
        "I6",
    ),
    Defect(
        "the watermark does not wait for a region's first commit",
        decisions,
        "_watermark",
        "if not names or len(known) < len(names):",
        "if not known:",
        "I6",
    ),
    Defect("the watermark may fall", decisions, "_watermark", "max(state.watermark, lowest)", "lowest", "I5"),
    Defect("idle regions hold the watermark back", owing, "_is_active", "region.resting or ", "", "I5"),
    Defect(
        "a region is idle in the middle of a batch",
        owing,
        "_is_active",
        "region.resting",
        "region.idle",
        "I6",
        ("idle in a batch",),
    ),
    Defect(
        "a region's watermark falls within a lineage",
        decisions,
        "_move",
        "region.watermark = lived.highest",
        "region.watermark = said.watermark",
        "I5",
    ),
    Defect(
        "a region's watermark never falls, not even with a new lineage",
        decisions,
        "_move",
        "region.watermark = lived.highest",
        "region.watermark = max(lived.highest, region.watermark or 0)",
        "I5",
        ("rewind", "accept"),
    ),
    Defect(
        "listeners forget what they knew",
        decisions,
        "_move",
        "{**region.listeners, **said.listeners}",
        "dict(said.listeners)",
        "I5",
    ),
    Defect(
        "a commit is told without its watermark",
        Outbox,
        "committed",
        "watermark=decision.watermark",
        "watermark=None",
        "I5",
    ),
    Defect(
        "a commit is told without its fallbacks",
        Outbox,
        "committed",
        "fallbacks=decision.fallbacks",
        "fallbacks={}",
        "I7",
    ),
)
