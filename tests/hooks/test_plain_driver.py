"""Parts of the plain Python driver that need no server: its state, completions, results and heartbeats."""

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.events.codec import read_completion
from sluicegate.events.encoding import Message
from sluicegate.events.envelope import EventType
from sluicegate.events.files import HEADROOM
from sluicegate.events.models import (
    Assignment,
    CheckpointCompleted,
    CutReverted,
    FileInfo,
    FilesWritten,
    Position,
    RegionHeartbeat,
)
from sluicegate.events.notifications import (
    Committed,
    IncarnationsEnded,
    Notification,
    NotificationType,
    RegistrationAnswered,
)
from sluicegate.writer_hooks import (
    BadOption,
    HookError,
    Job,
    NotOurs,
    OpenCheckpoint,
    PublishFailed,
    RegionDriver,
    RegionOutcome,
    SourceOffsetsUnknown,
    driver,
    driver_state,
    publisher,
)
from sluicegate.writer_hooks.commit_feed import CommitFeed
from sluicegate.writer_hooks.driver import DriverHeartbeats
from sluicegate.writer_hooks.driver_state import (
    CommittedCheckpoint,
    DriverState,
    completion,
    offsets_text,
    parsed_offsets,
)
from sluicegate.writer_hooks.errors import RegionReplaced, RegistrationUnanswered
from sluicegate.writer_hooks.job import _ids_of, _newest
from sluicegate.writer_hooks.options import Repetition
from sluicegate.writer_hooks.publisher import encoded
from sluicegate.writer_hooks.region import Attempt, Event, KafkaSettings, Region, Registered, file_event
from sluicegate.writer_hooks.spark.source import _result_of
from sluicegate.writer_hooks.writer import WriterResult, Written, this_process
from tests.hooks.options import OPTIONS as SINK
from tests.integration.waiting import wait_until

OPTIONS = SINK | {"region": "r1", "format": "delta"}
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
@pytest.mark.parametrize(
    ("registration", "publish", "named"),
    [("0.2", "5", r"within 0\.2 s \(registration\.timeout\)"), ("5", "0.2", r"0\.2 s \(publish\.timeout\)")],
)
def test_a_start_without_kafka_ends_by_the_smaller_limit_and_names_it(
    registration: str, publish: str, named: str
) -> None:
    options = OPTIONS | {"registration.timeout": registration, "publish.timeout": publish}
    with pytest.raises(PublishFailed, match=named):
        RegionDriver(options).start()


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
    # That beginning may be in the log, and the last heartbeat ends it.
    beats.stop(idle=True)
    assert sent.idle()[-1] == 3


@pytest.mark.parametrize(("interval", "idle_after"), [(0.0, 1.0), (1.0, -1.0)])
def test_a_wrong_cadence_is_refused(interval: float, idle_after: float) -> None:
    with pytest.raises(BadOption, match=r"must be above 0, and idle_after \(.*\) at least 0, in seconds"):
        DriverHeartbeats(region(), interval, idle_after)


@pytest.mark.parametrize("text", [None, "17", "{}", '{"jobs": 1}', '{"jobs": [1]}'])
def test_a_region_whose_offsets_are_no_jobs_is_refused(text: str | None) -> None:
    with pytest.raises(SourceOffsetsUnknown, match="Give the jobs a region of their own"):
        _ids_of(region(), BASE, text)


def test_a_job_that_was_not_started_says_so() -> None:
    with pytest.raises(HookError, match="call `start` to run it"):
        Job(OPTIONS, "monday").write("w0", pa.table({"id": [1]}))
    with pytest.raises(NotOurs, match="run the job again, with the same id"):
        _result_of(None)


def test_open_checkpoints_that_cannot_be_given_up_are_named(caplog: pytest.LogCaptureFixture) -> None:
    driver = RegionDriver(OPTIONS | {"publish.timeout": "0.2"})
    driver._registered, driver._incarnation = Registered("driver-1", "run"), "driver-1"
    driver.begin()
    driver.stop()
    assert "start a driver of it to end that" in caplog.text
    assert "unless the topics were deleted: then, after a new start" in caplog.text


