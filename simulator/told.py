"""I5 to I7 and I10: watermarks, listeners' states, fallbacks, and what the notifications say of them."""

from dataclasses import dataclass, field

from sluicegate.coordinator.core.state import Due
from sluicegate.events.envelope import EventType
from sluicegate.events.models import (
    CutAbandoned,
    CutCommitted,
    CutVoided,
    OpeningAnswered,
    SavepointTaken,
    StreamStalled,
)
from sluicegate.simulator.accounts import Verdict
from sluicegate.simulator.contents import Contents
from sluicegate.simulator.faulting import Faulting
from sluicegate.simulator.reading import Reading
from sluicegate.simulator.violation import Violation
from sluicegate.simulator.world import World


@dataclass
class Told:
    """What was published and announced of cuts."""

    world: World
    reading: Reading
    contents: Contents
    faulting: Faulting
    watermark: int | None = None
    """The highest that a commit carried."""
    _ids: dict[tuple[str, ...], str] = field(default_factory=dict)
    _seen: int = 0

    def committed(self, verdict: Verdict) -> None:
        """I5, I6, I7: check what a commit in the table carries."""
        published = next(
            snapshot.watermark
            for snapshot in reversed(self.world.table.history)
            if not snapshot.foreign and snapshot.decision == verdict.number
        )
        self._check_early(verdict, published)
        shown = max((mark for mark in (verdict.watermark, self.watermark) if mark is not None), default=None)
        if published != shown:
            raise Violation(
                "I5", f"decision {verdict.number} carries the watermark {published}, not {verdict.watermark}"
            )
        self.watermark = published

    def _check_early(self, verdict: Verdict, published: int | None) -> None:
        """I6: no watermark passes what an active region of the assignment has not committed yet."""
        if published is None or published == self.watermark:
            return
        for name in verdict.counted:
            at = verdict.cut.get(name)
            until = self.world.reached[name, at.lineage, at.checkpoint] if at else None
            if until is None or published > until:
                raise Violation(
                    "I6",
                    f"decision {verdict.number} carries the watermark {published}, but {name} "
                    f"has committed what happened until {until} only",
                )

    def look(self) -> None:
        """Check the notifications that are new."""
        for due in self.world.commits[self._seen :]:
            self._check(due)
        self._seen = len(self.world.commits)

    def _check(self, due: Due) -> None:
        match due.body:
            case CutCommitted():
                self._once(due, "commit", str(due.body.decision))
                self._check_commit(due, due.body)
            case CutAbandoned():
                self._once(due, "abandoned", str(due.body.decision), str(due.body.attempt))
                if (due.body.decision, due.body.attempt) not in self.reading.abandoned:
                    raise Violation("I7", f"{due.body} is told, but no full cut was forced")
                self.world.saw("told: abandoned")
            case CutVoided():
                self._once(due, "voided", str(due.body.decision))
                if due.body.decision not in self.contents.voided:
                    raise Violation("I1", f"{due.body} is told, but not in the table")
                self.world.saw("told: voided")
            case SavepointTaken():
                self._check_savepoint(due.body)
            case OpeningAnswered():
                self._once(due, "answer", due.body.opening, due.body.reason)
                self._check_answer(due.body)
            case StreamStalled(region=region):
                self.faulting.told(due.body)
                self.world.saw("told: stalled region" if region else "told: stalled stream")

    def _once(self, due: Due, *what: str) -> None:
        """I10: the id of a notification follows from what it is of, and from nothing else."""
        known = self._ids.setdefault(what, due.id)
        if known != due.id:
            raise Violation("I10", f"{' '.join(what)} was told as {known} and as {due.id}")

    def _check_commit(self, due: Due, body: CutCommitted) -> None:
        verdict = self.reading.valid.get(body.decision)
        if (
            verdict is None
            or body.decision > self.contents.committed
            or verdict.number in self.contents.voided
        ):
            raise Violation("I1", f"decision {body.decision} is told to be committed, but not in the table")
        partial = due.type is EventType.CUT_PARTIALLY_COMMITTED
        if body.fallbacks != verdict.fallbacks or partial != bool(verdict.fallbacks):
            raise Violation(
                "I7", f"decision {body.decision}: {body.fallbacks} fell back, not {verdict.fallbacks}"
            )
        if body.forced != verdict.forced:
            raise Violation("I7", f"decision {body.decision} is told to be forced: {body.forced}")
        if body.cut != verdict.cut:
            raise Violation("I4", f"decision {body.decision} is told as {body.cut}")
        if body.watermark != verdict.watermark:
            raise Violation("I5", f"decision {body.decision} is told with the watermark {body.watermark}")
        if body.listeners != verdict.listeners:
            raise Violation(
                "I5", f"decision {body.decision}: listeners at {body.listeners}, not {verdict.listeners}"
            )

        self.world.saw("told: partially committed" if partial else "told: committed")

    def _check_savepoint(self, body: SavepointTaken) -> None:
        after = self.reading.saved.get(body.name)
        if after is None:
            raise Violation("I7", f"savepoint {body.name} is told, but its cut was never full")
        if after > self.contents.committed or body.drained != (body.name in self.reading.drains):
            raise Violation("I7", f"savepoint {body.name} is told before its commit {after}")
        self.world.saw("told: drained" if body.drained else "told: savepoint")

    def _check_answer(self, body: OpeningAnswered) -> None:
        if body.accepted and body.opening not in self.reading.accepted:
            raise Violation("I2", f"opening {body.opening} is accepted, though the log refuses it")
        if body.accepted and body.start != self.reading.accepted[body.opening]:
            raise Violation("I2", f"opening {body.opening} is told to go on from {body.start}")
        self.world.saw("told: accepted" if body.accepted else "told: refused")
