"""Defects in the choice and the judgement of cuts."""

from typing import Final

from sluicegate.coordinator.core import cuts, decisions, owing
from sluicegate.coordinator.core.book import Book
from tests.simulation.planting import Defect

CUTS: Final = (
    Defect(
        "a stalled region's move is valid",
        cuts,
        "_move_problem",
        "if region.fault is not None:",
        "if False:",
        "I2",
        ("contradict", "more coordinators"),
    ),
    Defect(
        "a paused stream decides",
        cuts,
        "refusal",
        "if state.blocked is not None:",
        "if False:",
        "I4",
        ("pause", "resume", "more coordinators"),
    ),
    Defect(
        "a child moves without its parents",
        cuts,
        "_with_parents",
        "kept = dict(moves)",
        "return dict(moves)",
        "I1",
        ("resplit", "deliver"),
    ),
    Defect(
        "a new assignment moves early",
        cuts,
        "_in_force",
        "if state.next is None or state.assignment is None:",
        "if True:",
        "I7",
    ),
    Defect("a final checkpoint has no mark", owing, "finals", "if region.closed and ", "if False and ", "I7"),
    Defect(
        "partial cuts where they are never allowed",
        owing,
        "may_be_partial",
        'policy.partial == "allow" and ',
        "",
        "I7",
    ),
    Defect(
        "joined regions fall back",
        owing,
        "may_be_partial",
        " and joined(book) is None",
        "",
        "I7",
        ("joined table", "crash"),
    ),
    Defect("one fallback too many", owing, "exhausted", ".fallbacks >= most", ".fallbacks > most", "I7"),
    Defect("fallbacks are not counted", decisions, "_count", ".fallbacks += 1", ".fallbacks += 0", "I7"),
    Defect(
        "anybody's move ends all fallbacks",
        decisions,
        "_count",
        "for name in moves:",
        "for name in regions:",
        "I7",
    ),
    Defect("an abandonment resets nothing", decisions, "abandon", "region.fallbacks = 0", "pass", "I7"),
    Defect(
        "a savepoint is taken by any full cut", decisions, "take", "and not unreached(book, moves)", "", "I7"
    ),
    Defect(
        "what a region says after a fallback is lost",
        Book,
        "part",
        "if entry is None:",
        "if entry is None or self.state.regions[envelope.region].fallbacks:",
        "I8",
    ),
)
