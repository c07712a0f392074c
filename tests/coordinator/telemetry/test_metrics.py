"""Each metric has its value, revoked streams and partitions are removed, and all are documented."""

import pytest

import sluicegate
from sluicegate.coordinator.core.state_record import Condition
from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.events.problems import Code, Problem
from tests.coordinator.telemetry.pages import value_of
from tools.docs import metrics_page

STALL = Condition(kind="stall", problem=Problem(code=Code.TABLE_UNFIT))
OF_REGION = Condition(kind="stall", problem=Problem(code=Code.FILES_LOST, region="EWR"))


def test_values_follow_their_labels() -> None:
    metrics = Metrics()
    metrics.lag.set(5, "1")
    metrics.events.add(3, "region.registered")
    metrics.commit_seconds.observe(0.3, "s")
    metrics.epoch.set(3)
    assert value_of(metrics, "consumer_lag_records", partition="1") == 5
    assert value_of(metrics, "events_total", type="region.registered") == 3
    assert value_of(metrics, "commit_seconds_sum", stream="s") == 0.3
    assert value_of(metrics, "assignment_epoch") == 3
    assert value_of(metrics, "build_info", version=sluicegate.__version__) == 1


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
    labels = {"kind": "stall", "code": "table-unfit"}
    assert value_of(metrics, "stream_conditions", stream="theirs", **labels) is None
    assert value_of(metrics, "stream_conditions", stream="mine", **labels) == 1
    # Counters continue, or rates would jump.
    assert value_of(metrics, "cuts_total", stream="theirs", outcome="full") == 1


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


def test_conditions_that_ended_have_no_series() -> None:
    metrics = Metrics()
    metrics.conditions("s", [STALL, OF_REGION])
    metrics.conditions("s", [OF_REGION])
    assert value_of(metrics, "stream_conditions", stream="s", kind="stall", code="table-unfit") is None
    assert value_of(metrics, "stream_conditions", stream="s", kind="stall", code="files-lost") == 1
    metrics.conditions("s", [])
    assert b"sluicegate_stream_conditions{" not in metrics.render()


def test_what_is_absent_has_no_series() -> None:
    metrics = Metrics()
    metrics.oldest_needed.set(5, "s")
    metrics.oldest_needed.set(None, "s")
    metrics.oldest_needed.set(None, "t")
    assert b"sluicegate_oldest_needed_timestamp_seconds{" not in metrics.render()


def test_forgetting_unknown_streams_has_no_effect() -> None:
    metrics = Metrics()
    metrics.forget_partition(7)
    metrics.forget_stream("nobody")


@pytest.mark.parametrize("histogram", ["commit_seconds", "event_to_snapshot_seconds"])
def test_histograms_reach_from_a_millisecond_to_a_minute(histogram: str) -> None:
    metrics = Metrics()
    metrics.commit_seconds.observe(30.0, "s")
    metrics.event_to_snapshot.observe(30.0, "s")
    assert value_of(metrics, f"{histogram}_bucket", stream="s", le="0.001") == 0
    assert value_of(metrics, f"{histogram}_bucket", stream="s", le="60.0") == 1


def test_two_registries_do_not_share_anything() -> None:
    one, other = Metrics(), Metrics()
    one.epoch.set(5)
    assert value_of(other, "assignment_epoch") == 0


def test_every_metric_is_documented() -> None:
    metrics = Metrics()
    names = [each.name for each in metrics.definitions]
    assert len(names) == len({*names})
    text = metrics_page.render()
    assert all(f"`{each.name}`" in text and each.unit and each.help for each in metrics.definitions)
