"""Seeded schedules hold every invariant, and planted defects are seen."""

import os

import pytest

from sluicegate.coordinator.core import cuts, openings
from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.commit import Commit
from sluicegate.coordinator.core.ledger import LineageLedger
from sluicegate.coordinator.core.outbox import Outbox
from sluicegate.simulator import Schedule, Violation
from tests.simulation.planting import Defect, planted

STEPS = 400
FRESH = int(os.environ.get("SLUICEGATE_TEST_SEEDS", "1500"))
SEEN_WITHIN = 1500


def test_fresh_seeds_hold_every_invariant() -> None:
    first = int.from_bytes(os.urandom(4), "big")
    coverage: dict[str, int] = {}
    for seed in range(first, first + FRESH):
        try:
            outcome = Schedule(seed).run(STEPS)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        for what, times in outcome.coverage.items():
            coverage[what] = coverage.get(what, 0) + times
    expected = {
        "trouble: replay",
        "trouble: zombie",
        "trouble: rewind",
        "trouble: amnesia",
        "trouble: restart",
        "driver: late event",
        "driver: refused",
        "crash after Publish",
        "crash after Ask",
        "crash after WriteRecord",
        "crash after Announce",
        "crash after AppendDecision",
        "fault at publish.before",
        "fault at publish.after",
        "foreign commit",
        "view wiped",
    }
    assert expected <= coverage.keys(), f"never happened: {sorted(expected - coverage.keys())}"


def test_a_seed_replays_exactly() -> None:
    assert Schedule(7).run(STEPS) == Schedule(7).run(STEPS)


DEFECTS = [
    Defect(
        "a later completion wins",
        Book,
        "completion",
        "if entry.completion is not None:",
        "if False:",
        ("I1", "I2", "I4"),
    ),
    Defect(
        "sealed without all events",
        LineageLedger,
        "advance",
        "if not self.checkpoints[successor].whole:",
        "if self.checkpoints[successor].completion is None:",
        ("I1", "crash"),
    ),
    Defect(
        "unnamed parts are committed",
        cuts,
        "take",
        "for part in entry.named()",
        "for part in entry.parts.values()",
        ("I1", "I2"),
    ),
    Defect(
        "an absent answer is not asked for",
        Commit,
        "_published",
        "self._absent = None",
        "pass",
        ("I1", "I2", "I3", "I12"),
    ),
    Defect(
        "the low-water mark forgets pending events",
        Book,
        "low_water",
        "needed += [first for ledger",
        "[first for ledger",
        ("I8",),
    ),
    Defect(
        "idle regions count for the watermark",
        Book,
        "active",
        "regions[name].idle or regions[name].left",
        "regions[name].left",
        ("I5", "I12"),
    ),
    Defect(
        "a rewind behind what is decided is accepted",
        openings,
        "_parent_problem",
        "if later_decided or (decided is not None and decided > named):",
        "if False:",
        ("I1", "I2", "I12", "crash"),
    ),
    Defect(
        "a lineage's parents do not end",
        openings,
        "_begin",
        "book.ledgers[envelope.region, parent.lineage].cap(limit)",
        "pass",
        ("I1", "I2", "I12", "crash"),
    ),
    Defect(
        "notifications are not in the record",
        Outbox,
        "done",
        "self._durable = len(record.due)",
        "self.due.clear()",
        ("I12", "crash"),
    ),
]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_planted_defects_are_seen(defect: Defect) -> None:
    with planted(defect):
        for seed in range(SEEN_WITHIN):
            seen = _broken(seed)
            if seen is not None:
                assert seen.partition(":")[0] in defect.breaks, f"seed {seed}: {seen}"
                return
    raise AssertionError(f"{defect.name}: not seen within {SEEN_WITHIN} seeds")


def _broken(seed: int) -> str | None:
    """What a seed finds: the invariant, or that the core itself gave up; None if nothing."""
    try:
        Schedule(seed).run(STEPS)
    except Violation as violation:
        return str(violation)
    except Exception as error:
        return f"crash: {error!r}"
    return None
