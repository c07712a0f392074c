"""Trace context of the commits of one stream, beside the state of the core. Nothing is decided from it."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from sluicegate.coordinator.core.effects import (
    NO_DIGEST,
    Announce,
    Append,
    Ask,
    CheckFiles,
    Effect,
    Publish,
    Result,
    Retried,
)
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.telemetry.tracing import CommitSpans, Finish, Spans
from sluicegate.events.attributes import Header, RawHeader
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import CutAbandoned, CutCommitted, CutDecided, CutReverted
from sluicegate.events.notifications import Committed
from sluicegate.events.tracing import trace_headers, traceparent_of

_MOST: Final = 1_000
"""Checkpoints whose context is remembered."""
_OUTCOMES: Final = 16
"""Outcomes whose context is remembered until they are announced."""
_STEPS: Final[dict[type[Effect], str]] = {
    CheckFiles: "check",
    Ask: "ask",
    Publish: "publish",
    Announce: "notify",
}
_ENDS: Final = (CutCommitted, CutAbandoned, CutReverted)
Place = tuple[str, str, int]
"""Region, incarnation and number of a checkpoint."""


def _ignore(_: str, __: str | None) -> None:
    """Take the result of a step that has no span."""


_NO_STEP: Final = nullcontext(_ignore)


class Traces:
    """Contexts of completed checkpoints, and the spans of the commits that include them."""

    def __init__(self, stream: str, spans: Spans | None) -> None:
        """`spans` is None without the extra `otel`: then contexts only pass through."""
        self._stream = stream
        self._spans = spans
        self._contexts: dict[Place, str] = {}
        self._included: list[Place] = []
        """Checkpoints of the newest outcome."""
        self._current: CommitSpans | None = None
        self._outcomes: dict[int, tuple[list[Header], CommitSpans | None]] = {}

    def arrived(self, envelope: Envelope, headers: Iterable[RawHeader]) -> None:
        """Note the context of a completed checkpoint."""
        place = (envelope.region, envelope.incarnation, envelope.checkpoint)
        if (context := traceparent_of(headers)) is None or place in self._contexts:
            return
        self._contexts[place] = context
        if len(self._contexts) > _MOST:
            del self._contexts[next(iter(self._contexts))]

    def step(self, effect: Effect, log: Log) -> AbstractContextManager[Finish]:
        """Return the span of an effect; without spans, and for effects of no commit, it does nothing."""
        if self._spans is None or (name := _name(effect)) is None:
            return _NO_STEP
        if isinstance(effect, Announce):
            _, announced = self._outcomes.get(_decision(effect) or 0, ([], None))
            return announced.step(name, _decision(effect)) if announced is not None else _NO_STEP
        if self._current is None:
            self._current = self._spans.commit(self._stream, self._parents(log))
        return self._current.step(name, _decision(effect))

    def headers(self, effect: Append | Announce, log: Log) -> list[Header]:
        """Return the headers of the event or notification of an outcome, in this order; others have none."""
        if isinstance(effect, Announce):
            return self._outcomes.get(_decision(effect) or 0, ([], None))[0]
        if not isinstance(effect.body, CutCommitted | CutDecided):
            return []
        parents, current = self._parents(log), self._current
        if current is not None:
            current.link(parents)
        headers = trace_headers(current.context if current is not None else None, parents)
        if isinstance(effect.body, CutCommitted):
            self._included = self._places(log)
            self._outcomes[effect.body.decision] = headers, current
            if len(self._outcomes) > _OUTCOMES:
                self._end(next(iter(self._outcomes)), "superseded")
        return headers

    def finished(self, effect: Effect, result: Result, finish: Finish) -> None:
        """Note the result of an effect whose step ends with it."""
        failure = result.reason if isinstance(result, Retried) else None
        done = failure is None
        finish(type(result).__name__, failure)
        if isinstance(effect, Announce) and done and (decision := _decision(effect)) is not None:
            self._end(decision, "committed")
        if isinstance(effect, Append) and done and isinstance(effect.body, _ENDS):
            ended, self._current = self._current, None
            if isinstance(effect.body, CutCommitted):
                for place in self._included:
                    self._contexts.pop(place, None)
            if ended is not None and not isinstance(effect.body, CutCommitted):
                ended.end("abandoned" if isinstance(effect.body, CutAbandoned) else "reverted")

    def _end(self, decision: int, outcome: str) -> None:
        _, spans = self._outcomes.pop(decision, ([], None))
        if spans is not None:
            spans.end(outcome)

    def _parents(self, log: Log) -> list[str]:
        return [self._contexts[place] for place in self._places(log) if place in self._contexts]

    @staticmethod
    def _places(log: Log) -> list[Place]:
        """Return the checkpoints of the decision; without one, those that are sealed."""
        is_decided = log.state.pending is not None
        found = log.included if is_decided else {name: log.sealed(name) for name in log.pending}
        return [
            (name, each.position.incarnation, each.position.checkpoint)
            for name, sealed in found.items()
            for each in sealed
        ]


def _name(effect: Effect) -> str | None:
    """Return the name of a step of a commit; None for other effects."""
    if isinstance(effect, Append):
        if effect.type is EventType.CUT_DECIDED:
            return "decide"
        return "append" if isinstance(effect.body, _ENDS) else None
    # A question without a digest is about the head of an idle table.
    return None if isinstance(effect, Ask) and effect.digest == NO_DIGEST else _STEPS.get(type(effect))


def _decision(effect: Effect) -> int | None:
    """Return the decision that an effect concerns, if it is known."""
    if isinstance(effect, Announce):
        return effect.due.body.decision if isinstance(effect.due.body, Committed) else None
    if isinstance(effect, Append):
        return (
            effect.body.decision if isinstance(effect.body, CutDecided | CutCommitted | CutReverted) else None
        )
    return effect.decision if isinstance(effect, Ask | Publish) else None