def test_a_place_that_nobody_has_stated_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver after an adoption gives up its first checkpoint: no later start begins at the beginning."""
    published: list[CheckpointCompleted] = []

    def completed(_region: Region, events: Sequence[Event], *_: object) -> None:
        published.extend(cast(CheckpointCompleted, each.body) for each in events)

    monkeypatch.setattr(driver, "publish_completion", completed)
    registered = Registered("driver-1", "run")
    for known in (None, "null", "17"):
        new = driver_state.NewIncarnation(registered, BASE, known)
        monkeypatch.setattr(driver, "begin_incarnation", lambda *_, new=new, **__: new)
        monkeypatch.setattr(CommitFeed, "start", lambda _: None)
        made = RegionDriver(OPTIONS | {"publish.timeout": "0.2"}, take_over=True, heartbeat_interval=0.1)
        after = made.start()
        assert (after is None) == (known == "null")
        made.begin()
        made.stop()
        assert [each.source_offsets for each in published] == [known]
        published.clear()


def test_a_wait_for_a_commit_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_state, "_FIRST_WARNING", 0.0)
    with pytest.raises(TimeoutError):
        driver_state.DriverState(region(), None).await_commit(0, 0.01, lambda: None)
    assert "is not committed after 0 s; `sluicegate status` shows what it waits for" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({0: 10}, "comes back as {'0': 10}. Use texts as keys"),
        ({"a": {None: 1}}, "comes back as {'a': {'null': 1}}"),
        ({True: 1}, "comes back as {'true': 1}"),
        ({1.5: 1, "1.5": 2}, "must be JSON data"),
        ({"a": [1, (2, 3)]}, "comes back as {'a': [1, [2, 3]]}"),
        ((1, 2), "comes back as [1, 2]"),
        ({"a": float("nan")}, "must be JSON data"),
        ([float("inf")], "must be JSON data"),
        ({"a": {1}}, "must be JSON data"),
        (b"x", "must be JSON data"),
        (datetime(2026, 1, 1, tzinfo=UTC), "must be JSON data"),
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


OWN = Registered("q1", "run")


def at(number: int, incarnation: str = "q1", digest: str = "d") -> Position:
    return Position(incarnation=incarnation, checkpoint=number, digest=f"{digest}{number}")


def state_with(*completed: int) -> tuple[DriverState, list[int]]:
    """Return the state of a driver that has completed these checkpoints, and the numbers of its commits."""
    commits = list[int]()
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    region = Region("flights", "r1", kafka, Assignment(number=0, regions=("r1",)))
    state = DriverState(region, lambda found: commits.append(found.number))
    state.begin(OWN, None)
    for number in completed:
        state.add_completed(CommittedCheckpoint(number, {"n": number}, at(number)))
    return state, commits


def commit(state: DriverState, position: Position) -> None:
    """Let the driver read that a commit has its region at a position."""
    body = Committed(decision=1, cut={"r1": position}, snapshot=None, watermark=None, files=0)
    state.apply(Notification("c", NotificationType.COMMITTED, "flights", "", "", body))


def test_a_commit_frees_its_checkpoint_and_those_before_it() -> None:
    state, commits = state_with(1, 2, 3)
    commit(state, at(2))
    assert (state.committed, commits) == (CommittedCheckpoint(2, {"n": 2}, at(2)), [2])
    oldest = state.oldest()
    assert oldest is not None
    assert oldest[0] == 3


@pytest.mark.parametrize(
    "position", [at(2, "q0"), at(2, digest="x"), at(9)], ids=["another incarnation", "other rows", "unknown"]
)
def test_another_commit_counts_for_nothing(position: Position) -> None:
    state, commits = state_with(1, 2)
    commit(state, position)
    assert (state.committed, commits) == (None, [])


def test_a_driver_hears_that_its_region_fell_back_and_a_failing_callback_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[tuple[int, bool, int]] = []

    def on_outcome(outcome: RegionOutcome) -> None:
        heard.append((outcome.decision, outcome.fell_back, outcome.consecutive))
        raise ValueError("a defect of the caller")

    state = DriverState(region(), on_outcome=on_outcome)
    state.begin(OWN, None)
    state.add_completed(CommittedCheckpoint(1, {"n": 1}, at(1)))
    for decision, number in ((1, 0), (2, 0), (3, 1)):
        fallbacks = {"r1": at(0)} if number == 0 else {}
        body = Committed(
            decision=decision,
            cut={"r1": at(number)},
            fallbacks=fallbacks,
            snapshot=None,
            watermark=None,
            files=0,
        )
        kind = NotificationType.PARTIALLY_COMMITTED if fallbacks else NotificationType.COMMITTED
        state.apply(Notification("c", kind, "flights", "", "", body))
    assert heard == [(1, True, 1), (2, True, 2), (3, False, 0)]
    assert state.committed is not None
    assert caplog.text.count("on_outcome failed") == 3
    assert caplog.text.count("fell back in commit 1") == 1


def test_a_driver_hears_of_the_position_that_it_continues_after() -> None:
    heard: list[RegionOutcome] = []
    state = DriverState(region(), on_outcome=heard.append)
    state.begin(OWN, CommittedCheckpoint(1, {"n": 1}, at(1)))
    reverted = CutReverted(decision=7, digest="d", table="t")
    for _ in range(2):
        state.apply(Notification("r", NotificationType.REVERTED, "flights", "", "", reverted))
    assert [(each.decision, each.committed) for each in heard] == [(7, at(1))]


def test_a_repeated_notification_tells_once() -> None:
    state, commits = state_with(1)
    commit(state, at(1))
    commit(state, at(1))
    assert commits == [1]


@pytest.mark.parametrize("error", [PublishFailed("away"), RegistrationUnanswered("nobody")])
def test_a_doubt_stays_until_a_coordinator_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    state, _ = state_with(1)
    asked = list[object]()
    answers: list[Callable[[], RegistrationAnswered]] = [raising(error), raising(error), accepted]

    def ask(*_: object, **__: object) -> RegistrationAnswered:
        asked.append(None)
        return answers[len(asked) - 1]()

    monkeypatch.setattr(driver_state, "ask", ask)
    assert state.check(OWN, None) is None, "there is no doubt"
    state.doubt()
    with caplog.at_level(logging.WARNING):
        assert state.check(OWN, None) is None
        assert state.check(OWN, None) is None
    assert state.check(OWN, None) is not None
    assert state.check(OWN, None) is None, "the doubt has ended"
    assert len(asked) == 3


def raising(error: Exception) -> Callable[[], RegistrationAnswered]:
    def answer() -> RegistrationAnswered:
        raise error

    return answer


def accepted(live: str = "q1") -> RegistrationAnswered:
    return RegistrationAnswered(registration="probe", accepted=True, live=live, run="run", decision=0)


def test_a_driver_that_was_replaced_stays_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    state, _ = state_with(1)
    monkeypatch.setattr(driver_state, "ask", lambda *_, **__: accepted("q2"))
    state.doubt()
    for _ in range(2):
        with pytest.raises(RegionReplaced):
            state.check(OWN, None)


@pytest.mark.parametrize(
    ("incarnations", "doubts"), [({"r1": "q1"}, True), ({"r1": "q0"}, False), ({"r2": "q1"}, False)]
)
def test_the_end_of_the_own_incarnation_is_a_doubt(
    monkeypatch: pytest.MonkeyPatch, incarnations: dict[str, str], *, doubts: bool
) -> None:
    state, _ = state_with(1)
    asked = list[object]()

    def ask(*_: object, **__: Any) -> RegistrationAnswered:
        asked.append(None)
        return accepted()

    monkeypatch.setattr(driver_state, "ask", ask)
    body = IncarnationsEnded(incarnations=incarnations)
    state.apply(Notification("e", NotificationType.ENDED, "flights", "", "", body))
    state.check(OWN, None)
    assert bool(asked) is doubts


def test_pauses_double_up_to_the_longest() -> None:
    question, due = Repetition(10.0, 1.0, longest=4.0), list[int]()
    for now in range(30):
        if question.is_due(float(now)):
            due.append(now)
    assert due == [10, 11, 13, 17, 21, 25, 29]


PLACE = ("q1", 3)


def result(
    writer: str, *events: str, place: tuple[str, int] = PLACE, time: int | None = None
) -> WriterResult:
    attempt = SimpleNamespace(incarnation=place[0], checkpoint=place[1], writer=writer)
    written = SimpleNamespace(events=events, max_event_time=time, numbers=None, buckets=())
    return cast(WriterResult, SimpleNamespace(attempt=attempt, written=written))


def made(*results: WriterResult, offsets: str = "{}", watermark: int | None = None) -> CheckpointCompleted:
    return completion(
        PLACE, results, predecessor=None, source_offsets=offsets, watermark=watermark, listeners={}
    )


def test_the_events_of_all_writers_are_named() -> None:
    assert made(result("w1", "a", "b"), result("w2", "c")).events == ("a", "b", "c")


def test_two_results_of_one_writer_are_refused() -> None:
    """Both are attempts of the same rows."""
    with pytest.raises(NotOurs, match="two results of one writer"):
        made(result("w1", "a"), result("w2", "b"), result("w1", "c"))


@pytest.mark.parametrize("place", [("q2", 3), ("q1", 4)])
def test_a_result_of_another_checkpoint_is_refused(place: tuple[str, int]) -> None:
    with pytest.raises(NotOurs):
        made(result("w1", "a", place=place))


def test_the_digest_is_that_of_all_content() -> None:
    """A second completion with other rows stalls the region, although its offsets are the same."""
    digests = {
        made(result("w1", "a")).source_digest,
        made(result("w1", "b")).source_digest,
        made(result("w1", "a"), result("w2", "b")).source_digest,
        made(result("w1", "a"), offsets='{"n":1}').source_digest,
        made().source_digest,
    }
    assert len(digests) == 5
    assert made(result("w1", "a")).source_digest in digests


def test_the_highest_event_time_is_the_watermark_unless_one_is_given() -> None:
    results = result("w1", "a", time=5), result("w2", "b", time=9), result("w3", "c")
    assert (made(*results).watermark, made(*results, watermark=4).watermark) == (9, 4)
    assert made(result("w1", "a")).watermark is None


def test_a_commit_during_the_publication_is_read() -> None:
    read: list[CommittedCheckpoint] = []
    made = RegionDriver(OPTIONS, on_commit=read.append)
    registered = Registered("driver-1", "run")
    made._state.begin(registered, None)
    made._incarnation, made._next = registered.incarnation, 1

    def publish(region: Region, events: Sequence[Event], *_: object) -> None:
        """Append the completion; a coordinator commits it before the acknowledgement arrives."""
        (event,) = events
        digest = getattr(event.body, "source_digest")  # noqa: B009
        at = Position(incarnation=registered.incarnation, checkpoint=0, digest=digest)
        body = Committed(decision=1, cut={"r1": at}, snapshot=None, watermark=None, files=0)
        made._state.apply(Notification("c1", NotificationType.COMMITTED, "flights", "", "", body))

    with patch.object(driver, "publish_completion", publish):
        made._complete(registered, 0, (), '{"at": 7}', None, {})
    assert made.committed is not None
    assert [(each.number, each.source_offsets) for each in read] == [(0, {"at": 7})]


REGION = Region(
    stream="flights",
    name="JFK",
    kafka=KafkaSettings(bootstrap_servers="localhost:9092"),
    assignment=Assignment(number=0, regions=("JFK",)),
)


def worker_result() -> WriterResult:
    attempt = Attempt("i", 3, "w0")
    body = FilesWritten(
        format="paimon",
        format_version=1,
        location="file:///lake/t",
        schema_id=0,
        files=(FileInfo(path="town=Žďár/a.parquet", size=10, rows=2),),
    )
    event = file_event(REGION, attempt, body)
    return WriterResult(attempt, Written((event.envelope.id,), 1, 2, 10), tuple(encoded([event])))


def test_a_result_with_its_events_survives_as_json() -> None:
    written = worker_result()
    assert WriterResult.from_json(written.to_json()) == written


class Kept:
    """A publisher that keeps what it is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[Event] = []
        self.first: list[Message] = []
        monkeypatch.setattr(publisher, "shared_publisher", lambda _: self)

    def publish(
        self,
        _topic: str,
        events: Sequence[Event],
        _timeout: float,
        _setting: str,
        *,
        first: Sequence[Message] = (),
    ) -> None:
        self.events, self.first = list(events), list(first)
        encoded(events)


