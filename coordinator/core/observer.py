"""Watches one machine from outside, and tells each change of state of checkpoints, decisions and regions.

For tests and the simulator: it sees only what the shell sees, and the book. A machine that refills its
ledgers after a restart goes through known states again, so nothing is told before it has read what its
record knew.
"""

from typing import NamedTuple

from sluicegate.coordinator.core.decisions import void_digest
from sluicegate.coordinator.core.effects import (
    Announce,
    AppendDecision,
    Appended,
    Ask,
    Effect,
    Failed,
    Publish,
    Result,
    WriteRecord,
)
from sluicegate.coordinator.core.machine import PROBE, StreamMachine
from sluicegate.coordinator.core.transitions import (
    CheckpointIs,
    DecisionIs,
    RegionIs,
    checkpoint_state,
    region_state,
)
from sluicegate.events.models import CutCommitted, CutVoided, Position
from sluicegate.lakes.port import Absent, Conflict, Found, NotPublished, OutcomeUnknown, Published


class Change(NamedTuple):
    """Something went from one state to another."""

    kind: str
    """Checkpoint, decision or region."""
    name: str
    before: str
    after: str


class Observer:
    """The states as of the last look at one machine."""

    def __init__(self, machine: StreamMachine) -> None:
        self._machine = machine
        self._applied = machine.book.applied
        self._checkpoints: dict[tuple[str, Position], CheckpointIs] = {}
        self._regions: dict[str, RegionIs] = {}
        self._decisions: dict[int, DecisionIs] = {}
        self._appended: dict[int, int] = {}
        """Offsets of our own proposals that are not read back yet."""
        for due in machine.outbox.due:
            if isinstance(due.body, CutCommitted | CutVoided):
                self._decisions[due.body.decision] = DecisionIs.RECORDED
        self.look()

    def handed(self, effect: Effect) -> list[Change]:
        """Tell what the handing out of an effect changed."""
        if isinstance(effect, AppendDecision):
            return self._decide(effect.body.decision, DecisionIs.PROPOSED)
        return []

    def finished(self, effect: Effect, result: Result) -> list[Change]:
        """Tell what an outcome changed, after the machine has taken it."""
        changes: list[Change] = []
        match effect, result:
            case AppendDecision(body), Appended(offset):
                self._appended[body.decision] = offset
            case AppendDecision(body), Failed() if self._is_proposed(body.decision):
                changes = self._decide(body.decision, DecisionIs.UNKNOWN)
            case ((Ask() | Publish()), _) if effect.digest != PROBE:
                changes = self._answered(effect, result)
            case (_, Failed()):
                pass
            case WriteRecord(record), _:
                settled = (DecisionIs.COMMITTED, DecisionIs.VOIDED)
                known = [each for each, state in self._decisions.items() if state in settled]
                done = [each for each in known if each <= record.state.committed]
                changes = [one for each in done for one in self._decide(each, DecisionIs.RECORDED)]
            case Announce(due), _ if isinstance(due.body, CutCommitted | CutVoided):
                changes = self._decide(due.body.decision, DecisionIs.ANNOUNCED)
        return changes + self.look()

    def look(self) -> list[Change]:
        """Tell what has changed since the last look."""
        changes = self._look_at_decisions() + self._look_at_checkpoints() + self._look_at_regions()
        return changes if self._machine.position > self._applied else []

    def _look_at_checkpoints(self) -> list[Change]:
        book, changes = self._machine.book, list[Change]()
        for (region, lineage), ledger in book.ledgers.items():
            for number in ledger.checkpoints:
                self._checkpoints.setdefault(
                    (region, Position(lineage=lineage, checkpoint=number)), CheckpointIs.UNKNOWN
                )
        for (region, at), before in self._checkpoints.items():
            after = checkpoint_state(book, region, at, before)
            self._checkpoints[region, at] = after
            if after != before:
                changes.append(Change("checkpoint", f"{region}={at.lineage}:{at.checkpoint}", before, after))
        for done in [key for key, now in self._checkpoints.items() if now is CheckpointIs.COMMITTED]:
            del self._checkpoints[done]
        return changes

    def _look_at_regions(self) -> list[Change]:
        changes = list[Change]()
        for name in self._machine.book.state.regions:
            before = self._regions.get(name, RegionIs.UNOPENED)
            after = self._regions[name] = region_state(self._machine.book, name)
            if after != before:
                changes.append(Change("region", name, before, after))
        return changes

    def _look_at_decisions(self) -> list[Change]:
        machine, changes = self._machine, list[Change]()
        state = machine.book.state
        for decision in state.pending:
            known = self._decisions.get(decision.id, DecisionIs.UNKNOWN)
            if known in (DecisionIs.UNKNOWN, DecisionIs.PROPOSED):
                changes += self._decide(decision.id, DecisionIs.DECIDED)
                known = DecisionIs.DECIDED
            if decision.void is not None and known not in (DecisionIs.VOIDING, DecisionIs.EMPTIED):
                changes += self._decide(decision.id, DecisionIs.VOIDING)
        pending = {decision.id for decision in state.pending}
        voided = {due.body.decision for due in machine.outbox.due if isinstance(due.body, CutVoided)}
        for number, known in list(self._decisions.items()):
            if known is DecisionIs.PROPOSED:
                offset = self._appended.get(number)
                if offset is not None and machine.position > offset:
                    changes += self._decide(number, DecisionIs.UNKNOWN)
            elif number <= state.committed and number not in pending and known in _OPEN:
                over = DecisionIs.VOIDED if number in voided else DecisionIs.COMMITTED
                changes += self._decide(number, over)
        return changes

    def _answered(self, effect: Ask | Publish, result: Result) -> list[Change]:
        machine = self._machine
        pending = machine.book.state.pending
        if isinstance(result, Failed) or not pending or pending[0].id != effect.decision:
            return []
        known = self._decisions.get(effect.decision, DecisionIs.UNKNOWN)
        if isinstance(result, Found | Published) and effect.digest == void_digest(pending[0].digest):
            return self._decide(effect.decision, DecisionIs.EMPTIED)
        if known is DecisionIs.VOIDING:
            return []
        if isinstance(result, Absent):
            return self._decide(effect.decision, DecisionIs.ABSENT)
        if isinstance(result, Conflict | NotPublished | OutcomeUnknown):
            return self._decide(effect.decision, DecisionIs.DECIDED)
        if machine.stall is not None and machine.stall.committing:
            return self._decide(effect.decision, DecisionIs.STALLED)
        return []

    def _is_proposed(self, number: int) -> bool:
        """Whether nobody else's decision of the same number has been read meanwhile."""
        return self._decisions.get(number) is DecisionIs.PROPOSED

    def _decide(self, number: int, after: DecisionIs) -> list[Change]:
        before = self._decisions.get(number, DecisionIs.UNKNOWN)
        self._decisions[number] = after
        self._appended.pop(number, None)
        return [] if before is after else [Change("decision", str(number), before, after)]


_OPEN = (
    DecisionIs.DECIDED,
    DecisionIs.ABSENT,
    DecisionIs.STALLED,
    DecisionIs.VOIDING,
    DecisionIs.EMPTIED,
)
