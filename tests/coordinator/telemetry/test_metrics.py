"""Each metric has its value, and those of revoked streams and partitions are removed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Counter as TheirCounter
from prometheus_client import Gauge as TheirGauge
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.parser import text_string_to_metric_families

from sluicegate.coordinator.core.state_record import Condition
from sluicegate.coordinator.observe.metrics import Metrics, Registry
from sluicegate.events.problems import Code, Problem
from tests.coordinator.telemetry.pages import value_of

STALL = Condition(kind="stall", problem=Problem(code=Code.TABLE_UNFIT))


@pytest.mark.slow
def test_gauges_of_revoked_partitions_and_streams_are_removed() -> None:
    metrics = Metrics()
    for partition in (1, 2):
        for gauge in (metrics.lag, metrics.position, metrics.low_water):
            gauge.set(5, str(partition))
    for stream in ("mine", "theirs"):
        of_stream = (
            *(metrics.pending_files, metrics.oldest_unsealed, metrics.oldest_uncut, metrics.watermark),
            *(metrics.pending_bytes, metrics.oldest_needed, metrics.record_size, metrics.single_region),
        )
        for gauge in of_stream:
            gauge.set(1, stream)
        metrics.conditions(stream, [STALL])
        metrics.fallbacks.set(1, stream, "r1")
        metrics.heard.set(1, stream, "r1")
        metrics.cuts.add(1, stream, "full")
    metrics.forget_partition(1)
    metrics.forget_stream("theirs")
    shown = metrics.render().decode()
    assert 'partition="1"' not in shown
    assert shown.count('partition="2"') == 3
    assert value_of(metrics, "region_consecutive_fallbacks", stream="theirs", region="r1") is None
    assert value_of(metrics, "region_consecutive_fallbacks", stream="mine", region="r1") == 1
    assert value_of(metrics, "region_last_event_timestamp_seconds", stream="theirs", region="r1") is None
    assert value_of(metrics, "region_last_event_timestamp_seconds", stream="mine", region="r1") == 1
    ages = ("oldest_unsealed_age_seconds", "oldest_uncut_age_seconds")
    more = ("pending_bytes", "oldest_needed_timestamp_seconds", "state_record_bytes")
    for name in ("pending_files", *ages, *more, "stream_single_region"):
        assert value_of(metrics, name, stream="theirs") is None
        assert value_of(metrics, name, stream="mine") is not None
    labels = {"kind": "stall", "code": "table-unfit", "table": ""}
    assert value_of(metrics, "stream_conditions", stream="theirs", **labels) is None
    assert value_of(metrics, "stream_conditions", stream="mine", **labels) == 1
    # Counters continue, or rates would jump.
    assert value_of(metrics, "cuts_total", stream="theirs", outcome="full") == 1


def test_a_region_has_failed_until_its_driver_says_more() -> None:
    metrics = Metrics()
    given_up = Problem(code=Code.DECLINED, region="r1", checkpoint=7, names=("batch-failed",), detail="x")
    slow = given_up.model_copy(update={"region": "r2", "names": ("declined",)})
    waits = [Condition(kind="wait", problem=each) for each in (given_up, slow)]
    for stream in ("mine", "theirs"):
        metrics.conditions(stream, waits)
    labels = {"stream": "mine", "region": "r1", "code": "batch-failed"}
    assert value_of(metrics, "region_failed", **labels) == 1
    assert metrics.render().decode().count("sluicegate_region_failed{") == 2
    metrics.conditions("mine", waits[1:])
    assert value_of(metrics, "region_failed", **labels) is None
    metrics.forget_stream("theirs")
    assert "sluicegate_region_failed{" not in metrics.render().decode()


def test_a_stream_has_the_owner_of_its_newest_settings() -> None:
    metrics = Metrics()
    for stream in ("mine", "theirs"):
        metrics.owner(stream, "former")
        metrics.owner(stream, "team")
    metrics.forget_stream("theirs")
    assert value_of(metrics, "stream_owner_info", stream="theirs", owner="team") is None
    assert value_of(metrics, "stream_owner_info", stream="mine", owner="team") == 1
    assert 'owner="former"' not in metrics.render().decode()
    metrics.owner("mine", "")
    assert value_of(metrics, "stream_owner_info", stream="mine", owner="team") is None


def test_what_is_absent_has_no_series() -> None:
    metrics = Metrics()
    metrics.oldest_needed.set(5, "s")
    metrics.oldest_needed.set(None, "s")
    metrics.oldest_needed.set(None, "t")
    assert b"sluicegate_oldest_needed_timestamp_seconds{" not in metrics.render()


BOUNDS = (0.1, 1.0, 2.5)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=5)
VALUES = st.floats(allow_nan=False, allow_infinity=False, width=32)

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["gauge", "counter", "histogram", "remove", "forget"]), NAMES, NAMES, VALUES),
    max_size=30,
)

Shown = dict[tuple[str, frozenset[tuple[str, str]]], float]


def shown(page: str) -> tuple[Shown, dict[str, tuple[str, str]]]:
    """The samples of a page, and kind and help of its families; nobody reads the times of creation."""
    samples, kinds = {}, {}
    for family in text_string_to_metric_families(page):
        if family.samples:
            kinds[family.name] = (family.type, family.documentation)
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                samples[sample.name, frozenset(sample.labels.items())] = sample.value
    return samples, {name: kind for name, kind in kinds.items() if not name.endswith("_created")}


@pytest.mark.slow
@given(ACTIONS)
def test_the_page_is_that_of_the_library(actions: list[tuple[str, str, str, float]]) -> None:
    ours, theirs, labels = Registry("x_"), CollectorRegistry(), ("one", "two")
    gauge = ours.gauge("level", "number", labels, 'a "level"\nin \\ lines')
    counter = ours.counter("done_total", "number", labels, "done")
    histogram = ours.histogram("took_seconds", "seconds", labels, BOUNDS, "took")
    their_gauge = TheirGauge("x_level", 'a "level"\nin \\ lines', labels, registry=theirs)
    their_counter = TheirCounter("x_done_total", "done", labels, registry=theirs)
    their_histogram = TheirHistogram("x_took_seconds", "took", labels, buckets=BOUNDS, registry=theirs)
    for kind, one, two, value in actions:
        if kind == "gauge":
            gauge.labels(one, two).set(value)
            their_gauge.labels(one, two).set(value)
        elif kind == "counter":
            counter.labels(one, two).inc(abs(value))
            their_counter.labels(one, two).inc(abs(value))
        elif kind == "histogram":
            histogram.labels(one, two).observe(value)
            their_histogram.labels(one, two).observe(value)
        elif kind == "remove":
            gauge.remove(one, two)
            their_gauge.remove_by_labels({"one": one, "two": two})
        else:
            gauge.remove_by_labels({"one": one})
            their_gauge.remove_by_labels({"one": one})
        # Series keep their lines, so the page is made after each action.
        assert shown("".join(ours.slices())) == shown(generate_latest(theirs).decode())


def test_a_metric_without_labels_has_its_series_from_the_start() -> None:
    ours, theirs = Registry("x_"), CollectorRegistry()
    ours.gauge("level", "number", (), "level")
    ours.counter("done_total", "number", (), "done").add(1)
    took = ours.histogram("took_seconds", "seconds", (), BOUNDS, "took")
    TheirGauge("x_level", "level", registry=theirs)
    TheirCounter("x_done_total", "done", registry=theirs).inc()
    their_took = TheirHistogram("x_took_seconds", "took", buckets=BOUNDS, registry=theirs)
    for value in (0.1, 0.5, 7.0):
        took.observe(value)
        their_took.observe(value)
    assert shown("".join(ours.slices())) == shown(generate_latest(theirs).decode())


def test_a_large_page_comes_in_slices_and_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.coordinator.observe.metrics.SLICE", 0.0)
    registry = Registry("x_")
    gauge = registry.gauge("level", "number", ("stream",), "level")
    for number in range(200):
        gauge.labels(str(number)).set(number)
    slices = list(registry.slices())
    assert len(slices) > 3
    assert shown("".join(slices))[0] == {
        ("x_level", frozenset({("stream", str(number))})): float(number) for number in range(200)
    }


def test_series_may_end_while_the_page_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluicegate.coordinator.observe.metrics.SLICE", 0.0)
    registry = Registry("x_")
    gauge = registry.gauge("level", "number", ("stream",), "level")
    for number in range(200):
        gauge.labels(str(number)).set(1)
    slices = registry.slices()
    first = next(slices)
    for number in range(200):
        gauge.remove(str(number))
    gauge.labels("new").set(1)
    assert shown(first + "".join(slices))[0]


def test_a_counter_cannot_fall() -> None:
    counter = Registry("x_").counter("done_total", "number", (), "done")
    with pytest.raises(ValueError, match="cannot fall"):
        counter.add(-1)