def completed(*results: WriterResult) -> Event:
    body = completion(
        ("i", 3), results, predecessor=None, source_offsets='{"next": 4}', watermark=None, listeners={}
    )
    return REGION.event(EventType.CHECKPOINT_COMPLETED, "i", body, checkpoint=3)


def test_a_completion_carries_the_files_of_one_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, result = Kept(monkeypatch), worker_result()
    for _ in range(2):
        # A repeated call is the same event, although its completion has another id before.
        publisher.publish_completion(REGION, [completed(result)], result.held, 100_000)
        (event,) = kept.events
        assert kept.first == []
        assert event.envelope.id == result.written.events[0]
        place = (EventType.CHECKPOINT_COMPLETED, "flights", "JFK", "i", 3, "w0", result.attempt.id)
        assert event.envelope[1:8] == place
        assert isinstance(event.body, CheckpointCompleted)
        assert event.body.files is not None
        assert event.body.events == ()
        left_out = event.body.model_copy(update={"source_digest": ""})
        found = read_completion(event.envelope, left_out.model_dump_json().encode())
        assert isinstance(found, CheckpointCompleted)
        assert found.source_digest == event.body.source_digest


@pytest.mark.parametrize(
    ("results", "limit"),
    [(1, HEADROOM + 300), (2, 100_000)],
    ids=["larger than a message", "two writers"],
)
def test_a_completion_names_what_it_cannot_carry(
    results: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(monkeypatch)
    found = [replace(worker_result(), attempt=Attempt("i", 3, f"w{number}")) for number in range(results)]
    held = [message for each in found for message in each.held]
    event = completed(*found)
    publisher.publish_completion(REGION, [event], held, limit)
    assert (kept.events, kept.first) == ([event], held)


def test_an_event_that_somebody_has_published_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, one, other = Kept(monkeypatch), worker_result(), worker_result()
    known = replace(other, attempt=Attempt("i", 3, "w1"), held=())
    event = completed(one, known)
    publisher.publish_completion(REGION, [event], one.held, 100_000)
    assert (kept.events, kept.first) == ([event], [*one.held])


def test_only_a_writer_in_the_process_of_the_driver_leaves_its_event_to_it() -> None:
    checkpoint = OpenCheckpoint(OPTIONS, "i", 3, process=this_process())
    assert OpenCheckpoint.from_json(checkpoint.to_json()) == checkpoint
    child = os.fork()
    if child == 0:
        os._exit(this_process() == checkpoint.process)
    assert os.waitpid(child, 0)[1] == 0
    assert this_process() == checkpoint.process


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: found["attempt"].update(id="other"), "an event is one of another attempt"),
        (lambda found: found["attempt"].update(checkpoint=4), "an event is one of another attempt"),
        (lambda found: found["held"][0].update(body="{}"), "the body of an event is malformed"),
        (lambda found: found["held"][0]["headers"].update(ce_files="2"), "the body of an event is malformed"),
        (lambda found: found["held"][0]["headers"].pop("ce_id"), "an event is none of files"),
        (lambda found: found["held"][0].pop("headers"), "'headers'"),
        (lambda found: found["held"].append("text"), "zip"),
        (lambda found: found["written"].update(events=["other"]), "an event is one of another attempt"),
    ],
)
def test_an_event_that_its_driver_would_publish_in_vain_is_refused(
    change: Callable[[dict[str, Any]], object], said: str
) -> None:
    found = json.loads(worker_result().to_json())
    change(found)
    with pytest.raises(BadOption, match=rf"this is no result of a writer \(.*{said}"):
        WriterResult.from_json(json.dumps(found))
