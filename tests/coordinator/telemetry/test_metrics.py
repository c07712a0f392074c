"""Each metric has its value, revoked streams and partitions are removed, and all are documented."""

from collections.abc import Callable

import pytest

import sluicegate
from sluicegate.coordinator.core.state_record import Condition
from sluicegate.coordinator.observe.metrics import Metrics
from sluicegate.events.problems import Code, Problem
from tests.coordinator.telemetry.pages import value_of
from tools.docs import metrics_page

STALL = Condition(kind="stall", problem=Problem(code=Code.TABLE_UNFIT))
OF_REGION = Condition(kind="stall", problem=Problem(code=Code.FILES_LOST, region="EWR"))


@pytest.mark.parametrize(
    ("act", "name", "labels", "value"),
    [
        (lambda m: m.lag(1, 5), "consumer_lag_records", {"partition": "1"}, 5),
        (lambda m: m.offsets(1, 9, 4), "partition_position_offset", {"partition": "1"}, 9),
        (lambda m: m.offsets(1, 9, 4), "partition_low_water_offset", {"partition": "1"}, 4),
        (lambda m: m.events_read("region.registered", 3), "events_total", {"type": "region.registered"}, 3),
        (lambda m: m.dead_letter("no-event"), "dead_letters_total", {"code": "no-event"}, 1),
        (lambda m: m.assigned(3), "assignment_epoch", {}, 3),
        (lambda m: m.pending("s", 7, 1.5), "pending_files", {"stream": "s"}, 7),
        (lambda m: m.pending("s", 7, 1.5), "oldest_unsealed_age_seconds", {"stream": "s"}, 1.5),
        (lambda m: m.uncut("s", 2.5), "oldest_uncut_age_seconds", {"stream": "s"}, 2.5),
        (lambda m: m.commit_took("s", 0.3), "commit_seconds_sum", {"stream": "s"}, 0.3),
        (lambda m: m.cut_visible("s", "full", 0.2), "event_to_snapshot_seconds_sum", {"stream": "s"}, 0.2),
        (
            lambda m: m.cut_visible("s", "partial", None),
            "cuts_total",
            {"stream": "s", "outcome": "partial"},
            1,
        ),
        (lambda m: m.cut("s", "abandoned"), "cuts_total", {"stream": "s", "outcome": "abandoned"}, 1),
        (
            lambda m: m.regions("s", {"r": 2}, {}, single=False),
            "region_consecutive_fallbacks",
            {"stream": "s", "region": "r"},
            2,
        ),
        (
            lambda m: m.regions("s", {"r": 0}, {"r": 1_500, "unknown": 1}, single=False),
            "region_last_event_timestamp_seconds",
            {"stream": "s", "region": "r"},
            1.5,
        ),
        (lambda m: m.regions("s", {}, {}, single=True), "stream_single_region", {"stream": "s"}, 1),
        (
            lambda m: m.cut_visible("s", "full", None),
            "event_to_snapshot_seconds_count",
            {"stream": "s"},
            None,
        ),
        (
            lambda m: m.refused("s", Code.NOT_FULL),
            "refusals_total",
            {"stream": "s", "code": "not-full"},
            1,
        ),
        (
            lambda m: m.conditions("s", [STALL, OF_REGION, OF_REGION]),
            "stream_conditions",
            {"stream": "s", "kind": "stall", "code": "files-lost"},
            2,
        ),
        (lambda m: m.watermark("s", 1_500), "watermark_timestamp_seconds", {"stream": "s"}, 1.5),
        (lambda m: m.watermark("s", None), "watermark_timestamp_seconds", {"stream": "s"}, None),
        (lambda m: m.committed("s", 3, 40, 5.5), "committed_rows_total", {"stream": "s"}, 3),
        (lambda m: m.committed("s", 3, 40, 5.5), "committed_bytes_total", {"stream": "s"}, 40),
        (lambda m: m.committed("s", 3, 40, 5.5), "last_commit_timestamp_seconds", {"stream": "s"}, 5.5),
        (lambda m: None, "build_info", {"version": sluicegate.__version__}, 1),
        (
            lambda m: m.effect_failed("s", "ask"),
            "effect_failures_total",
            {"stream": "s", "effect": "ask"},
            1,
        ),
        (lambda m: m.bodies_held(99), "bodies_held_bytes", {}, 99),
        (lambda m: m.pending_bytes("s", 77), "pending_bytes", {"stream": "s"}, 77),
        (lambda m: m.oldest_needed("s", 2_500), "oldest_needed_timestamp_seconds", {"stream": "s"}, 2.5),
        (lambda m: m.recorded("s", 900), "state_record_bytes", {"stream": "s"}, 900),
        (
            lambda m: m.stalled("s", Code.TABLE_UNFIT, 1.5),
            "stall_seconds_total",
            {"stream": "s", "code": "table-unfit"},
            1.5,
        ),
        (lambda m: m.process.loop_late([0.3, 0.2]), "event_loop_lag_seconds_bucket", {"le": "0.25"}, 1),
        (lambda m: m.process.table_calls(2, 4.5), "table_calls_stuck", {}, 2),
        (lambda m: m.process.table_calls(2, 4.5), "table_call_longest_seconds", {}, 4.5),
        (lambda m: m.process.connected(3, 12, kafka_up=True), "partitions_owned", {}, 3),
        (lambda m: m.process.connected(3, 12, kafka_up=True), "events_partitions", {}, 12),
        (lambda m: m.process.connected(3, 12, kafka_up=True), "kafka_up", {}, 1),
        (lambda m: m.process.retention("e", 60.0), "events_retention_seconds", {"topic": "e"}, 60),
        (lambda m: m.process.memory(500), "bodies_limit_bytes", {}, 500),
        (lambda m: m.owners.show("s", "team"), "stream_owner_info", {"stream": "s", "owner": "team"}, 1),
        (lambda m: m.bodies_refetched(2), "bodies_refetched_total", {}, 2),
    ],
)
def test_each_method_moves_its_metric(
    act: Callable[[Metrics], None], name: str, labels: dict[str, str], value: float | None
) -> None:
    metrics = Metrics()
    act(metrics)
    assert value_of(metrics, name, **labels) == value


