"""Defects in the product's code, one at a time: each breaks the invariant that it names."""

from typing import Final

from sluicegate.coordinator.core import cuts, decisions, intake, openings, owing
from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.commit import Commit
from sluicegate.coordinator.core.fence import Fence
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.outbox import Outbox
from tests.simulation.planting import Defect

CHECKPOINTS: Final = (
    Defect(
        "a later completion wins", Book, "completion", "if entry.completion is not None:", "if False:", "I1"
    ),
    Defect(
        "unnamed parts are committed",
        decisions,
        "take",
        "for part in entry.named()",
        "for part in entry.parts.values()",
        "I2",
    ),
    Defect("a contradiction is taken for a replay", Book, "_compare", "known != digest", "False", "I2"),
    Defect(
        "lost files are not missed",
        Book,
        "failure",
        'if body.outcome != "lost":',
        "if True:",
        "I2",
        (
            "lose",
            "hint",
        ),
    ),
    Defect("an event does not end idleness", Book, "part", "region.idle = False", "pass", "I5"),
    Defect(
        "a heartbeat of a replaced lineage counts",
        Book,
        "heartbeat",
        "region is None or region.live != envelope.lineage",
        "region is None",
        "I6",
        (
            "zombie",
            "rewind",
        ),
    ),
    Defect(
        "a closing of a replaced lineage counts",
        Book,
        "close",
        "region is None or region.live != envelope.lineage",
        "region is None",
        "I7",
        (
            "zombie",
            "rewind",
        ),
    ),
    Defect(
        "refilling changes the state again", intake, "enter", "if offset <= book.applied:", "if False:", "I3"
    ),
)

LINEAGES: Final = (
    Defect(
        "a rewind behind what is decided is accepted",
        openings,
        "_parent_problem",
        "if later_decided or (decided is not None and decided > named):",
        "if False:",
        "I2",
    ),
    Defect(
        "a lineage's parents do not end",
        openings,
        "_end",
        "book.ledgers[parent.region, parent.lineage].cap(limit)",
        "pass",
        "I1",
    ),
    Defect(
        "a lineage without parents is accepted",
        openings,
        "_lineage_problem",
        "and book.used(name)",
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
        (
            "rewind",
            "bad opening",
        ),
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

CUTS: Final = (
    Defect(
        "a stalled region's move is valid",
        cuts,
        "_move_problem",
        "if region.fault is not None:",
        "if False:",
        "I2",
        (
            "contradict",
            "more coordinators",
        ),
    ),
    Defect(
        "a paused stream decides",
        cuts,
        "refusal",
        "if state.blocked is not None:",
        "if False:",
        "I4",
        (
            "pause",
            "resume",
            "more coordinators",
        ),
    ),
    Defect(
        "a child moves without its parents",
        cuts,
        "_with_parents",
        "kept = dict(moves)",
        "return dict(moves)",
        "I1",
        (
            "resplit",
            "deliver",
        ),
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
        (
            "joined table",
            "crash",
        ),
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
        "I11",
    ),
)

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
    Defect("idle regions hold the watermark back", owing, "_is_active", "region.idle or ", "", "I5"),
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
        "a void keeps the watermark",
        decisions,
        "void",
        "state.watermark = before.watermark",
        "pass",
        "I6",
        (
            "void",
            "idle",
        ),
    ),
    Defect(
        "a void keeps the counters",
        decisions,
        "void",
        '"fallbacks", ',
        "",
        "I7",
        (
            "void",
            "silence",
        ),
    ),
    Defect(
        "a void in the table is not known again",
        Commit,
        "_asked",
        "if digest == self._void and not self._voided",
        "if False",
        "I12",
        (
            "void",
            "crash",
        ),
    ),
)

EFFECTS: Final = (
    Defect(
        "a conflict passes for a commit",
        Commit,
        "_published",
        "self.retries += 1\n            return None",
        "return Resolved(None)",
        "I8",
    ),
    Defect(
        "an absence holds for ever",
        Commit,
        "_published",
        "self._absent = None",
        "pass",
        "I12",
        (
            "unknown, invisible",
            "conflict",
            "foreign",
        ),
    ),
    Defect(
        "the low-water mark forgets pending events",
        Book,
        "low_water",
        "needed += [first for ledger",
        "[first for ledger",
        "I8",
    ),
    Defect(
        "the low-water mark forgets pending decisions",
        Book,
        "low_water",
        "needed += [decision.first_offset",
        "[decision.first_offset",
        "I8",
    ),
    Defect(
        "notifications are not in the record",
        Outbox,
        "done",
        "self._durable = len(record.due)",
        "self.due.clear()",
        "I12",
    ),
    Defect(
        "a record hides unanswered openings",
        StreamMachine,
        "_next_log",
        " and not self._unanswered",
        "",
        "I12",
    ),
    Defect(
        "a failed announcement counts",
        StreamMachine,
        "finished",
        "not isinstance(effect, ReleaseOffsets)",
        'type(effect).__name__ not in ("ReleaseOffsets", "Announce")',
        "I12",
        ("lost append",),
    ),
    Defect(
        "ids of notifications are counted",
        Outbox,
        "_add",
        'f"{self._stream}/{name}"',
        'f"{self._stream}/{name}/{len(self.due)}"',
        "I10",
    ),
    Defect(
        "notifications wait for the view",
        Outbox,
        "next",
        "if self._durable > 0:",
        "if self._durable > 0 and self._view is None:",
        "I10",
    ),
    Defect(
        "nobody waits for the log's end",
        Fence,
        "passed",
        "self._end is not None and position >= self._end",
        "True",
        "I3",
    ),
)

DEFECTS: Final = (*CHECKPOINTS, *LINEAGES, *CUTS, *MARKS, *VOIDS, *EFFECTS)
