"""Defects in giving decisions up."""

from typing import Final

from sluicegate.coordinator.core import decisions
from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.commit import Commit
from tests.simulation.planting import Defect

VOIDS: Final = (
    Defect("a void brings the files", Commit, "next", "offsets=() if void else", "offsets=", "I1", ("void",)),
    Defect(
        "a voided checkpoint is not held out",
        Book,
        "hold_out",
        "if region is None or region.live is None:",
        "if True:",
        "I2",
        ("void",),
    ),
    Defect("a void does not put back", decisions, "void", "book.put_back()", "pass", "I8", ("void",)),
    Defect(
        "a void brings back what the cut passed by",
        Book,
        "put_back",
        "ledger.forget_passed()",
        "pass",
        "I8",
        ("void", "skip", "retention"),
    ),
    Defect(
        "a void keeps the watermark",
        decisions,
        "void",
        "state.watermark = before.watermark",
        "pass",
        "I6",
        ("void", "idle"),
    ),
    Defect("a void keeps the counters", decisions, "void", ', "fallbacks"', "", "I7", ("void", "silence")),
    Defect(
        "a void in the table is not known again",
        Commit,
        "_asked",
        "if digest == self._void and not self._voided",
        "if False",
        "I12",
        ("void", "crash"),
    ),
)
