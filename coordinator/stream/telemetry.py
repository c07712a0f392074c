"""Logs and metrics of one stream, for its operators."""

import time
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from sluicegate.coordinator.core import effects
from sluicegate.coordinator.core.effects import Ask, Effect, Result, Retried
from sluicegate.coordinator.core.log import Log
from sluicegate.coordinator.core.log_state import Decision
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.replica import Applied
from sluicegate.coordinator.core.retry import KINDS, OPTIONAL
from sluicegate.coordinator.core.state_record import Condition, Due
from sluicegate.coordinator.stream.table import Tally
from sluicegate.coordinator.telemetry import gauges
from sluicegate.coordinator.telemetry.messages import format_problem
from sluicegate.coordinator.telemetry.metrics import CutOutcome, Metrics
from sluicegate.coordinator.telemetry.wording import iso_time
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.models import CutAbandoned, CutReverted
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code, Problem

log = structlog.get_logger(__name__)

PATIENCE: Final = 60.0
"""Seconds that completed work may wait before a warning, and between two warnings."""


class StreamTelemetry:
    """Logs state changes, skipping those that a previous owner of the partition already logged."""

    def __init__(self, stream: str, metrics: Metrics, due: Iterable[Due]) -> None:
        """Make the telemetry; `due` are notifications that a previous owner recorded, and possibly sent."""
        self._stream = stream
        self._metrics = metrics
        self._inherited = {each.id for each in due}
        """Ids of notifications and registrations that a previous owner may have logged."""
        self._asked_at: dict[int, float] = {}
        self._failing: dict[str, float] = {}
        """By kind of a retried effect, the time since when it fails."""
        self._logged_at: dict[str, float] = {}
        """By kind of a retried effect, the seconds of failures at which the next line is logged."""
        self._shown: dict[str, Problem] = {}
        """By identity, the stalls and pauses that were logged."""
        self._waits_logged: int | None = None
        self._log = log.bind(stream=stream)

    # --- records ----------------------------------------------------------------------------------

    def applied(self, record: LogRecord, applied: Applied, *, inherited: bool) -> None:
        """Log and count an event without effect; `inherited`: a previous owner may have logged it."""
        kind, ignored = record.envelope.type, applied.ignored
        if kind is EventType.REGION_REGISTERED:
            if inherited:
                self._inherited.add(record.envelope.id)
            if ignored is not None:
                self._metrics.refused(self._stream, ignored.code)
            # The answer is logged when it is sent.
            return
        if ignored is None:
            return
        if kind in (EventType.CUT_DECIDED, EventType.CUT_COMMITTED, EventType.CUT_REVERTED):
            self._metrics.refused(self._stream, ignored.code)
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
        kind = KINDS[type(effect)]
        if not isinstance(result, Retried):
            self._failing.pop(kind, None)
            return
        self._failing.setdefault(kind, time.monotonic())
        self._metrics.effect_failed(self._stream, kind)

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

    def committed(self, entries: Log, decision: Decision, tally: Tally) -> None:
        """Log and count a commit of this process that became visible."""
        included = [each for found in entries.included.values() for each in found]
        last = max((each.time for each in included), default=None)
        # The broker's clock may be ahead of this host's.
        delay = max(0.0, time.time() - last / 1000) if last is not None else None
        started = self._asked_at.pop(decision.id, None)
        if started is not None:
            self._metrics.commit_took(self._stream, time.monotonic() - started)
        outcome = _outcome(entries, decision)
        self._metrics.committed(self._stream, tally.rows, tally.size, time.time())
        self._metrics.cut_visible(self._stream, outcome, delay)
        self._metrics.watermark(self._stream, decision.watermark)
        self._log.info(
            "committed",
            decision=decision.id,
            files=decision.files,
            rows=tally.rows,
            bytes=tally.size,
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
            tell = self._log.debug if stalled or due.id in self._inherited else self._log.warning
            tell(
                "registration refused",
                region=due.region,
                incarnation=due.incarnation,
                code=body.problem.code,
                reason=format_problem(body.problem, self._stream),
            )
        if isinstance(body, CutAbandoned | CutReverted):
            self._metrics.cut(self._stream, "abandoned" if isinstance(body, CutAbandoned) else "reverted")

    # --- conditions -------------------------------------------------------------------------------

    def conditions(self, found: Sequence[Condition]) -> None:
        """Log each stall, pause and retry once, and its end."""
        self._retries([each.problem for each in found if each.problem.code is Code.RETRYING])
        shown = {each.problem.identity: each for each in found if each.kind in ("stall", "pause")}
        for identity, each in shown.items():
            if identity not in self._shown:
                tell = self._log.error if each.kind == "stall" else self._log.info
                reason = format_problem(each.problem, self._stream)
                tell(
                    "stalled" if each.kind == "stall" else "paused",
                    code=each.problem.code,
                    region=each.problem.region,
                    reason=reason,
                )
        for identity, problem in self._shown.items():
            if identity not in shown:
                event = "resumed" if problem.code is Code.PAUSED else "stall ended"
                self._log.info(event, code=problem.code, region=problem.region)
        self._shown = {identity: each.problem for identity, each in shown.items()}

    def _retries(self, problems: Sequence[Problem]) -> None:
        """Log the effects that fail: at first, then each time the duration has doubled, and at the end."""
        now, kinds = time.monotonic(), {problem.names[0]: problem for problem in problems}
        for kind, problem in kinds.items():
            lasted = now - self._failing.get(kind, now)
            self._metrics.retrying(self._stream, kind, lasted)
            if lasted < self._logged_at.get(kind, 0.0):
                continue
            self._logged_at[kind] = max(1.0, 2 * lasted)
            self._log.warning(
                "effect failed, will be tried again",
                effect=kind,
                seconds=round(lasted, 1),
                reason=format_problem(problem, self._stream),
            )
        for kind in self._logged_at.keys() - kinds.keys():
            del self._logged_at[kind]
            self._metrics.not_retrying(self._stream, kind)
            self._log.info("effect succeeded again", effect=kind)

    # --- gauges -----------------------------------------------------------------------------------

    def measure(self, machine: StreamMachine, now_ms: int) -> None:
        """Set the gauges, and warn about completed work that waits long for its commit."""
        entries, metrics, found = machine.replica.log, self._metrics, machine.conditions()
        metrics.pending(
            self._stream, gauges.pending_files(entries), _age(gauges.oldest_unsealed(entries), now_ms)
        )
        oldest = gauges.oldest_sealed(entries)
        metrics.uncut(self._stream, _age(oldest, now_ms))
        metrics.paused(self._stream, entries.state.paused)
        metrics.stalled(self._stream, any(each.kind == "stall" for each in found))
        counts = {region: state.fallbacks for region, state in entries.state.regions.items()}
        metrics.regions(self._stream, counts, machine.heard, joined=gauges.is_single_region(entries))
        self._warn(gauges.oldest_completed(entries), now_ms, found)

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


def _outcome(entries: Log, decision: Decision) -> CutOutcome:
    if decision.fallbacks:
        return "partial"
    policy, before = entries.state.policy, decision.before.regions
    most = policy.max_consecutive_fallbacks if policy is not None else 1
    return "forced" if any(before[name].fallbacks >= most for name in decision.moves) else "full"
