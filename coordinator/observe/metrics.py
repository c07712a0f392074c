"""Metrics of the service: one typed registry, from which the reference page of the metrics is made.

The client library takes half a second for the page of 1,000 streams, since it makes every line again. Here a
series keeps its lines until its value changes, and the page comes in slices. A contract suite compares the
page with that of the library.
"""

import time
from bisect import bisect_left
from collections import Counter as Counted
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

import sluicegate
from sluicegate.coordinator.core.state_record import Condition
from sluicegate.events.dead_letters import LETTER_CODES
from sluicegate.events.problems import Cause, Code

SLICE: Final = 0.0005
"""Seconds of work for one slice of the page."""
_ONE_LOOK: Final = 16
"""Series between two looks at the clock."""
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric as the documentation shows it."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    help: str


class _Series:
    """One series: a name with the values of its labels."""

    __slots__ = ("_head", "_lines", "_value")

    def __init__(self, name: str, labels: str) -> None:
        self._head = f"{name}{{{labels}}} " if labels else f"{name} "
        self._value = 0.0
        self._lines: str | None = None

    @property
    def lines(self) -> str:
        """Return the series as lines of the page."""
        if self._lines is None:
            self._lines = f"{self._head}{self._value!r}\n"
        return self._lines


class GaugeSeries(_Series):
    """A value that rises and falls."""

    __slots__ = ()

    def set(self, value: float) -> None:
        """Set the value."""
        if value != self._value:
            self._value, self._lines = float(value), None


class CounterSeries(_Series):
    """A value that only rises."""

    __slots__ = ()

    def inc(self, amount: float = 1.0) -> None:
        """Add to the value. Raises ValueError for a negative amount."""
        if amount < 0:
            raise ValueError(f"a counter cannot fall, not even by {-amount}")
        self._value, self._lines = self._value + amount, None


class HistogramSeries(_Series):
    """Counts of observed values by upper bounds, and their sum."""

    __slots__ = ("_bounds", "_counts", "_name", "_names", "_tails")

    def __init__(self, name: str, labels: str, bounds: Sequence[float], tails: Sequence[str]) -> None:
        super().__init__(f"{name}_sum", labels)
        self._bounds = bounds
        self._tails = tails
        self._counts = [0] * (len(bounds) + 1)
        self._name = f"{name}_bucket{{{labels}," if labels else f"{name}_bucket{{"
        self._names = f"{name}_count{{{labels}}} " if labels else f"{name}_count "

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._value, self._lines = self._value + value, None

    @property
    def lines(self) -> str:
        """Return the series as lines of the page."""
        if self._lines is None:
            total, parts = 0, list[str]()
            for tail, count in zip(self._tails, self._counts, strict=True):
                total += count
                parts.append(f"{self._name}{tail}{total}.0\n")
            self._lines = f"{''.join(parts)}{self._names}{total}.0\n{self._head}{self._value!r}\n"
        return self._lines


_S = TypeVar("_S", bound=_Series)


class Family(Generic[_S]):
    """A metric: its series by the values of its labels. Without labels it has one series from the start."""

    def __init__(self, definition: Definition, make: Callable[[str, str], _S]) -> None:
        name, text = definition.name, definition.help.translate(_HELP_ESCAPES)
        self.head: Final = f"# HELP {name} {text}\n# TYPE {name} {definition.kind}\n"
        """First lines of the family on the page."""
        self._definition = definition
        self._make = make
        self._series: dict[tuple[str, ...], _S] = {}
        if not definition.labels:
            self.labels()

    def labels(self, *values: str) -> _S:
        """Return the series with these values of the labels; it is new if there was none."""
        found = self._series.get(values)
        if found is None:
            names = self._definition.labels
            # By name, as the client library has them.
            pairs = sorted(zip(names, values, strict=True))
            text = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs)
            found = self._series[values] = self._make(self._definition.name, text)
        return found

    def series(self) -> list[_S]:
        """Return the series of this moment."""
        return list(self._series.values())

    def remove(self, *values: str) -> None:
        """Remove the series with these values of the labels, if there is one."""
        self._series.pop(values, None)

    def remove_by_labels(self, labels: Mapping[str, str]) -> None:
        """Remove all series that have these values of some labels."""
        at = [(self._definition.labels.index(name), value) for name, value in labels.items()]
        for values in [each for each in self._series if all(each[i] == value for i, value in at)]:
            del self._series[values]


