"""Parts of the plain Python driver that need no server."""

import pyarrow as pa
import pytest

from sluicegate.events.models import Assignment, Position
from sluicegate.writer_hooks import (
    BadOption,
    HookError,
    Job,
    NotOurs,
    RegionDriver,
    SourceOffsetsUnknown,
    driver_state,
)
from sluicegate.writer_hooks.beats import Beats
from sluicegate.writer_hooks.job import _ids_of, _newest
from sluicegate.writer_hooks.kafka import KafkaSettings
from sluicegate.writer_hooks.region import Region, Registered
from sluicegate.writer_hooks.spark.jobs import _result_of
from tests.integration.waiting import wait_until

BASE = Position(incarnation="job-1", checkpoint=3, digest="d")


def region() -> Region:
    """A region whose Kafka does not answer."""
    kafka = KafkaSettings.from_options({"kafka.bootstrap.servers": "127.0.0.1:1"})
    return Region("flights", "r1", kafka, Assignment(number=0, regions=("r1",)), publish_timeout=0.2)


def test_a_driver_that_ends_without_kafka_says_what_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    beats = Beats(region(), interval=0.05, idle_after=0.0)
    beats.start(Registered("driver-1", "run"))
    wait_until(lambda: "a heartbeat was not sent (2 in a row)" in caplog.text)
    beats.stop(idle=True)
    assert "to alignment_timeout; start the driver again to end that" in caplog.text
    assert "unless the topics were deleted: then, after a new start" in caplog.text


@pytest.mark.parametrize(("interval", "idle_after"), [(0.0, 1.0), (1.0, -1.0)])
def test_a_wrong_cadence_is_refused(interval: float, idle_after: float) -> None:
    with pytest.raises(BadOption, match=r"must be above 0, and idle_after \(.*\) at least 0, in seconds"):
        Beats(region(), interval, idle_after)


@pytest.mark.parametrize("text", [None, "17", "{}", '{"jobs": 1}', '{"jobs": [1]}'])
def test_a_region_whose_offsets_are_no_jobs_is_refused(text: str | None) -> None:
    with pytest.raises(SourceOffsetsUnknown, match="Give the jobs a region of their own"):
        _ids_of(region(), BASE, text)


def test_a_job_that_was_not_started_says_so() -> None:
    options = {
        "stream": "flights",
        "region": "jobs",
        "table": "/lake/flights",
        "format": "delta",
        "kafka.bootstrap.servers": "127.0.0.1:1",
    }
    with pytest.raises(HookError, match="call `start` to run it"):
        Job(options, "monday").write("w0", pa.table({"id": [1]}))
    with pytest.raises(NotOurs, match="run the job again, with the same id"):
        _result_of(None)


def test_open_checkpoints_that_cannot_be_given_up_are_named(caplog: pytest.LogCaptureFixture) -> None:
    options = {
        "stream": "flights",
        "region": "r1",
        "table": "/lake/flights",
        "format": "delta",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "publish.timeout": "0.2",
    }
    driver = RegionDriver(options)
    driver._registered, driver._incarnation = Registered("driver-1", "run"), "driver-1"
    driver.begin()
    driver.stop()
    assert "start a driver of it to end that" in caplog.text
    assert "unless the topics were deleted: then, after a new start" in caplog.text


def test_a_wait_for_a_commit_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_state, "_FIRST_WARNING", 0.0)
    with pytest.raises(TimeoutError):
        driver_state.DriverState(region(), None).await_commit(0, 0.01, lambda: None)
    assert "is not committed after 0 s; `sluicegate status` shows what it waits for" in caplog.text


@pytest.mark.slow
def test_a_region_remembers_as_many_jobs_as_a_completion_can_carry() -> None:
    assert _newest([str(number) for number in range(3_000)]) == [str(n) for n in range(2_000, 3_000)]
    long = [f"{number:0200}" for number in range(1_000)]
    kept = _newest(long)
    assert 200 < len(kept) < 400
    assert kept == long[-len(kept) :]
