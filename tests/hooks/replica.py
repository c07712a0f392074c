"""The coordinator's verdicts without a coordinator: the real fold of the log judges the registrations."""

import tempfile
import threading
from pathlib import Path

from sluicegate.coordinator.core import cuts, undo
from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import RegionPhase
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import (
    Body,
    CutCommitted,
    CutDecided,
    CutReverted,
    Position,
    StreamCommand,
    StreamPolicy,
)
from sluicegate.events.notifications import IncarnationsEnded, RegistrationAnswered


class Judges:
    """One replica for each stream, with a policy that allows partial cuts."""

    def __init__(self) -> None:
        self._replicas: dict[str, Replica] = {}
        self._lock = threading.Lock()

    def replica(self, stream: str) -> Replica:
        """Return the replica of a stream; it begins with a policy."""
        if stream not in self._replicas:
            self._replicas[stream] = Replica(stream, 0)
            places = (Path(tempfile.gettempdir()).as_uri(),)
            policy = StreamPolicy(number=1, partial="allow", allowed_locations=places)
            self._append(stream, EventType.STREAM_POLICY, policy)
        return self._replicas[stream]

    def apply(self, envelope: Envelope, body: Body | None) -> RegistrationAnswered | None:
        """Apply an event of the log; return the answer if it is a registration."""
        with self._lock:
            answer = self._apply(envelope, body).answer
        if answer is None or answer.problem is None:
            return answer
        return answer.model_copy(update={"reason": format_problem(answer.problem, envelope.stream)})

    def commit(self, stream: str) -> CutDecided:
        """Decide and commit everything that is sealed; regions without sealed work fall back."""
        made = self.decide(stream)
        self.resolve(stream, made)
        return made

    def resolve(self, stream: str, made: CutDecided) -> None:
        """Commit a decision."""
        with self._lock:
            outcome = CutCommitted(decision=made.decision, digest=made.digest, table="t")
            assert self._append(stream, EventType.CUT_COMMITTED, outcome).ignored is None

    def decide(self, stream: str) -> CutDecided:
        """Decide everything that is sealed, without an outcome."""
        with self._lock:
            made = cuts.choose(self.replica(stream).log, waited=cuts.Waited(True, True, True))
            assert isinstance(made, CutDecided), made
            assert self._append(stream, EventType.CUT_DECIDED, made).ignored is None
            return made

    def adopt(self, stream: str) -> None:
        """Continue from the committed positions alone, as after an adoption: no incarnation is known."""
        with self._lock:
            before = self.replica(stream)
            state = before.state.model_copy(deep=True)
            for region in state.regions.values():
                region.phase, region.incarnation, region.run = RegionPhase.WAITING, None, None
            self._replicas[stream] = Replica(stream, 0, state, before.applied)

    def revert(self, stream: str, region: str) -> None:
        """Give the unresolved decision up."""
        pending = self.replica(stream).state.unresolved
        assert pending is not None
        self.order(stream, StreamCommand(command="revert", decision=pending.id, region=region))
        with self._lock:
            digest = undo.revert_digest(pending) or ""
            body = CutReverted(decision=pending.id, digest=digest, table="t")
            assert self._append(stream, EventType.CUT_REVERTED, body).ignored is None

    def order(self, stream: str, command: StreamCommand) -> IncarnationsEnded:
        """Apply an operator's order; return what the coordinator announces about it."""
        with self._lock:
            applied = self._append(stream, EventType.STREAM_COMMAND, command)
        assert applied.ignored is None
        return IncarnationsEnded(incarnations=dict(applied.ended))

    def position(self, stream: str, region: str) -> Position | None:
        """Return the decided position of a region."""
        with self._lock:
            return self.replica(stream).log.state.region(region).position

    def live(self, stream: str, region: str) -> str | None:
        """Return the live incarnation of a region."""
        with self._lock:
            found = self.replica(stream).state.regions.get(region)
            return found.live_incarnation if found is not None else None

    def _append(self, stream: str, kind: EventType, body: Body) -> Applied:
        return self._apply(Envelope(f"{kind}-{self.replica(stream).applied}", kind, stream), body)

    def _apply(self, envelope: Envelope, body: Body | None) -> Applied:
        replica = self.replica(envelope.stream)
        logged = None if envelope.type is EventType.FILES_WRITTEN else body
        return replica.apply(LogRecord(replica.applied + 1, 0, envelope, logged))