class Gauge(Family[GaugeSeries]):
    """A metric whose series rise and fall."""

    def set(self, value: float) -> None:
        """Set the only series of a metric without labels."""
        self.labels().set(value)


class Counter(Family[CounterSeries]):
    """A metric whose series only rise."""

    def inc(self, amount: float = 1.0) -> None:
        """Add to the only series of a metric without labels."""
        self.labels().inc(amount)


class Histogram(Family[HistogramSeries]):
    """A metric that counts observed values by size."""

    def observe(self, value: float) -> None:
        """Count a value in the only series of a metric without labels."""
        self.labels().observe(value)


class Registry:
    """All metrics of a process. It is used on the event loop alone."""

    def __init__(self, prefix: str) -> None:
        """`prefix` begins each name."""
        self.definitions: list[Definition] = []
        self._prefix = prefix
        self._families: list[Family[GaugeSeries] | Family[CounterSeries] | Family[HistogramSeries]] = []

    def gauge(self, name: str, unit: str, labels: tuple[str, ...], text: str) -> Gauge:
        """Add a gauge."""
        made = Gauge(self._define(name, "gauge", unit, labels, text), GaugeSeries)
        self._families.append(made)
        return made

    def counter(self, name: str, unit: str, labels: tuple[str, ...], text: str) -> Counter:
        """Add a counter."""
        made = Counter(self._define(name, "counter", unit, labels, text), CounterSeries)
        self._families.append(made)
        return made

    def histogram(
        self, name: str, unit: str, labels: tuple[str, ...], bounds: tuple[float, ...], text: str
    ) -> Histogram:
        """Add a histogram; `bounds` are its upper bounds, in ascending order."""
        tails = [f'le="{float(bound)!r}"}} ' for bound in bounds] + ['le="+Inf"} ']
        made = Histogram(
            self._define(name, "histogram", unit, labels, text),
            lambda full, values: HistogramSeries(full, values, bounds, tails),
        )
        self._families.append(made)
        return made

    def slices(self) -> Iterator[str]:
        """Yield the page in parts; each takes about SLICE seconds, so others get their turn in between.

        A series is always whole. Series that appear or end meanwhile may be missing.
        """
        parts, until = list[str](), time.perf_counter() + SLICE
        for family in self._families:
            found = family.series()
            if found:
                parts.append(family.head)
            for start in range(0, len(found), _ONE_LOOK):
                parts += [each.lines for each in found[start : start + _ONE_LOOK]]
                if time.perf_counter() >= until:
                    yield "".join(parts)
                    parts, until = [], time.perf_counter() + SLICE
        yield "".join(parts)

    def _define(self, name: str, kind: Kind, unit: str, labels: tuple[str, ...], text: str) -> Definition:
        made = Definition(self._prefix + name, kind, unit, labels, text)
        self.definitions.append(made)
        return made


# Metrics of the process: its event loop, the calls to tables, its share of the group, Kafka.

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


# Metric with the owner of each stream, for joins of alerts.

Make = Callable[[str, str, tuple[str, ...], str], Gauge]


class OwnerMetrics:
    """Owners of the streams of this process, as its settings name them."""

    def __init__(self, gauge: Make) -> None:
        self.gauge = gauge(
            "stream_owner_info",
            "boolean",
            ("stream", "owner"),
            "Always 1; the label is the `owner` of the stream's settings. Absent without one",
        )
        self._shown: dict[str, str] = {}

    def show(self, stream: str, owner: str) -> None:
        """Set the owner of a stream; empty: it has none."""
        if self._shown.get(stream, "") == owner:
            return
        self.forget(stream)
        if owner:
            self._shown[stream] = owner
            self.gauge.labels(stream, owner).set(1)

    def forget(self, stream: str) -> None:
        """Remove a stream that another process serves now, or none."""
        if self._shown.pop(stream, None) is not None:
            self.gauge.remove_by_labels({"stream": stream})


# Metrics of listeners, by stream and listener.

LABELS: Final = ("stream", "listener")
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


# Metrics of the service: one typed registry, from which docs/metrics.md is generated.
#
# `python -m sluicegate.coordinator.telemetry.metrics > docs/metrics.md`

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
