"""Findings of `sluicegate conformance`, by messages of topics: no writer that keeps the contract has one."""

import uuid
from typing import Final

import pytest

from sluicegate.coordinator.replay.conformance import Raw, Trial
from sluicegate.events.dead_letters import Letter, Place
from sluicegate.events.encoding import Message, encode_event, encode_notification
from sluicegate.events.envelope import Envelope, EventType, partition_of
from sluicegate.events.files import attempt_label
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    FileInfo,
    FilesWritten,
    RegionHeartbeat,
    RegionRegistered,
)
from sluicegate.events.notifications import Notification, NotificationType, RegistrationAnswered

STREAM: Final = "flights"
REGION: Final = "EU"
ASSIGNMENT: Final = Assignment(number=0, regions=(REGION,))


class Topics:
    """Messages of one region, in the order in which they are appended."""

    def __init__(self) -> None:
        self.trial = Trial(STREAM, REGION, 4)
        self.time = 1_000_000
        self._offset = -1

    def event(self, kind: EventType, body: Body, life: str, number: int = -1, *, after: int = 0) -> Raw:
        self.time += after
        self._offset += 1
        envelope = Envelope(uuid.uuid4().hex, kind, STREAM, REGION, life, number)
        message: Message = encode_event(envelope, body, self.time)
        place = (partition_of(STREAM, 4), self._offset, self.time)
        return Raw(*place, message.key, message.headers, message.value)

    def register(
        self,
        life: str,
        replaces: str | None = None,
        *,
        after: int = 0,
        rests: bool = False,
        tables: tuple[str, ...] = (),
    ) -> str:
        body = RegionRegistered(assignment=ASSIGNMENT, replaces=replaces, rests=rests, tables=tables)
        raw = self.event(EventType.REGION_REGISTERED, body, life, after=after)
        self.trial.read(raw)
        run = dict(raw.headers)["ce_id"]
        assert run is not None
        answer = RegistrationAnswered(registration=run.decode(), accepted=True)
        kind = NotificationType.REGISTRATION_ANSWERED
        found = Notification(uuid.uuid4().hex, kind, STREAM, REGION, life, answer)
        message = encode_notification(found, self.time)
        self.trial.read_feed(Raw(0, self._offset, self.time, message.key, message.headers, message.value))
        return run.decode()

    def beat(self, life: str, run: str, *, after: int, last: bool = False) -> None:
        body = RegionHeartbeat(idle=last, interval=None if last else 5_000, run=run)
        self.trial.read(self.event(EventType.REGION_HEARTBEAT, body, life, after=after))

    def pause(self, life: str, run: str, newest: int | None) -> None:
        """Say idle after a checkpoint."""
        body = RegionHeartbeat(idle=True, after=newest, interval=5_000, run=run)
        self.trial.read(self.event(EventType.REGION_HEARTBEAT, body, life))

    def begin(self, life: str, run: str, number: int) -> None:
        body = RegionHeartbeat(begins=number, run=run)
        self.trial.read(self.event(EventType.REGION_HEARTBEAT, body, life))

    def completion(self, life: str, number: int) -> Raw:
        body = CheckpointCompleted(events=(), predecessor=None, source_digest="x")
        return self.event(EventType.CHECKPOINT_COMPLETED, body, life, number)

    def letter(self, raw: Raw, code: str, reason: str) -> None:
        place = Place("events", raw.partition, raw.offset, raw.time)
        self.trial.read_letter(Letter(place, code, reason, raw.key, raw.value, tuple(raw.headers)))

    def rules(self) -> list[str]:
        """Return the violations, without those of a trial that is not whole."""
        return [each.rule for each in self.trial.finish() if each.rule not in ("missing", "no-commit")]


@pytest.fixture
def topics() -> Topics:
    return Topics()


def test_a_run_may_end_before_its_first_heartbeat(topics: Topics) -> None:
    topics.register("q1")
    run = topics.register("q2", "q1", after=14_000)
    topics.beat("q2", run, after=5_000)
    assert topics.rules() == []


def test_a_run_that_ends_in_order_before_its_first_regular_heartbeat(topics: Topics) -> None:
    topics.beat("q1", topics.register("q1"), after=2_000, last=True)
    assert topics.rules() == []


@pytest.mark.parametrize("beats", [0, 1])
def test_a_long_run_needs_heartbeats(topics: Topics, beats: int) -> None:
    run = topics.register("q1")
    for _ in range(beats):
        topics.beat("q1", run, after=5_000)
    topics.time += 17_000
    topics.trial.read(topics.completion("q1", 0))
    assert topics.rules() == ["heartbeats"]


def test_a_checkpoint_after_a_pause_whose_beginning_was_not_stated(topics: Topics) -> None:
    run = topics.register("q1")
    topics.trial.read(topics.completion("q1", 0))
    topics.pause("q1", run, 0)
    topics.trial.read(topics.completion("q1", 1))
    assert topics.rules() == ["beginning"]


def test_a_checkpoint_after_a_pause_whose_beginning_was_stated(topics: Topics) -> None:
    run = topics.register("q1")
    topics.pause("q1", run, None)
    topics.begin("q1", run, 0)
    # One that was in flight.
    topics.pause("q1", run, None)
    topics.trial.read(topics.completion("q1", 0))
    topics.trial.read(topics.completion("q1", 1))
    topics.pause("q1", run, 1)
    run = topics.register("q1")
    topics.trial.read(topics.completion("q1", 2))
    topics.pause("q1", run, 2)
    # A completion that was sent again.
    topics.trial.read(topics.completion("q1", 2))
    assert topics.rules() == []


