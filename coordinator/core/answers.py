"""Answers to registrations, from the moment the registration is read until the answer may be sent."""

from collections.abc import Mapping

from sluicegate.coordinator.core.outbox import Outbox
from sluicegate.events.envelope import LogRecord
from sluicegate.events.models import RegionRegistered
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Problem


class Answers:
    """The answers that wait until log and table were read.

    A state record hides the registrations that it includes from the next reader. So none is written while
    answers wait.
    """

    def __init__(self, outbox: Outbox, refused: Mapping[str, Problem]) -> None:
        self.refused = dict(refused)
        """By region, the refusal of its newest registration; for status."""
        self._outbox = outbox
        self._waiting: list[tuple[LogRecord, RegistrationAnswered]] = []

    @property
    def waiting(self) -> bool:
        """True if an answer waits."""
        return bool(self._waiting)

    def add(self, record: LogRecord, answer: RegistrationAnswered) -> None:
        """Keep the answer to a registration that was judged."""
        self._waiting.append((record, answer))

    def refuse(self, record: LogRecord, problem: Problem) -> None:
        """Keep the answer to a registration that cannot be judged."""
        registration = record.envelope.id
        self.add(record, RegistrationAnswered(registration=registration, accepted=False, problem=problem))

    def send(self, stall: Problem | None) -> None:
        """Send all answers; a stall of the stream turns them into refusals."""
        for record, verdict in self._waiting:
            answer = verdict
            if stall is not None:
                answer = verdict.model_copy(update={"accepted": False, "problem": stall})
            self._outbox.answer(record.envelope, answer)
            if isinstance(record.body, RegionRegistered) and record.body.probe:
                # A probe changes nothing, not even the status.
                continue
            self.refused.pop(record.envelope.region, None)
            if answer.problem is not None:
                self.refused[record.envelope.region] = answer.problem
        self._waiting = []
