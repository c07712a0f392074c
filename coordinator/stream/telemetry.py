"""Logs and metrics of one stream, for its operators."""

import time
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from sluicegate.coordinator.core.effects import Ask, Effect, Result, Retried
from sluicegate.coordinator.core.machine import PROBE
from sluicegate.coordinator.core.retries import KINDS, Retry
from sluicegate.coordinator.core.state import Decision, Due, EffectKind
from sluicegate.coordinator.stream.table import Tally
from sluicegate.coordinator.telemetry.metrics import CutOutcome, Metrics
from sluicegate.coordinator.telemetry.wording import iso_time
from sluicegate.events.models import CutAbandoned, CutVoided, OpeningAnswered

log = structlog.get_logger(__name__)

_VIEW_FAILS: Final = (
    "the view in Redis is not up to date; commits do not need it and go on, and it is written again by itself"
)


class News:
    """Logs state changes, skipping those that a previous owner of the partition already logged."""

    def __init__(self, stream: str, metrics: Metrics, due: Iterable[Due]) -> None:
        """Make the telemetry; `due` are notifications that a previous owner recorded, and possibly sent."""
        self.known_openings: set[str] = set()
        """Ids of openings before the start of this assignment: a previous owner may have logged them."""
        self._stream = stream
        self._metrics = metrics
        self._inherited = {each.id for each in due}
        self._asked_at: dict[int, float] = {}
        self._tell_at: dict[EffectKind, int] = {}
        """By kind of a retried effect, the number of failures at which the next line is logged."""
        self._stall: str | None = None
        self._paused: str | None = None
        self._log = log.bind(stream=stream)

    def effect(self, effect: Effect, result: Result) -> None:
        """Count an effect that will be retried."""
        if isinstance(result, Retried):
            self._metrics.effect_failed(self._stream, KINDS[type(effect)])

    def retries(self, retries: Sequence[Retry]) -> None:
        """Log retries: the first failure, then each doubling of the number of failures, and the end."""
        for each in retries:
            self._metrics.retrying(self._stream, each.effect, each.lasted / 1000)
            if each.failures < self._tell_at.get(each.effect, 1):
                continue
            self._tell_at[each.effect] = 2 * each.failures
            self._log.warning(
                _VIEW_FAILS if each.effect == "view" else "effect failed, will be tried again",
                effect=each.effect,
                reason=each.reason,
                failures=each.failures,
                seconds=round(each.lasted / 1000, 1),
            )
        for effect in self._tell_at.keys() - {each.effect for each in retries}:
            del self._tell_at[effect]
            self._metrics.not_retrying(self._stream, effect)
            if effect == "view":
                self._log.info("the view in Redis is current again")
            else:
                self._log.info("effect fails no more", effect=effect)

    def asked(self, effect: Ask) -> None:
        """Note the start of a commit; a probe of an idle table is none."""
        if effect.digest != PROBE:
            self._asked_at.setdefault(effect.decision, time.monotonic())

    def settled(self) -> None:
        """Note that no commit is running."""
        self._asked_at.clear()

    def committed(self, decision: Decision, tally: Tally) -> None:
        """Log and count a commit of this process that became visible."""
        # The broker's clock may be ahead of this host's.
        delay = max(0.0, time.time() - decision.last_time / 1000)
        started = self._asked_at.pop(decision.id, None)
        if started is not None:
            self._metrics.commit_took(self._stream, time.monotonic() - started)
        self._metrics.committed(self._stream, tally.rows, tally.size, time.time())
        self._metrics.cut_visible(self._stream, _outcome(decision), delay)
        self._metrics.watermark(self._stream, decision.watermark)
        self._log.info(
            "committed",
            decision=decision.id,
            files=decision.files,
            rows=tally.rows,
            bytes=tally.size,
            watermark=decision.watermark,
            watermark_time=iso_time(decision.watermark),
            event_to_snapshot_ms=round(delay * 1000),
            outcome=_outcome(decision),
            fallbacks=sorted(decision.fallbacks),
            cut={name: at.checkpoint for name, at in decision.cut.items()},
        )

    def announced(self, due: Due, stall: str | None) -> None:
        """Log a refused opening and count an ended cut.

        A refusal is no news if a previous owner logged it, or the logged stall has the same reason.
        """
        body = due.body
        if isinstance(body, OpeningAnswered) and not body.accepted:
            stalled = body.opening in self.known_openings and body.reason == stall
            tell = self._log.debug if stalled or due.id in self._inherited else self._log.warning
            tell("opening refused", region=due.region, lineage=due.lineage, reason=body.reason)
        if isinstance(body, CutAbandoned | CutVoided):
            self._metrics.cut(self._stream, "abandoned" if isinstance(body, CutAbandoned) else "voided")

    def standing(self, stall: str | None, paused: str | None) -> None:
        """Log each change between running, paused and stalled."""
        if paused != self._paused:
            self._paused = paused
            self._log.info("paused", reason=paused) if paused else self._log.info("resumed")
        if stall != self._stall:
            self._stall = stall
            if stall is None:
                self._log.info("goes on")
            else:
                self._log.error("stalled", reason=stall)


def _outcome(decision: Decision) -> CutOutcome:
    if decision.fallbacks:
        return "partial"
    return "forced" if decision.forced else "full"