def test_a_region_of_batch_jobs_rests(topics: Topics) -> None:
    topics.register("q1", rests=True)
    topics.time += 60_000
    topics.trial.read(topics.completion("q1", 0))
    assert topics.rules() == []
    lacking = [each.detail for each in topics.trial.finish() if each.rule == "missing"]
    assert not any("heartbeat" in each for each in lacking)


def test_a_completion_in_flight_of_a_driver_that_was_replaced(topics: Topics) -> None:
    topics.register("q1")
    topics.register("q2", "q1")
    late = topics.completion("q1", 0)
    topics.trial.read(late)
    topics.letter(late, "not-live", "its incarnation is not the live one")
    assert topics.rules() == []


def test_a_completion_of_an_incarnation_that_never_lived(topics: Topics) -> None:
    topics.register("q1")
    late = topics.completion("q0", 0)
    topics.trial.read(late)
    topics.letter(late, "not-live", "its incarnation is not the live one")
    assert topics.rules() == ["dead-letter", "answer"]


def test_a_letter_is_shown_with_its_reason(topics: Topics) -> None:
    topics.register("q1")
    topics.letter(topics.completion("q1", 0), "malformed-body", "The message is not used: why. Do this.")
    (found,) = [each for each in topics.trial.finish() if each.rule == "dead-letter"]
    assert found.detail.endswith("malformed-body. The message is not used: why. Do this.")


def test_an_event_that_no_client_can_decode(topics: Topics) -> None:
    topics.register("q1")
    raw = topics.completion("q1", 0)
    topics.trial.read(raw._replace(headers=[*raw.headers, ("\\xff", b"1")]), readable=False)
    assert topics.rules() == ["envelope"]
    assert len(topics.trial.events) == 1


def carrying(name: str, table: str = "") -> Raw:
    """Return a completion that carries a file with this name."""
    topics, kind = Topics(), EventType.CHECKPOINT_COMPLETED
    file = FileInfo(path=name, size=1, rows=1)
    files = FilesWritten(format="delta", location="file:///lake/t", files=(file,))
    body = CheckpointCompleted(files=files, predecessor=None)
    envelope = Envelope("c1", kind, STREAM, REGION, "q1", 0, "w0", "a1", 1, table=table)
    message = encode_event(envelope, body, topics.time)
    place = (partition_of(STREAM, 4), 7, topics.time)
    return Raw(*place, message.key, message.headers, message.value)


def test_a_completion_that_carries_its_files(topics: Topics) -> None:
    run = topics.register("q1")
    label = attempt_label(STREAM, REGION, "q1", 0, "w0", "a1")
    topics.trial.read(carrying(f"part-{label}-0.parquet"))
    topics.beat("q1", run, after=1_000)
    assert topics.rules() == []
    assert [each.detail for each in topics.trial.finish()] == ["no commit has a checkpoint of the region"]


@pytest.mark.parametrize(("tables", "rules"), [(("items",), []), ((), ["table"]), (("fees",), ["table"])])
def test_files_of_a_table_that_the_registration_names(
    topics: Topics, tables: tuple[str, ...], rules: list[str]
) -> None:
    topics.register("q1", tables=tables)
    label = attempt_label(STREAM, REGION, "q1", 0, "w0", "a1")
    topics.trial.read(carrying(f"part-{label}-0.parquet", "items"))
    assert topics.rules() == rules


def test_the_name_of_a_file_that_a_completion_carries(topics: Topics) -> None:
    topics.register("q1")
    topics.trial.read(carrying("part-0.parquet"))
    assert topics.rules() == ["file-name"]


def test_a_mistake_of_an_earlier_incarnation_is_older(topics: Topics) -> None:
    run = topics.register("q1")
    topics.pause("q1", run, None)
    topics.trial.read(topics.completion("q1", 0))
    assert topics.rules() == ["beginning"]
    topics.register("q2", "q1", after=1_000)
    topics.trial.read(topics.completion("q2", 0))
    since = topics.trial.newest()
    assert [each.rule for each in topics.trial.finish(since)] == ["missing", "missing", "no-commit"]
    assert topics.trial.older(since) == 1


def test_an_earlier_incarnation_completes_no_trial_of_the_newest(topics: Topics) -> None:
    topics.beat("q1", topics.register("q1"), after=1_000)
    topics.trial.read(carrying("part-0.parquet"))
    topics.register("q2", "q1", after=2_000)
    lacking = [each.detail for each in topics.trial.finish(topics.trial.newest()) if each.rule == "missing"]
    assert lacking == [
        "no files.written and no completion with files is there",
        "no checkpoint.completed is there",
        "no region.heartbeat is there",
    ]


def test_an_event_before_the_registration_belongs_to_its_incarnation(topics: Topics) -> None:
    topics.trial.read(topics.completion("q1", 0))
    topics.register("q1", after=1_000)
    assert "answer" in [each.rule for each in topics.trial.finish(topics.trial.newest())]
    assert topics.trial.older(topics.trial.newest()) == 0


def test_without_an_accepted_registration_the_whole_log_is_judged(topics: Topics) -> None:
    topics.trial.read(topics.completion("q1", 0))
    assert topics.trial.newest() == 0
