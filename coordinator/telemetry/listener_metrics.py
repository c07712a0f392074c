"""Metrics of listeners, by stream and listener."""

import time
from collections.abc import Callable
from typing import Final

from sluicegate.coordinator.telemetry.exposition import Counter, Gauge

LABELS: Final = ("stream", "listener")

Make = Callable[[str, str, tuple[str, ...], str], Gauge]
Count = Callable[[str, str, tuple[str, ...], str], Counter]


class ListenerMetrics:
    """Backlog, failures and successes of listeners."""

    def __init__(self, gauge: Make, counter: Count) -> None:
        self._backlog = gauge(
            "listener_backlog_decisions",
            "decisions",
            LABELS,
            "Decisions with an outcome that the listener has not handled",
        )
        self._failing = gauge(
            "listener_failing",
            "boolean",
            LABELS,
            "1 while the listener has a problem; the status has its sentence, with the way out",
        )
        self._last = gauge(
            "listener_last_success_timestamp_seconds",
            "seconds",
            LABELS,
            "Time at which the listener handled an outcome or ran an action last, in seconds since the Unix "
            "epoch; absent until it did in this process",
        )
        self._failures = counter(
            "listener_failures_total", "attempts", LABELS, "Attempts of the listener that failed"
        )

    def backlog(self, stream: str, listener: str, decisions: int) -> None:
        """Set the number of decisions that the listener has not handled."""
        self._backlog.labels(stream, listener).set(decisions)

    def problem(self, stream: str, listener: str, *, failing: bool) -> None:
        """Set the flag of a problem."""
        self._failing.labels(stream, listener).set(failing)

    def failed(self, stream: str, listener: str) -> None:
        """Count a failed attempt."""
        self._failures.labels(stream, listener).inc()

    def succeeded(self, stream: str, listener: str) -> None:
        """Note an action that is done."""
        self._last.labels(stream, listener).set(time.time())

    def handled(self, stream: str, listener: str) -> None:
        """Note an outcome that is handled."""
        self._last.labels(stream, listener).set(time.time())

    def forget(self, stream: str, listener: str) -> None:
        """Remove the gauges of a listener that another process runs now, or none."""
        for gauge in (self._backlog, self._failing, self._last):
            gauge.remove_by_labels({"stream": stream, "listener": listener})
