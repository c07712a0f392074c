"""Defects in what is taken for a stall, and what is told of it."""

from typing import Final

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.commit import Commit
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.outbox import Outbox
from sluicegate.coordinator.core.overdue import Overdue
from sluicegate.coordinator.core.proposal import Proposal
from tests.simulation.planting import Defect

FAULTS: Final = (
    Defect(
        "a decision is taken for committed when the table has the next one",
        Commit,
        "_asked",
        "case Ahead(_, made) if made is not None and _is_decided(state, *made):",
        "case Ahead(newest, made) if newest <= state.decided + 1:",
        "I1",
        ("another deployment",),
    ),
    Defect(
        "a replay is taken for a contradiction",
        Book,
        "_compare",
        "known is not None and known != digest",
        "known is not None",
        "fault",
        ("replay",),
    ),
    Defect(
        "a closing before what is committed is not noted",
        Book,
        "close",
        "(final is None or final < ref.checkpoint)",
        "False",
        "fault",
        ("close early",),
    ),
    Defect(
        "a stalled region is not told of",
        StreamMachine,
        "_waits",
        "return self.book.waits(region) or self._overdue.reason(region)",
        "return self._overdue.reason(region)",
        "I12",
        ("contradict",),
    ),
    Defect(
        "every stall is told of the first region too",
        Outbox,
        "stalled",
        "if reason is None:",
        'reason = reason or self._told.get("r1") if region == "r0" else reason\n    if reason is None:',
        "fault",
        ("contradict",),
    ),
    Defect(
        "a gap is told at once",
        Overdue,
        "look",
        "now - since >= self._after",
        "True",
        "fault",
        ("out of order",),
    ),
    Defect(
        "nobody looks where an event lies",
        Overdue,
        "_find",
        "(place := self._place_of(event)) is not None",
        "(place := None) is not None",
        "fault",
        ("misplace",),
    ),
    Defect(
        "who begins to work before the decision falls back at once",
        Proposal,
        "next_entry",
        "not cuts.left_behind(self._book, self._candidate) <= self._late",
        "False",
        "timer",
        ("idle", "resplit", "remove"),
    ),
)
