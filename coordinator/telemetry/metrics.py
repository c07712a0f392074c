"""Metrics of the service: one typed registry, from which docs/metrics.md is generated.

`python -m sluicegate.coordinator.telemetry.metrics > docs/metrics.md`
"""

import sys
from collections import Counter as Counted
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

import sluicegate
from sluicegate.coordinator.core.state_record import Condition
from sluicegate.coordinator.telemetry.exposition import Definition, Registry
from sluicegate.coordinator.telemetry.listener_metrics import ListenerMetrics
from sluicegate.coordinator.telemetry.owner_metrics import OwnerMetrics
from sluicegate.coordinator.telemetry.process_metrics import ProcessMetrics
from sluicegate.events.causes import Cause
from sluicegate.events.dead_letters import LETTER_CODES
from sluicegate.events.problems import Code

PREFIX: Final = "sluicegate_"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of `Metrics.render`."""

COMMIT_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)
VISIBLE_BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1),
    *(0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Seconds: 1 ms to 60 s."""

CutOutcome = Literal["full", "partial", "forced", "reverted", "abandoned"]
STREAM: Final = ("stream",)
CONDITION: Final = ("stream", "kind", "code")
PARTITION: Final = ("partition",)


class Metrics:
    """All metrics, in their own registry. They are used on the event loop alone."""

    def __init__(self) -> None:
        self._registry = Registry(PREFIX)
        self.definitions: Sequence[Definition] = self._registry.definitions
        self._gauge, self._counter = self._registry.gauge, self._registry.counter
        self._shown: dict[str, set[tuple[str, str]]] = {}
        """By stream, kind and code of the conditions that are shown."""
        self._of_system = CollectorRegistry()
        ProcessCollector(registry=self._of_system)
        self._log()
        self._progress()
        self._commits()
        self._regions()
        self._problems()
        self._service()
        self.process = ProcessMetrics(self._registry)
        """Figures of the process, beside those of its streams."""
        self.listeners = ListenerMetrics(self._gauge, self._counter)
        self.owners = OwnerMetrics(self._gauge)

    def _log(self) -> None:
        gauge, counter = self._gauge, self._counter
        self._lag = gauge(
            "consumer_lag_records", "records", PARTITION, "Records of the events topic not read yet"
        )
        self._position = gauge(
            "partition_position_offset", "offset", PARTITION, "The next offset to be read of the events topic"
        )
        self._low_water = gauge(
            "partition_low_water_offset",
            "offset",
            PARTITION,
            "The smallest offset that a recovery of the partition would read again",
        )
        self._events = counter("events_total", "events", ("type",), "Events read, by type")
        self._dead_letters = counter(
            "dead_letters_total", "messages", ("code",), "Messages put aside, by code of the problem"
        )
        for code in LETTER_CODES:
            # From the start: Prometheus does not see the first letter of a series that begins with it.
            self._dead_letters.labels(code.value)
        self._not_signed = counter(
            "not_signed_total",
            "records",
            ("cause",),
            "Decisions and orders without a valid signature that count while kafka.signing.mode is accepted",
        )
        self._epoch = gauge(
            "assignment_epoch",
            "number",
            (),
            "Number of the current assignment of partitions; it rises with each rebalance",
        )

    def _progress(self) -> None:
        gauge = self._gauge
        self._pending = gauge("pending_files", "files", STREAM, "Files written that are in no decision yet")
        self._pending_bytes = gauge(
            "pending_bytes", "bytes", STREAM, "Bytes of these files, as far as their writers state the sizes"
        )
        self._needed = gauge(
            "oldest_needed_timestamp_seconds",
            "seconds",
            STREAM,
            "Append time of the oldest event that a recovery of the stream reads again, in seconds since the "
            "Unix epoch; absent if it needs none. Kafka deletes it at the age "
            "`sluicegate_events_retention_seconds`",
        )
        self._record_size = gauge(
            "state_record_bytes", "bytes", STREAM, "Size of the newest state record, as Kafka has it"
        )
        self._unsealed = gauge(
            "oldest_unsealed_age_seconds",
            "seconds",
            STREAM,
            "Age of the first event of the oldest checkpoint that is not sealed; 0 if there is none",
        )
        self._uncut = gauge(
            "oldest_uncut_age_seconds",
            "seconds",
            STREAM,
            "Age of the oldest sealed checkpoint that is in no decision; 0 if there is none",
        )
        self._watermark = gauge(
            "watermark_timestamp_seconds",
            "seconds",
            STREAM,
            "Watermark of the last committed cut, in seconds since the Unix epoch; absent until there is one",
        )

    def _commits(self) -> None:
        counter, histogram = self._counter, self._registry.histogram
        self._commit = histogram(
            "commit_seconds",
            "seconds",
            STREAM,
            COMMIT_BUCKETS,
            "From the first question about a decision to the visible snapshot",
        )
        self._visible = histogram(
            "event_to_snapshot_seconds",
            "seconds",
            STREAM,
            VISIBLE_BUCKETS,
            "From the append of the last event that a cut includes to the visible snapshot",
        )
        self._cuts = counter(
            "cuts_total",
            "cuts",
            ("stream", "outcome"),
            "Cuts by `outcome`: full, partial or forced (full, as a region fell back as often as allowed) "
            "when committed; reverted, or abandoned before a decision",
        )
        self._last_commit = self._gauge(
            "last_commit_timestamp_seconds",
            "seconds",
            STREAM,
            "Time of the newest commit of this process, in seconds since the Unix epoch; absent until "
            "there is one",
        )
        self._rows = counter(
            "committed_rows_total", "rows", STREAM, "Rows of the files in commits of this process"
        )
        self._bytes = counter(
            "committed_bytes_total", "bytes", STREAM, "Bytes of the files in commits of this process"
        )

    def _regions(self) -> None:
        self._fallbacks = self._gauge(
            "region_consecutive_fallbacks",
            "cuts",
            ("stream", "region"),
            "Number of cuts in a row with which the region fell back",
        )
        self._heard = self._gauge(
            "region_last_event_timestamp_seconds",
            "seconds",
            ("stream", "region"),
            "Append time of the newest event of the region's driver, in seconds since the Unix epoch. "
            "Drivers also send heartbeats while they have no work",
        )
        self._single = self._gauge(
            "stream_single_region",
            "boolean",
            STREAM,
            "1 while all regions of the stream are one failure domain, so that every cut is full",
        )

    def _problems(self) -> None:
        self._refusals = self._counter(
            "refusals_total",
            "refusals",
            ("stream", "code"),
            "Registrations that were refused and decisions that were void, by code",
        )
        self._conditions = self._gauge(
            "stream_conditions",
            "conditions",
            CONDITION,
            "Conditions that keep the stream or a region of it from progress, by kind and code; absent if "
            "there is none. Kind `stall` needs an action, `pause` is one of an operator, `retry` is a step "
            "that fails and is tried again, `refusal` is a query that may not start, `wait` is normal",
        )

        self._stalled = self._counter(
            "stall_seconds_total",
            "seconds",
            ("stream", "code"),
            "Time during which the stream or a region of it had a stall, by code",
        )

    def _service(self) -> None:
        build = self._gauge("build_info", "boolean", ("version",), "Always 1; the label is the release")
        build.labels(sluicegate.__version__).set(1)
        self._effect_failures = self._counter(
            "effect_failures_total",
            "failures",
            ("stream", "effect"),
            "Steps that failed or have an unknown outcome, and are tried again, by kind",
        )
        self._bodies = self._gauge("bodies_held_bytes", "bytes", (), "Bodies of events held in memory")
        self._refetched = self._counter(
            "bodies_refetched_total", "bodies", (), "Bodies that were dropped from memory and fetched again"
        )

    # --- the log ----------------------------------------------------------------------------------

    def lag(self, partition: int, records: int) -> None:
        """Set the number of records of a partition that are not read yet."""
        self._lag.labels(str(partition)).set(records)

    def offsets(self, partition: int, position: int, low_water: int) -> None:
        """Set the position of a partition, and the offset from which a recovery would read."""
        self._position.labels(str(partition)).set(position)
        self._low_water.labels(str(partition)).set(low_water)

    def events_read(self, event_type: str, count: int) -> None:
        """Count events of a type that were read."""
        self._events.labels(event_type).inc(count)

    def dead_letter(self, code: str) -> None:
        """Count a dead letter, by the code of its problem."""
        self._dead_letters.labels(code).inc()

    def not_signed(self, cause: Cause) -> None:
        """Count a record that counts without a valid signature."""
        self._not_signed.labels(cause.code).inc()

    def assigned(self, epoch: int) -> None:
        """Set the number of the current assignment."""
        self._epoch.set(epoch)

    def forget_partition(self, partition: int) -> None:
        """Remove the gauges of a revoked partition."""
        for gauge in (self._lag, self._position, self._low_water):
            gauge.remove_by_labels({"partition": str(partition)})

    # --- streams ----------------------------------------------------------------------------------

    def pending(self, stream: str, files: int, oldest_unsealed: float) -> None:
        """Set the pending files; `oldest_unsealed` is an age in seconds, 0 if everything is sealed."""
        self._pending.labels(stream).set(files)
        self._unsealed.labels(stream).set(oldest_unsealed)

    def pending_bytes(self, stream: str, size: int) -> None:
        """Set the bytes of the pending files."""
        self._pending_bytes.labels(stream).set(size)

    def oldest_needed(self, stream: str, millis: int | None) -> None:
        """Set the append time of the oldest event that a recovery needs; None if it needs none."""
        if millis is None:
            self._needed.remove(stream)
        else:
            self._needed.labels(stream).set(millis / 1000)

    def recorded(self, stream: str, size: int) -> None:
        """Set the bytes of the newest state record."""
        self._record_size.labels(stream).set(size)

    def uncut(self, stream: str, age: float) -> None:
        """Set the age in seconds of the oldest sealed checkpoint without a decision; 0 if there is none."""
        self._uncut.labels(stream).set(age)

    def commit_took(self, stream: str, seconds: float) -> None:
        """Record the seconds of a commit, from the first ask to the visible snapshot."""
        self._commit.labels(stream).observe(seconds)

    def committed(self, stream: str, rows: int, size: int, at: float) -> None:
        """Count the rows and bytes of a visible commit; `at` is in seconds since the Unix epoch."""
        self._rows.labels(stream).inc(rows)
        self._bytes.labels(stream).inc(size)
        self._last_commit.labels(stream).set(at)

    def cut_visible(self, stream: str, outcome: CutOutcome, event_to_snapshot: float | None) -> None:
        """Count a visible cut, and record the seconds after its last event; None if they are unknown."""
        self.cut(stream, outcome)
        if event_to_snapshot is not None:
            self._visible.labels(stream).observe(event_to_snapshot)

    def cut(self, stream: str, outcome: CutOutcome) -> None:
        """Count a finished cut by its outcome."""
        self._cuts.labels(stream, outcome).inc()

    def regions(
        self, stream: str, fallbacks: Mapping[str, int], heard: Mapping[str, int], *, single: bool
    ) -> None:
        """Set the gauges of the regions; `single` is True while all regions are one failure domain.

        `fallbacks` is the number of cuts in a row with which a region fell back. `heard` is the append time
        of its last event in milliseconds since the Unix epoch.
        """
        for region, count in fallbacks.items():
            self._fallbacks.labels(stream, region).set(count)
            if region in heard:
                self._heard.labels(stream, region).set(heard[region] / 1000)
        self._single.labels(stream).set(single)

    def refused(self, stream: str, code: Code) -> None:
        """Count a registration that was refused, or a decision that was void."""
        self._refusals.labels(stream, code.value).inc()

    def conditions(self, stream: str, conditions: Sequence[Condition]) -> None:
        """Set the gauges of the conditions; those that ended are removed."""
        counts = Counted((each.kind, each.problem.code.value) for each in conditions)
        for kind, code in self._shown.get(stream, set()) - counts.keys():
            self._conditions.remove(stream, kind, code)
        for (kind, code), count in counts.items():
            self._conditions.labels(stream, kind, code).set(count)
        self._shown[stream] = {*counts}

    def stalled(self, stream: str, code: Code, seconds: float) -> None:
        """Count the time of a stall."""
        self._stalled.labels(stream, code.value).inc(seconds)

    def watermark(self, stream: str, millis: int | None) -> None:
        """Set the watermark of the last committed cut, in milliseconds; None leaves the gauge unchanged."""
        if millis is not None:
            self._watermark.labels(stream).set(millis / 1000)

    def forget_stream(self, stream: str) -> None:
        """Remove the gauges of a revoked stream: another member now shows them."""
        gauges = (self._pending, self._unsealed, self._uncut, self._watermark, self._last_commit)
        for gauge in (*gauges, self._pending_bytes, self._needed, self._record_size, self._single):
            gauge.remove(stream)
        # These search all series, so hundreds of streams together take long: only what has more labels.
        for gauge in (self._fallbacks, self._heard, self._conditions):
            gauge.remove_by_labels({"stream": stream})
        self._shown.pop(stream, None)
        self.owners.forget(stream)

    # --- the service ------------------------------------------------------------------------------

    def effect_failed(self, stream: str, effect: str) -> None:
        """Count a failed step that will be retried; `effect` is its kind."""
        self._effect_failures.labels(stream, effect).inc()

    def bodies_held(self, size: int) -> None:
        """Set the bytes of bodies in memory."""
        self._bodies.set(size)

    def bodies_refetched(self, count: int) -> None:
        """Count bodies that were fetched again."""
        self._refetched.inc(count)

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return b"".join(self.slices())

    def slices(self) -> Iterator[bytes]:
        """Yield the page in parts that take about half a millisecond each."""
        yield generate_latest(self._of_system)
        for part in self._registry.slices():
            yield part.encode()


def document(metrics: Metrics) -> str:
    """Return the documentation of all metrics, in Markdown."""
    lines = [
        "# Metrics",
        "",
        "Served at `/metrics` in Prometheus' text format. Generated by",
        "`python -m sluicegate.coordinator.telemetry.metrics > docs/metrics.md`; do not edit.",
        "",
        "A member of the group shows the streams and partitions that it owns. Beside these there are the",
        "usual `process_*` metrics (memory, CPU, open files).",
        "",
        "| metric | type | unit | labels | meaning |",
        "|---|---|---|---|---|",
    ]
    for each in sorted(metrics.definitions, key=lambda definition: definition.name):
        labels = ", ".join(f"`{label}`" for label in each.labels) or "-"
        lines.append(f"| `{each.name}` | {each.kind} | {each.unit} | {labels} | {each.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document(Metrics()))