@pytest.mark.slow
def test_gauges_of_revoked_partitions_and_streams_are_removed() -> None:
    metrics = Metrics()
    for partition in (1, 2):
        metrics.lag(partition, 5)
        metrics.offsets(partition, 9, 4)
    for stream in ("mine", "theirs"):
        metrics.pending(stream, 1, 1.0)
        metrics.uncut(stream, 1.0)
        metrics.conditions(stream, [STALL])
        metrics.watermark(stream, 5)
        metrics.regions(stream, {"r1": 1, "r2": 0}, {"r1": 1_000}, single=False)
        metrics.cut_visible(stream, "full", 0.1)
        metrics.pending_bytes(stream, 5)
        metrics.oldest_needed(stream, 1_000)
        metrics.recorded(stream, 100)
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
    for gauge in ("pending_files", *ages, *more, "stream_single_region"):
        assert value_of(metrics, gauge, stream="theirs") is None
        assert value_of(metrics, gauge, stream="mine") is not None
    labels = {"kind": "stall", "code": "table-unfit"}
    assert value_of(metrics, "stream_conditions", stream="theirs", **labels) is None
    assert value_of(metrics, "stream_conditions", stream="mine", **labels) == 1
    # Counters continue, or rates would jump.
    assert value_of(metrics, "cuts_total", stream="theirs", outcome="full") == 1


def test_a_stream_has_the_owner_of_its_newest_settings() -> None:
    metrics = Metrics()
    for stream in ("mine", "theirs"):
        metrics.owners.show(stream, "former")
        metrics.owners.show(stream, "team")
    metrics.forget_stream("theirs")
    assert value_of(metrics, "stream_owner_info", stream="theirs", owner="team") is None
    assert value_of(metrics, "stream_owner_info", stream="mine", owner="team") == 1
    assert 'owner="former"' not in metrics.render().decode()
    metrics.owners.show("mine", "")
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
    metrics.oldest_needed("s", 5_000)
    metrics.oldest_needed("s", None)
    metrics.oldest_needed("t", None)
    assert b"sluicegate_oldest_needed_timestamp_seconds{" not in metrics.render()
    metrics.process.retention("e", 5.0)
    metrics.process.retention("e", None)
    assert b"sluicegate_events_retention_seconds{" not in metrics.render()


def test_nothing_is_served_without_a_session() -> None:
    metrics = Metrics()
    metrics.process.connected(3, 12, kafka_up=True)
    metrics.process.disconnected()
    assert [value_of(metrics, name) for name in ("partitions_owned", "events_partitions", "kafka_up")] == [
        0,
        12,
        0,
    ]


def test_forgetting_unknown_streams_has_no_effect() -> None:
    metrics = Metrics()
    metrics.forget_partition(7)
    metrics.forget_stream("nobody")


@pytest.mark.parametrize("histogram", ["commit_seconds", "event_to_snapshot_seconds"])
def test_histograms_reach_from_a_millisecond_to_a_minute(histogram: str) -> None:
    metrics = Metrics()
    metrics.commit_took("s", 30.0)
    metrics.cut_visible("s", "full", 30.0)
    assert value_of(metrics, f"{histogram}_bucket", stream="s", le="0.001") == 0
    assert value_of(metrics, f"{histogram}_bucket", stream="s", le="60.0") == 1


def test_two_registries_do_not_share_anything() -> None:
    one, other = Metrics(), Metrics()
    one.assigned(5)
    assert value_of(other, "assignment_epoch") == 0


def test_every_metric_is_documented() -> None:
    metrics = Metrics()
    names = [each.name for each in metrics.definitions]
    assert len(names) == len({*names})
    text = metrics_page.render()
    assert all(f"`{each.name}`" in text and each.unit and each.help for each in metrics.definitions)
