"""Parts of the plain Python driver that need no server."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.events.models import Assignment, Position, RegionHeartbeat
from sluicegate.writer_hooks import (
    BadOption,
    HookError,
    Job,
    NotOurs,
    PublishFailed,
    RegionDriver,
    SourceOffsetsUnknown,
    incarnation,
)
from sluicegate.writer_hooks.driver import DriverHeartbeats
from sluicegate.writer_hooks.incarnation import offsets_text, parsed_offsets
from sluicegate.writer_hooks.job import _ids_of, _newest
from sluicegate.writer_hooks.region import KafkaSettings, Region, Registered
from sluicegate.writer_hooks.spark.source import _result_of
from tests.integration.waiting import wait_until

BASE = Position(incarnation="job-1", checkpoint=3, digest="d")


def region() -> Region:
    """A region whose Kafka does not answer."""
    kafka = KafkaSettings.from_options({"kafka.bootstrap.servers": "127.0.0.1:1"})
    return Region("flights", "r1", kafka, Assignment(number=0, regions=("r1",)), publish_timeout=0.2)


def test_a_driver_that_ends_without_kafka_says_what_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    beats = DriverHeartbeats(region(), interval=0.05, idle_after=0.0)
    beats.start(Registered("driver-1", "run"))
    wait_until(lambda: "a heartbeat was not sent (2 in a row)" in caplog.text)
    beats.stop(idle=True)
    assert "to alignment_timeout; start the driver again to end that" in caplog.text
    assert "unless the topics were deleted: then, after a new start" in caplog.text


class Sent:
    """Heartbeats that a driver sends, in the order of the log; with `fails` without acknowledgement."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bodies: list[RegionHeartbeat] = []
        self.fails = False
        monkeypatch.setattr(
            DriverHeartbeats, "_send", lambda beats, event, timeout=None: self.send(event.body)
        )

    def send(self, body: RegionHeartbeat) -> None:
        self.bodies.append(body)
        if self.fails:
            raise PublishFailed("no acknowledgement")

    def idle(self) -> list[int | None]:
        """Return the checkpoints that heartbeats named which said idle."""
        return [each.after for each in self.bodies if each.idle]

    def beginnings(self) -> list[int]:
        return [each.begins for each in self.bodies if each.begins is not None]


@pytest.mark.slow
def test_a_checkpoint_after_a_pause_states_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch)
    beats = DriverHeartbeats(region(), interval=0.01, idle_after=0.0)
    beats.start(Registered("driver-1", "run"))
    wait_until(sent.idle)
    assert set(sent.idle()) == {None}
    beats.begin(4)
    assert sent.beginnings() == [4], "it is in the log before the first row"
    seen = len(sent.bodies)
    wait_until(lambda: len(sent.bodies) > seen + 2)
    assert not any(body.idle for body in sent.bodies[seen + 1 :])
    # Checkpoints without a pause between them state nothing.
    beats.begin(5)
    beats.complete(4)
    seen = len(sent.bodies)
    wait_until(lambda: len(sent.bodies) > seen + 2)
    assert (sent.beginnings(), sent.idle()[-1]) == ([4], None)
    beats.complete(5)
    wait_until(lambda: sent.idle()[-1] == 5)
    beats.begin(6)
    beats.complete(6)
    beats.stop(idle=True)
    assert (sent.beginnings(), sent.idle()[-1]) == ([4, 6], 6)


def test_a_beginning_without_acknowledgement_is_an_error_and_stated_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = Sent(monkeypatch)
    beats = DriverHeartbeats(region(), interval=60.0, idle_after=0.0)
    sent.fails = True
    beats.start(Registered("driver-1", "run"))
    # This one may be in the log, too.
    wait_until(sent.idle)
    with pytest.raises(PublishFailed):
        beats.begin(0)
    sent.fails = False
    beats.begin(0)
    assert sent.beginnings() == [0, 0]
    beats.stop(idle=False)
    assert sent.bodies[-1].begins == 0


def test_a_region_whose_beginning_failed_is_idle_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has begun, so other regions do not wait for it."""
    sent = Sent(monkeypatch)
    beats = DriverHeartbeats(region(), interval=0.01, idle_after=0.0)
    beats.start(Registered("driver-1", "run"))
    beats.begin(2)
    beats.complete(2)
    wait_until(lambda: sent.idle()[-1:] == [2])
    sent.fails = True
    with pytest.raises(PublishFailed):
        beats.begin(3)
    sent.fails = False
    seen = len(sent.bodies)
    wait_until(lambda: any(body.idle and body.after == 2 for body in sent.bodies[seen:]))
    beats.stop(idle=False)


@pytest.mark.parametrize(("interval", "idle_after"), [(0.0, 1.0), (1.0, -1.0)])
def test_a_wrong_cadence_is_refused(interval: float, idle_after: float) -> None:
    with pytest.raises(BadOption, match=r"must be above 0, and idle_after \(.*\) at least 0, in seconds"):
        DriverHeartbeats(region(), interval, idle_after)


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
    monkeypatch.setattr(incarnation, "_FIRST_WARNING", 0.0)
    with pytest.raises(TimeoutError):
        incarnation.DriverState(region(), None).await_commit(0, 0.01, lambda: None)
    assert "is not committed after 0 s; `sluicegate status` shows what it waits for" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({0: 10}, "the key 0 of source_offsets would come back as text. Use texts as keys"),
        ({"a": {None: 1}}, "the key None of source_offsets['a'] would come back as text"),
        ({True: 1}, "the key True of"),
        ({1.5: 1, "1.5": 2}, "the key 1.5 of"),
        (
            {"a": [1, (2, 3)]},
            "source_offsets['a'][1] is of the type tuple, which JSON does not have. Give a list",
        ),
        ((1, 2), "source_offsets is of the type tuple"),
        ({"a": float("nan")}, "source_offsets['a'] is nan, which JSON does not have"),
        ([float("inf")], "source_offsets[0] is inf"),
        ({"a": {1}}, "source_offsets['a'] is of the type set"),
        (b"x", "source_offsets is of the type bytes"),
        (datetime(2026, 1, 1, tzinfo=UTC), "source_offsets is of the type datetime"),
        (None, "must not be None"),
    ],
)
def test_source_offsets_that_json_changes_are_refused(given: object, told: str) -> None:
    """They would come back as others, and a restart would not find its place in the source."""
    with pytest.raises(BadOption) as raised:
        offsets_text(given)
    assert told in str(raised.value)


def test_a_list_that_contains_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(BadOption, match="must be JSON data"):
        offsets_text(endless)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.slow
@given(JSON.filter(lambda value: value is not None))
def test_source_offsets_come_back_as_they_were_given(value: object) -> None:
    found = parsed_offsets(offsets_text(value))
    assert (found, repr(type(found))) == (value, repr(type(value)))


@pytest.mark.slow
def test_a_region_remembers_as_many_jobs_as_a_completion_can_carry() -> None:
    assert _newest([str(number) for number in range(3_000)]) == [str(n) for n in range(2_000, 3_000)]
    long = [f"{number:0200}" for number in range(1_000)]
    kept = _newest(long)
    assert 200 < len(kept) < 400
    assert kept == long[-len(kept) :]
