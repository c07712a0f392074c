"""Defects in openings and closings."""

from typing import Final

from sluicegate.coordinator.core import openings
from sluicegate.coordinator.core.book import Book
from tests.simulation.planting import Defect

LINEAGES: Final = (
    Defect(
        "a rewind behind what is decided is accepted",
        openings,
        "_parent_problem",
        "if known.decided is not None and known.decided > named:",
        "if False:",
        "I2",
    ),
    Defect(
        "a lineage's parents do not end",
        openings,
        "_begin",
        "book.ledgers[parent.region, parent.lineage].cap(last(parent))",
        "pass",
        "I1",
    ),
    Defect(
        "a lineage without parents is accepted",
        openings,
        "_lineage_problem",
        "and _is_needed(book, name)",
        "and False",
        "I2",
    ),
    Defect(
        "a replaced lineage is accepted again",
        openings,
        "_lineage_problem",
        "if lineage in region.lineages:",
        "if False:",
        "I2",
        ("rewind", "bad opening"),
    ),
    Defect(
        "an assignment may have other regions",
        openings,
        "_assignment_problem",
        "if set(wanted.regions) != set(held.regions):",
        "if False:",
        "I2",
    ),
    Defect(
        "an old assignment is accepted",
        openings,
        "_assignment_problem",
        "if wanted.number < held.number:",
        "if False:",
        "I2",
    ),
    Defect(
        "assignments pile up",
        openings,
        "_depth_problem",
        "if len(waiting) < ",
        "if len(waiting) < 100 + ",
        "I2",
    ),
    Defect(
        "a closed region never leaves",
        Book,
        "leave",
        "region.left = drained and",
        "region.left = False and",
        "I12",
    ),
    Defect(
        "work beyond the end does not reopen",
        Book,
        "_reopen",
        "if region.closed and beyond",
        "if False",
        "I7",
        ("close early",),
    ),
)
