"""Metrics of the process: its event loop, the calls to tables, its share of the group, Kafka."""

from collections.abc import Sequence
from typing import Final

from sluicegate.coordinator.telemetry.exposition import Registry

LAG_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds: 1 ms to 30 s."""


class ProcessMetrics:
    """Figures that no stream has alone."""

    def __init__(self, registry: Registry) -> None:
        self._lag = registry.histogram(
            "event_loop_lag_seconds",
            "seconds",
            (),
            LAG_BUCKETS,
            "Delay of a timer of the event loop, one for each 0.1 s; a turn of 1 s delays ten of them",
        )
        self._stuck = registry.gauge(
            "table_calls_stuck",
            "calls",
            (),
            "Calls to tables that have run for more than 3 s; others run in their place meanwhile",
        )
        self._longest = registry.gauge(
            "table_call_longest_seconds",
            "seconds",
            (),
            "Time for which the oldest unfinished call to a table has run; 0 if there is none",
        )
        self._add_gauges_of_kafka(registry)

    def _add_gauges_of_kafka(self, registry: Registry) -> None:
        self._owned = registry.gauge(
            "partitions_owned", "partitions", (), "Partitions of the events topic that this process serves"
        )
        self._partitions = registry.gauge(
            "events_partitions", "partitions", (), "Partitions that the events topic has"
        )
        self._kafka_up = registry.gauge(
            "kafka_up",
            "boolean",
            (),
            "1 while Kafka answers and has the events topic, asked every 3 s; else 0",
        )
        self._retention = registry.gauge(
            "events_retention_seconds",
            "seconds",
            ("topic",),
            "Age at which Kafka deletes events, read every ten minutes; absent without such a limit",
        )
        self._key_differences = registry.gauge(
            "signing_key_differences",
            "differences",
            (),
            "Differences between the signing keys of the members for which records are refused now",
        )
        self._limit = registry.gauge(
            "bodies_limit_bytes",
            "bytes",
            (),
            "Memory for bodies of events; above it they are dropped and fetched again",
        )

    def loop_late(self, delays: Sequence[float]) -> None:
        """Count delays of the event loop, in seconds."""
        for delay in delays:
            self._lag.observe(delay)

    def table_calls(self, stuck: int, longest: float) -> None:
        """Set the number of stuck calls, and the seconds of the oldest unfinished one."""
        self._stuck.set(stuck)
        self._longest.set(longest)

    def connected(self, owned: int, of: int, *, kafka_up: bool) -> None:
        """Set the number of partitions that this process serves and of all, and the state of Kafka."""
        self._owned.set(owned)
        self._partitions.set(of)
        self._kafka_up.set(kafka_up)

    def disconnected(self) -> None:
        """Note that there is no session with Kafka, so nothing is served."""
        self._owned.set(0)
        self._kafka_up.set(0)

    def key_differences(self, number: int) -> None:
        """Set the number of differences between members for which one refuses the records of another."""
        self._key_differences.set(number)

    def retention(self, topic: str, seconds: float | None) -> None:
        """Set the age at which the topic deletes events; None if it has no limit."""
        if seconds is None:
            self._retention.remove(topic)
        else:
            self._retention.labels(topic).set(seconds)

    def memory(self, limit: int) -> None:
        """Set the bytes that bodies may take in memory."""
        self._limit.set(limit)
