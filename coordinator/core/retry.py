"""Retries: slots for effects in flight, and the failures that count as a stall after a while."""

from hashlib import blake2b
from typing import Final, NamedTuple

from sluicegate.coordinator.core import effects
from sluicegate.coordinator.core.effects import Effect, Result
from sluicegate.coordinator.core.state_record import Condition
from sluicegate.events.problems import Code, Problem

KINDS: Final[dict[type[Effect], str]] = {
    effects.InspectTable: "inspect",
    effects.FetchEnd: "fetch_end",
    effects.CheckFiles: "check",
    effects.Append: "append",
    effects.Ask: "ask",
    effects.Publish: "publish",
    effects.WriteRecord: "record",
    effects.Announce: "announce",
    effects.WriteView: "view",
    effects.ReleaseOffsets: "offsets",
}
"""One word for each kind of effect, as logs, metrics and status name it."""
OPTIONAL: Final = frozenset({"view", "offsets"})
"""Nothing depends on these, so their failures never stall a stream."""
_STEPS: Final = 1024


class RetrySlot:
    """At most one effect in flight, with growing pauses after failures."""

    def __init__(self, name: str, first_pause: int, longest_pause: int) -> None:
        self._name = name
        self._first = first_pause
        self._longest = longest_pause
        self._pauses = self._failures = 0
        self.running: Effect | None = None
        self.resume_at = 0
        """Nothing starts before this time, in milliseconds."""

    def is_free(self, now: int) -> bool:
        """True if an effect may start."""
        return self.running is None and now >= self.resume_at

    def succeeded(self) -> None:
        """Note that the effect in flight has ended."""
        self.running, self._failures = None, 0

    def failed(self, now: int) -> None:
        """Note that the effect in flight failed; pause twice as long as the time before."""
        self.running = None
        self.pause(now, min(self._first * 2 ** min(self._failures, 16), self._longest))
        self._failures += 1

    def pause(self, now: int, length: int) -> None:
        """Start nothing for that many milliseconds, or up to a quarter less.

        Streams that share a store would otherwise all return to it at the same moment. The core has no
        randomness, so the spread follows from the name.
        """
        self._pauses += 1
        drawn = blake2b(f"{self._name}/{self._pauses}".encode(), digest_size=2).digest()
        spread = int.from_bytes(drawn, "big") % _STEPS
        self.resume_at = now + length - length * spread // (4 * _STEPS)


class _Retry(NamedTuple):
    """Failures of one kind of effect since its last success."""

    problem: Problem
    since: int
    failures: int
    stalls: bool = False


class Retries:
    """Effects that failed and are tried again, by kind."""

    def __init__(self, stall_after: int) -> None:
        """`stall_after`: milliseconds of failures that count as a stall."""
        self._stall_after = stall_after
        self._open: dict[str, _Retry] = {}

    def finished(self, effect: Effect, result: Result, now: int) -> None:
        """Note a result."""
        kind = KINDS[type(effect)]
        if not isinstance(result, effects.Retried):
            self.ended(kind)
            return
        problem = Problem(code=Code.RETRYING, names=(kind,), cause=result.cause, detail=result.reason)
        known = self._open.get(kind, _Retry(problem, now, 0))
        lasts = now - known.since >= self._stall_after and kind not in OPTIONAL
        self._open[kind] = _Retry(problem, known.since, known.failures + 1, lasts)

    def ended(self, *kinds: str) -> None:
        """Note that these succeeded, or are not needed any more."""
        for kind in kinds:
            self._open.pop(kind, None)

    @property
    def stall(self) -> Problem | None:
        """Return the stall of the effect that has failed for longest; None if none stalls the stream."""
        return next((each.problem for each in self.conditions() if each.kind == "stall"), None)

    def conditions(self) -> list[Condition]:
        """Return one condition for each kind that failed more than once, the oldest first."""
        return [
            Condition(kind="stall" if each.stalls else "retry", problem=each.problem, retry_in=0)
            for each in self._open.values()
            if each.failures > 1
        ]
