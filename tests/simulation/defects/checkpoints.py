"""Defects in what is said of checkpoints."""

from typing import Final

from sluicegate.coordinator.core import decisions, intake
from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.ledger import Checkpoint
from sluicegate.events import naming
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
    Defect(
        "names of files are not compared",
        naming,
        "names_problem",
        "if start == 0 or not name.startswith(wanted, start):",
        "if False:",
        "I2",
        ("old file",),
    ),
    Defect(
        "two attempts of a writer count",
        Checkpoint,
        "doubled",
        "if attempts.setdefault(part.writer, part.attempt) != part.attempt:",
        "if False:",
        "I2",
        ("both attempts",),
    ),
    Defect("a contradiction is taken for a replay", Book, "_compare", "known != digest", "False", "I2"),
    Defect(
        "lost files are not missed",
        Book,
        "failure",
        'if body.outcome != "lost":',
        "if True:",
        "I2",
        ("lose", "hint"),
    ),
    Defect(
        "an event does not end idleness",
        Book,
        "_worked",
        "if region.idle:",
        "if False:",
        "I6",
        ("idle", "zombie"),
    ),
    Defect(
        "a heartbeat of a replaced lineage counts",
        Book,
        "heartbeat",
        "region is None or region.live != envelope.lineage",
        "region is None",
        "I6",
        ("zombie", "rewind"),
    ),
    Defect(
        "a closing of a replaced lineage counts",
        Book,
        "close",
        "region is None or region.live != envelope.lineage",
        "region is None",
        "I7",
        ("zombie", "rewind"),
    ),
    Defect(
        "refilling changes the state again",
        intake,
        "enter",
        "if offset <= book.applied:",
        "if False:",
        "I3",
        ("old record", "crash"),
    ),
    Defect(
        "the recorded digest of a region's position stays the first one",
        decisions,
        "_move",
        "region.ref_digest = said.source_digest",
        "region.ref_digest = region.ref_digest or said.source_digest",
        "fault",
        ("replay", "restart"),
    ),
)
