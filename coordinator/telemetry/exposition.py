"""Series in memory, and their page in Prometheus' text format.

The client library takes half a second for the page of 1,000 streams, since it makes every line again. Here a
series keeps its lines until its value changes, and the page comes in slices. A contract suite compares the
page with that of the library.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

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
