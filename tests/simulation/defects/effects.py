"""Defects in the order of effects, and the meaning of their outcomes."""

from typing import Final

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.commit import Commit
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.outbox import Outbox
from sluicegate.coordinator.core.standing import Standing
from tests.simulation.planting import Defect

EFFECTS: Final = (
    Defect(
        "a rolled back table is sound again when what shows it expires",
        Standing,
        "recall",
        "if _is_contradicted(state):",
        "if False:",
        "I1",
        ("table rolled back", "expire", "resume"),
    ),
    Defect(
        "a conflict passes for a commit",
        Commit,
        "_published",
        "self.retries += 1\n            return None",
        "return Resolved(None)",
        "I8",
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
        " and not self._answers.due",
        "",
        "I12",
    ),
    Defect(
        "a failed announcement counts",
        StreamMachine,
        "finished",
        "if isinstance(result, Failed):",
        'if isinstance(result, Failed) and type(effect).__name__ != "Announce":',
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
)
