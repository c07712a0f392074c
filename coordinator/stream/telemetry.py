"""Logs and metrics of one stream, for its operators."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

import structlog
from aiokafka import ConsumerRecord

from sluicegate.coordinator.core import effects
from sluicegate.coordinator.core.effects import (
    NO_DIGEST,
    OPTIONAL,
    Announce,
    Append,
    Ask,
    CheckFiles,
    Effect,
    Publish,
    Result,
    failure_of,
)
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.state import Decision
from sluicegate.coordinator.core.state_record import Condition, Due
from sluicegate.coordinator.observe import view
from sluicegate.coordinator.observe.messages import format_problem, iso_time
from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.coordinator.stream.summary import is_forced
from sluicegate.events.encoding import trace_headers, traceparent_of
from sluicegate.events.envelope import Envelope, EventType, Header, LogRecord, RawHeader
from sluicegate.events.models import (
    CutAbandoned,
    CutCommitted,
    CutDecided,
    CutReverted,
    RegionRegistered,
    StreamCommand,
)
from sluicegate.events.notifications import Committed, RegistrationAnswered
from sluicegate.events.orders import has_order, is_note, read_order
from sluicegate.events.problems import Code, Problem
from sluicegate.events.signing import Signatures

if TYPE_CHECKING:
    from sluicegate.coordinator.observe.spans import Finish, OtelCommit, OtelSpans

log = structlog.get_logger(__name__)

PATIENCE: Final = 60.0
"""Seconds that completed work may wait before a warning, and between two warnings."""
_BEGINS: Final = {
    "stall": (logging.ERROR, "stalled"),
    "pause": (logging.INFO, "paused"),
    "retry": (logging.WARNING, "effect failed, will be tried again"),
}
_ENDS: Final = {"stall": "stall ended", "pause": "resumed", "retry": "effect succeeded again"}


class StreamTelemetry:
    """Logs state changes, skipping those that a previous owner of the partition already logged."""

    def __init__(self, stream: str, metrics: Metrics, due: Iterable[Due]) -> None:
        """Make the telemetry; `due` are notifications that a previous owner recorded, and possibly sent."""
        self._stream = stream
        self._metrics = metrics
        self._inherited = {each.id for each in due}
        """Ids of notifications and registrations that a previous owner may have logged."""
        self._probes: set[str] = set()
        """Ids of probes: their refusal is an ordinary answer."""
        self._asked_at: dict[int, float] = {}
        self._failing: dict[str, float] = {}
        """By kind of a retried effect, the time since when it fails."""
        self._current: Sequence[tuple[str, Problem]] = []
        self._shown: dict[str, Condition] = {}
        """By identity of the problem, the conditions that were logged and last."""
        self._waits_logged: int | None = None
        self._counted_at = time.monotonic()
        """Time until which stalls are counted."""
        self._log = log.bind(stream=stream)

    # --- records ----------------------------------------------------------------------------------

    def applied(self, record: LogRecord, ignored: Problem | None, *, inherited: bool) -> None:
        """Log and count an event that is ignored; `inherited`: a previous owner may have logged it."""
        kind = record.envelope.type
        if kind is EventType.REGION_REGISTERED:
            if isinstance(record.body, RegionRegistered) and record.body.probe:
                self._probes.add(record.envelope.id)
                return
            if inherited:
                self._inherited.add(record.envelope.id)
            if ignored is not None:
                self._metrics.refusals.add(1, self._stream, ignored.code.value)
            # The answer is logged when it is sent.
            return
        if ignored is None or is_note(record.body):
            return
        if kind in (EventType.CUT_DECIDED, EventType.CUT_COMMITTED, EventType.CUT_REVERTED):
            self._metrics.refusals.add(1, self._stream, ignored.code.value)
        self._log.info(
            "event without effect",
            type=kind,
            offset=record.offset,
            code=ignored.code,
            reason=format_problem(ignored, self._stream),
        )

    # --- effects ----------------------------------------------------------------------------------

    def effect(self, effect: Effect, result: Result) -> None:
        """Count an effect that will be retried."""
        kind = effect.kind
        if failure_of(result) is None:
            self._failing.pop(kind, None)
            return
        self._failing.setdefault(kind, time.monotonic())
        self._metrics.effect_failures.add(1, self._stream, kind)

    def failing(self, seconds: float) -> list[str]:
        """Return the kinds of effects that have failed for so many seconds, without the optional ones."""
        since = time.monotonic() - seconds
        return [kind for kind, at in self._failing.items() if at <= since and kind not in OPTIONAL]

    def asked(self, effect: Ask) -> None:
        """Note the start of a commit; a question about the head of an idle table is none."""
        if effect.digest != effects.NO_DIGEST:
            self._asked_at.setdefault(effect.decision, time.monotonic())

    def settled(self) -> None:
        """Note that no commit is running."""
        self._asked_at.clear()

    def committed(self, entries: Log, decision: Decision, rows: int, size: int) -> None:
        """Log and count a commit of this process that became visible; `size` in bytes."""
        included = [each for found in entries.taken_checkpoints.values() for each in found]
        last = max((each.time for each in included), default=None)
        # The broker's clock may be ahead of this host's.
        delay = max(0.0, time.time() - last / 1000) if last is not None else None
        started = self._asked_at.pop(decision.id, None)
        if started is not None:
            self._metrics.commit_seconds.observe(time.monotonic() - started, self._stream)
        outcome = _outcome(entries, decision)
        self._metrics.rows.add(rows, self._stream)
        self._metrics.bytes.add(size, self._stream)
        self._metrics.last_commit.set(time.time(), self._stream)
        self._metrics.cuts.add(1, self._stream, outcome)
        if delay is not None:
            self._metrics.event_to_snapshot.observe(delay, self._stream)
        if decision.watermark is not None:
            self._metrics.watermark.set(decision.watermark / 1000, self._stream)
        self._log.info(
            "committed",
            decision=decision.id,
            files=decision.files,
            rows=rows,
            bytes=size,
            watermark=decision.watermark,
            watermark_time=iso_time(decision.watermark),
            event_to_snapshot_ms=round(delay * 1000) if delay is not None else None,
            outcome=outcome,
            fallbacks=sorted(decision.fallbacks),
            cut={name: at.checkpoint for name, at in decision.cut.items()},
        )

    def announced(self, due: Due) -> None:
        """Log a refused registration, and count a cut that ended without a commit."""
        body = due.body
        if isinstance(body, RegistrationAnswered) and not body.accepted and body.problem is not None:
            stalled = body.registration in self._inherited and body.problem.identity in self._shown
            quiet = stalled or due.id in self._inherited or body.registration in self._probes
            tell = self._log.debug if quiet else self._log.warning
            tell(
                "registration refused",
                region=due.region,
                incarnation=due.incarnation,
                code=body.problem.code,
                reason=format_problem(body.problem, self._stream),
            )
        if isinstance(body, RegistrationAnswered):
            self._probes.discard(body.registration)
        if isinstance(body, CutAbandoned | CutReverted):
            outcome = "abandoned" if isinstance(body, CutAbandoned) else "reverted"
            self._metrics.cuts.add(1, self._stream, outcome)

    # --- conditions -------------------------------------------------------------------------------

    def conditions(self, found: Sequence[Condition]) -> None:
        """Log the beginning and the end of each condition once, and set the gauges.

        Refusals are logged when they are sent. Waits are normal, and a long one is logged by `measure`.
        """
        current = [(each.kind, each.problem) for each in found]
        if current == self._current:
            return
        self._current = current
        self._count_stalls()
        self._metrics.conditions(self._stream, found)
        shown = {each.problem.identity: each for each in found if each.kind in _BEGINS}
        for identity, each in shown.items():
            if identity not in self._shown or self._shown[identity].kind != each.kind:
                self._begun(each)
        for identity, each in self._shown.items():
            if identity not in shown:
                self._log.info(_ENDS[each.kind], **_fields(each.problem))
        self._shown = shown

    def _count_stalls(self) -> None:
        """Count the time of the stalls that are shown."""
        now, before = time.monotonic(), self._counted_at
        for code in {each.problem.code for each in self._shown.values() if each.kind == "stall"}:
            self._metrics.stall_seconds.add(now - before, self._stream, code.value)
        self._counted_at = now

    def _begun(self, condition: Condition) -> None:
        level, event = _BEGINS[condition.kind]
        reason = format_problem(condition.problem, self._stream)
        self._log.log(level, event, **_fields(condition.problem), reason=reason)

    # --- gauges -----------------------------------------------------------------------------------

    def measure(
        self, entries: Log, heard: Mapping[str, int], found: Sequence[Condition], now_ms: int
    ) -> None:
        """Set the gauges, and warn about completed work that waits long for its commit.

        `heard` has the time of the last event of each region, `found` the current conditions.
        """
        metrics, stream = self._metrics, self._stream
        self._count_stalls()
        metrics.pending_bytes.set(view.pending_bytes(entries), stream)
        metrics.pending_files.set(view.pending_files(entries), stream)
        metrics.oldest_unsealed.set(_age(view.oldest_unsealed(entries), now_ms), stream)
        metrics.oldest_uncut.set(_age(view.oldest_sealed(entries), now_ms), stream)
        metrics.single_region.set(view.is_single_region(entries), stream)
        for region, state in entries.state.regions.items():
            metrics.fallbacks.set(0 if state.ends else state.fallbacks, stream, region)
            if region in heard:
                metrics.heard.set(heard[region] / 1000, stream, region)
        self._measure_positions(entries)
        self._warn(view.oldest_completed(entries), now_ms, found)

    def _measure_positions(self, entries: Log) -> None:
        """Set the times of the committed positions; a region that has ended has none."""
        metrics, stream, state = self._metrics, self._stream, entries.state
        active, oldest = {*state.active()}, []
        for region in state.regions:
            moved = state.committed(region).moved_at if region in active else None
            metrics.region_position.set(moved / 1000 if moved is not None else None, stream, region)
            if moved is not None and not entries.is_idle(region):
                oldest.append(moved / 1000)
        metrics.oldest_position.set(min(oldest, default=None), stream)

    def _warn(self, since: int | None, now_ms: int, found: Sequence[Condition]) -> None:
        if since is None or now_ms - since <= PATIENCE * 1000:
            return
        if self._waits_logged is not None and now_ms - self._waits_logged < PATIENCE * 1000:
            return
        self._waits_logged = now_ms
        self._log.warning(
            "completed work waits to be committed",
            seconds=round((now_ms - since) / 1000),
            reasons=[format_problem(each.problem, self._stream) for each in found]
            or ["the alignment timeout, or an end of the log that is being read"],
        )


def _age(since: int | None, now_ms: int) -> float:
    """Return an age in seconds; never negative, because the brokers' clocks may be ahead of this host's."""
    return 0.0 if since is None else max(0.0, (now_ms - since) / 1000)


def _outcome(entries: Log, decision: Decision) -> str:
    if decision.fallbacks:
        return "partial"
    return "forced" if is_forced(entries, decision) else "full"


def _fields(problem: Problem) -> dict[str, object]:
    """Return the fields of a log line that identify a problem."""
    fields: dict[str, object] = {"code": problem.code.value}
    if problem.region is not None:
        fields["region"] = problem.region
    if problem.table is not None:
        fields["table"] = problem.table
    if problem.code is Code.RETRYING:
        fields["effect"] = problem.names[0]
    return fields


def name_of(effect: Effect) -> str:
    """Return the name of an effect for the log; that of an append has the type of its event."""
    name = type(effect).__name__
    return f"{name} {effect.type}" if isinstance(effect, Append) else name


# Trace context of the commits of one stream, beside the state of the core. Nothing is decided from it.

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
_SPAN_ENDS: Final = (CutCommitted, CutAbandoned, CutReverted)
Place = tuple[str, str, int]
"""Region, incarnation and number of a checkpoint."""


def _ignore(_: str, __: str | None) -> None:
    """Take the result of a step that has no span."""


_NO_STEP: Final = nullcontext(_ignore)


class Traces:
    """Contexts of completed checkpoints, and the spans of the commits that include them."""

    def __init__(self, stream: str, spans: "OtelSpans | None") -> None:
        """`spans` is None without the extra `otel`: then contexts only pass through."""
        self._stream = stream
        self._spans = spans
        self._contexts: dict[Place, str] = {}
        self._included: list[Place] = []
        """Checkpoints of the newest outcome."""
        self._current: OtelCommit | None = None
        self._outcomes: dict[int, tuple[list[Header], OtelCommit | None]] = {}

    def arrived(self, envelope: Envelope, headers: Iterable[RawHeader]) -> None:
        """Note the context of a completed checkpoint."""
        place = (envelope.region, envelope.incarnation, envelope.checkpoint)
        if (context := traceparent_of(headers)) is None or place in self._contexts:
            return
        self._contexts[place] = context
        if len(self._contexts) > _MOST:
            del self._contexts[next(iter(self._contexts))]

    def step(self, effect: Effect, log: Log) -> "AbstractContextManager[Finish]":
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

    def finished(self, effect: Effect, result: Result, finish: "Finish") -> None:
        """Note the result of an effect whose step ends with it."""
        failed = failure_of(result)
        failure = failed.reason if failed is not None else None
        done = failure is None
        finish(type(result).__name__, failure)
        if isinstance(effect, Announce) and done and (decision := _decision(effect)) is not None:
            self._end(decision, "committed")
        if isinstance(effect, Append) and done and isinstance(effect.body, _SPAN_ENDS):
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
        is_decided = log.state.unresolved is not None
        found = log.taken_checkpoints if is_decided else {name: log.sealed(name) for name in log.pending}
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
        return "append" if isinstance(effect.body, _SPAN_ENDS) else None
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


# A line of the log for each order of an operator that a coordinator reads.

_ORDERED: Final = frozenset({EventType.STREAM_COMMAND, EventType.REGION_REGISTERED})
"""Types of the records that a command of an operator writes."""


def log_order(
    record: LogRecord, raw: ConsumerRecord, signatures: Signatures, ignored: Problem | None
) -> None:
    """Log an order with its sender, as the sender claims, and its effect; other records are skipped.

    `raw` is the record as it was read. The field `signature` is a `State`: an event of a writer, such as a
    reset, is accepted without a signature in each mode, and its sender is only a claim then. A line can
    repeat when another member gets the partition.
    """
    kind, body, stream = record.envelope.type, record.body, record.envelope.stream
    headers = raw.headers
    if kind not in _ORDERED or (kind is EventType.REGION_REGISTERED and not has_order(headers)):
        return
    order, command = read_order(headers), body if isinstance(body, StreamCommand) else None
    fields: dict[str, object] = {"stream": stream, "offset": record.offset}
    # A copy of a signed order has the same id at another offset.
    fields["id"] = record.envelope.id
    fields["signature"] = signatures.state(raw.timestamp, headers, raw.value)
    if order is not None:
        sender = {"order": order.order, "by": order.by, "host": order.host, "at": iso_time(order.at)}
        fields |= {**sender, "release": order.release, "reason": order.reason, "about": order.about}
    if command is not None and not is_note(command):
        fields["command"] = command.model_dump(mode="json", exclude_defaults=True)
    if region := record.envelope.region:
        fields["region"] = region
    if is_note(body):
        fields["effect"] = "noted"
    elif ignored is None:
        fields["effect"] = "accepted"
    else:
        why = {"code": ignored.code.value, "refusal": format_problem(ignored, stream)}
        fields |= {"effect": "refused", **why}
    log.info("order", **fields)
