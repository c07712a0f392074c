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
from sluicegate.events.models import SLOW_CODES
from sluicegate.events.problems import Code

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

    def set(self, value: float | None, *labels: str) -> None:
        """Set the series with these values of the labels; None removes it."""
        if value is None:
            self.remove(*labels)
        else:
            self.labels(*labels).set(value)


class Counter(Family[CounterSeries]):
    """A metric whose series only rise."""

    def add(self, amount: float, *labels: str) -> None:
        """Add to the series with these values of the labels. Raises ValueError for a negative amount."""
        self.labels(*labels).inc(amount)


class Histogram(Family[HistogramSeries]):
    """A metric that counts observed values by size."""

    def observe(self, value: float, *labels: str) -> None:
        """Count a value in the series with these values of the labels."""
        self.labels(*labels).observe(value)


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


# All metrics of the service. Each is declared once, with its unit and its help.

PREFIX: Final = "sluicegate_"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of `Metrics.render`."""

LAG_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
COMMIT_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)
VISIBLE_BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1),
    *(0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds in seconds."""

_STREAM: Final = ("stream",)
_REGION: Final = ("stream", "region")
_CONDITION: Final = ("stream", "kind", "code", "table")
_PARTITION: Final = ("partition",)
_LISTENER: Final = ("stream", "listener")


