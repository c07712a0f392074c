"""Defects in what is made of append times."""

from typing import Final

from sluicegate.coordinator.core.clock import Alignment
from tests.simulation.planting import Defect

CLOCKS: Final = (
    Defect(
        "append times are believed at all times",
        Alignment,
        "_seen",
        "now if self._started else ",
        "",
        "timer",
        ("clock jumps", "wrong append time", "silence"),
    ),
    Defect(
        "an abandonment does not begin the wait again",
        Alignment,
        "since",
        "max(min(waits), self._begun)",
        "min(waits)",
        "timer",
        ("silence", "die"),
    ),
    Defect(
        "the wait of one checkpoint counts for the next",
        Alignment,
        "_since",
        " and known[0] == at",
        "",
        "timer",
        ("silence", "die"),
    ),
)