class Metrics:
    """All metrics, in their own registry. They are used on the event loop alone.

    Values of labels follow the value: `metrics.lag.set(5, "3")`. Times of gauges are seconds since 1970.
    """

    def __init__(self) -> None:
        self._registry = Registry(PREFIX)
        self.definitions: Sequence[Definition] = self._registry.definitions
        self._of_system = CollectorRegistry()
        ProcessCollector(registry=self._of_system)
        self._conditions_shown: dict[str, set[tuple[str, str, str]]] = {}
        """By stream, kind, code and further table of the conditions that are shown."""
        self._failed_shown: dict[str, set[tuple[str, str]]] = {}
        """By stream, region and code of the failed regions that are shown."""
        self._owners_shown: dict[str, str] = {}
        gauge, counter, histogram = self._registry.gauge, self._registry.counter, self._registry.histogram

        # The process.
        self.build = gauge("build_info", "boolean", ("version",), "Always 1; the label is the release")
        self.build.set(1, sluicegate.__version__)
        self.loop_lag = histogram(
            "event_loop_lag_seconds",
            "seconds",
            (),
            LAG_BUCKETS,
            "Delay of a timer of the event loop, one for each 0.1 s; a turn of 1 s delays ten of them",
        )
        self.calls_stuck = gauge(
            "table_calls_stuck",
            "calls",
            (),
            "Calls to tables that have run for more than 3 s; others run in their place meanwhile",
        )
        self.longest_call = gauge(
            "table_call_longest_seconds",
            "seconds",
            (),
            "Time for which the oldest unfinished call to a table has run; 0 if there is none",
        )
        self.partitions_owned = gauge(
            "partitions_owned", "partitions", (), "Partitions of the events topic that this process serves"
        )
        self.partitions = gauge("events_partitions", "partitions", (), "Partitions that the events topic has")
        self.kafka_up = gauge(
            "kafka_up",
            "boolean",
            (),
            "1 while Kafka answers and has the events topic, asked every 3 s; else 0",
        )
        self.epoch = gauge(
            "assignment_epoch",
            "number",
            (),
            "Number of the current assignment of partitions; it rises with each rebalance",
        )
        self.retention = gauge(
            "events_retention_seconds",
            "seconds",
            ("topic",),
            "Age at which Kafka deletes events, read every ten minutes; absent without such a limit",
        )
        self.key_differences = gauge(
            "signing_key_differences",
            "differences",
            (),
            "Differences between the signing keys of the members for which records are refused now",
        )
        self.bodies_limit = gauge(
            "bodies_limit_bytes",
            "bytes",
            (),
            "Memory for bodies of events; above it they are dropped and fetched again",
        )
        self.bodies_held = gauge("bodies_held_bytes", "bytes", (), "Bodies of events held in memory")
        self.bodies_refetched = counter(
            "bodies_refetched_total", "bodies", (), "Bodies that were dropped from memory and fetched again"
        )

        # The log.
        self.lag = gauge(
            "consumer_lag_records", "records", _PARTITION, "Records of the events topic not read yet"
        )
        self.position = gauge(
            "partition_position_offset",
            "offset",
            _PARTITION,
            "The next offset to be read of the events topic",
        )
        self.low_water = gauge(
            "partition_low_water_offset",
            "offset",
            _PARTITION,
            "The smallest offset that a recovery of the partition would read again",
        )
        self.events = counter("events_total", "events", ("type",), "Events read, by type")
        self.dead_letters = counter(
            "dead_letters_total", "messages", ("code",), "Messages put aside, by code of the problem"
        )
        for code in LETTER_CODES:
            # From the start: Prometheus does not see the first letter of a series that begins with it.
            self.dead_letters.labels(code.value)
        self.not_signed = counter(
            "not_signed_total",
            "records",
            ("cause",),
            "Decisions and orders without a valid signature that count while kafka.signing.mode is accepted",
        )

        # Streams.
        self.pending_files = gauge(
            "pending_files", "files", _STREAM, "Files written that are in no decision yet"
        )
        self.pending_bytes = gauge(
            "pending_bytes", "bytes", _STREAM, "Bytes of these files, as far as their writers state the sizes"
        )
        self.oldest_needed = gauge(
            "oldest_needed_timestamp_seconds",
            "seconds",
            _STREAM,
            "Append time of the oldest event that a recovery of the stream reads again, in seconds since the "
            "Unix epoch; absent if it needs none. Kafka deletes it at the age "
            "`sluicegate_events_retention_seconds`",
        )
        self.record_size = gauge(
            "state_record_bytes", "bytes", _STREAM, "Size of the newest state record, as Kafka has it"
        )
        self.oldest_unsealed = gauge(
            "oldest_unsealed_age_seconds",
            "seconds",
            _STREAM,
            "Age of the first event of the oldest checkpoint that is not sealed; 0 if there is none",
        )
        self.oldest_uncut = gauge(
            "oldest_uncut_age_seconds",
            "seconds",
            _STREAM,
            "Age of the oldest sealed checkpoint that is in no decision; 0 if there is none",
        )
        self.watermark = gauge(
            "watermark_timestamp_seconds",
            "seconds",
            _STREAM,
            "Watermark of the last committed cut, in seconds since the Unix epoch; absent until there is one",
        )
        self.single_region = gauge(
            "stream_single_region",
            "boolean",
            _STREAM,
            "1 while all regions of the stream are one failure domain, so that every cut is full",
        )
        self.fallbacks = gauge(
            "region_consecutive_fallbacks",
            "cuts",
            _REGION,
            "Number of cuts in a row with which the region fell back",
        )
        self.region_position = gauge(
            "region_position_timestamp_seconds",
            "seconds",
            _REGION,
            "Time of the decision that moved an active region to its committed position, in seconds since "
            "the Unix epoch; absent until there is one",
        )
        self.oldest_position = gauge(
            "stream_oldest_position_timestamp_seconds",
            "seconds",
            _STREAM,
            "The oldest of these times of regions that are not idle; absent if there is none",
        )
        self.heard = gauge(
            "region_last_event_timestamp_seconds",
            "seconds",
            _REGION,
            "Append time of the newest event of the region's driver, in seconds since the Unix epoch. "
            "Drivers also send heartbeats while they have no work",
        )
        self._failed = gauge(
            "region_failed",
            "boolean",
            ("stream", "region", "code"),
            "1 while the newest word of the region's driver is that it has given its work up, by the code "
            "that it gave; absent otherwise. The status has its text",
        )
        self._owner = gauge(
            "stream_owner_info",
            "boolean",
            ("stream", "owner"),
            "Always 1; the label is the `owner` of the stream's settings. Absent without one",
        )

        # Commits.
        self.commit_seconds = histogram(
            "commit_seconds",
            "seconds",
            _STREAM,
            COMMIT_BUCKETS,
            "From the first question about a decision to the visible snapshot",
        )
        self.event_to_snapshot = histogram(
            "event_to_snapshot_seconds",
            "seconds",
            _STREAM,
            VISIBLE_BUCKETS,
            "From the append of the last event that a cut includes to the visible snapshot",
        )
        self.cuts = counter(
            "cuts_total",
            "cuts",
            ("stream", "outcome"),
            "Cuts by `outcome`: full, partial or forced (full, as a region fell back as often as allowed) "
            "when committed; reverted, or abandoned before a decision",
        )
        self.last_commit = gauge(
            "last_commit_timestamp_seconds",
            "seconds",
            _STREAM,
            "Time of the newest commit of this process, in seconds since the Unix epoch; absent until "
            "there is one",
        )
        self.rows = counter(
            "committed_rows_total", "rows", _STREAM, "Rows of the files in commits of this process"
        )
        self.bytes = counter(
            "committed_bytes_total", "bytes", _STREAM, "Bytes of the files in commits of this process"
        )

        # Problems.
        self.refusals = counter(
            "refusals_total",
            "refusals",
            ("stream", "code"),
            "Registrations that were refused and decisions that were void, by code",
        )
        self._conditions = gauge(
            "stream_conditions",
            "conditions",
            _CONDITION,
            "Conditions that keep the stream or a region of it from progress, by kind and code; absent if "
            "there is none. Kind `stall` needs an action, `pause` is one of an operator, `retry` is a step "
            "that fails and is tried again, `refusal` is a driver that may not start, `wait` is normal. The "
            "label `table` names a further table of the stream; empty: the condition is about none",
        )
        self.stall_seconds = counter(
            "stall_seconds_total",
            "seconds",
            ("stream", "code"),
            "Time during which the stream or a region of it had a stall, by code",
        )
        self.effect_failures = counter(
            "effect_failures_total",
            "failures",
            ("stream", "effect"),
            "Steps that failed or have an unknown outcome, and are tried again, by kind",
        )

        # Listeners.
        self.backlog = gauge(
            "listener_backlog_decisions",
            "decisions",
            _LISTENER,
            "Decisions with an outcome that the listener has not handled",
        )
        self.listener_failing = gauge(
            "listener_failing",
            "boolean",
            _LISTENER,
            "1 while the listener has a problem; the status has its sentence, with the way out",
        )
        self.listener_success = gauge(
            "listener_last_success_timestamp_seconds",
            "seconds",
            _LISTENER,
            "Time at which the listener handled an outcome or ran an action last, in seconds since the Unix "
            "epoch; absent until it did in this process",
        )
        self.listener_failures = counter(
            "listener_failures_total", "attempts", _LISTENER, "Attempts of the listener that failed"
        )

    def conditions(self, stream: str, conditions: Sequence[Condition]) -> None:
        """Show the conditions of a stream; those that ended are removed."""
        counts = Counted(
            (each.kind, each.problem.code.value, each.problem.table or "") for each in conditions
        )
        for labels in self._conditions_shown.get(stream, set()) - counts.keys():
            self._conditions.remove(stream, *labels)
        for labels, count in counts.items():
            self._conditions.set(count, stream, *labels)
        self._conditions_shown[stream] = {*counts}
        failed = set(_failed(conditions))
        for region, code in self._failed_shown.get(stream, set()) - failed:
            self._failed.remove(stream, region, code)
        for region, code in failed:
            self._failed.set(1, stream, region, code)
        self._failed_shown[stream] = failed

    def owner(self, stream: str, owner: str) -> None:
        """Show the owner of a stream; empty: it has none."""
        former = self._owners_shown.get(stream, "")
        if former == owner:
            return
        if former:
            self._owner.remove(stream, former)
        self._owners_shown[stream] = owner
        if owner:
            self._owner.set(1, stream, owner)

    def forget_partition(self, partition: int) -> None:
        """Remove the gauges of a revoked partition."""
        for each in (self.lag, self.position, self.low_water):
            each.remove(str(partition))

    def forget_stream(self, stream: str) -> None:
        """Remove the gauges of a revoked stream: another member now shows them."""
        of_stream = (
            *(self.pending_files, self.pending_bytes, self.oldest_needed, self.record_size, self.watermark),
            *(self.oldest_unsealed, self.oldest_uncut, self.last_commit, self.single_region),
            self.oldest_position,
        )
        for each in of_stream:
            each.remove(stream)
        # These search all series, so hundreds of streams together take long: only what has more labels.
        for each in (self.fallbacks, self.region_position, self.heard, self._conditions, self._failed):
            each.remove_by_labels({"stream": stream})
        self._conditions_shown.pop(stream, None)
        self._failed_shown.pop(stream, None)
        self.owner(stream, "")
        self._owners_shown.pop(stream, None)

    def forget_listener(self, stream: str, listener: str) -> None:
        """Remove the gauges of a listener that another process runs now, or none."""
        for each in (self.backlog, self.listener_failing, self.listener_success):
            each.remove(stream, listener)

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return b"".join(self.slices())

    def slices(self) -> Iterator[bytes]:
        """Yield the page in parts that take about half a millisecond each."""
        yield generate_latest(self._of_system)
        for part in self._registry.slices():
            yield part.encode()


def _failed(conditions: Sequence[Condition]) -> Iterator[tuple[str, str]]:
    """Yield the regions whose drivers have given their work up, with the codes that they gave."""
    for problem in (each.problem for each in conditions if each.problem.code is Code.DECLINED):
        code = next(iter(problem.names), "")
        if problem.region is not None and code not in SLOW_CODES:
            yield problem.region, code
