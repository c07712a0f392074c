"""Paimon in an object store whose requests fail: outcomes of commits, and snapshots that others overwrite."""

import json
from pathlib import Path

import pytest

from sluicegate.cli.checks_rest import check_stream
from sluicegate.coordinator.observe.messages import format_cause
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.port import (
    Absent,
    BadFiles,
    Conflict,
    Found,
    LakeUnavailable,
    NotPublished,
    OutcomeUnknown,
    Published,
    Unproven,
)
from tests.doubles.s3 import BUCKET, Effect, S3Double
from tests.lakes.paimon.objects import ObjectTable

URI = f"s3://{BUCKET}/warehouse/numbers"
ALWAYS = 1_000


@pytest.fixture
def table(s3_double: S3Double, tmp_path: Path) -> ObjectTable:
    return ObjectTable(URI, tmp_path)


def keys(double: S3Double, folder: str) -> list[str]:
    prefix = f"warehouse/numbers/{folder}/"
    return sorted(key.removeprefix(prefix) for key in double.objects if key.startswith(prefix))


@pytest.mark.slow
def test_a_commit_is_a_snapshot_with_its_manifests(s3_double: S3Double, table: ObjectTable) -> None:
    stream = table.stream()
    stream.commit(1, [1, 2])
    second = stream.commit(2, [3])
    assert table.rows() == 3
    assert keys(s3_double, "snapshot") == ["LATEST", "snapshot-1", "snapshot-2"]
    assert len(keys(s3_double, "manifest")) == 6
    assert len(keys(s3_double, "bucket-0")) == 2
    assert keys(s3_double, "schema") == ["schema-0"]
    successor = table.stream()
    assert successor.ask(2) == Found(second)
    assert isinstance(successor.ask(3), Absent)


@pytest.mark.slow
@pytest.mark.parametrize(
    "effect", [Effect.LOST_AFTER, Effect.ERROR_AFTER, Effect.LOST_BEFORE, Effect.UNAVAILABLE]
)
def test_a_lost_answer_does_not_double_a_commit(
    s3_double: S3Double, table: ObjectTable, effect: Effect
) -> None:
    stream = table.stream()
    stream.commit(1, [1])
    s3_double.strike(effect, "snapshot-2")
    stream.commit(2, [2])
    assert keys(s3_double, "snapshot") == ["LATEST", "snapshot-1", "snapshot-2"]
    assert table.rows() == 2


@pytest.mark.slow
def test_no_answer_at_all_is_an_unknown_outcome(s3_double: S3Double, table: ObjectTable) -> None:
    stream = table.stream()
    event, head = table.event([1]), stream.head(1)
    s3_double.strike(Effect.UNAVAILABLE, "snapshot-1", times=ALWAYS)
    outcome = stream.publish(1, head, [event])
    assert isinstance(outcome, OutcomeUnknown)
    assert "503 SlowDown" in outcome.reason
    assert len(keys(s3_double, "manifest")) == 3
    s3_double.faults.clear()
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    assert table.rows() == 1


@pytest.mark.slow
def test_a_put_that_lands_later_is_found(
    s3_double: S3Double, table: ObjectTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = table.event([1])
    monkeypatch.setenv("AWS_TIMEOUT", "500 ms")
    stream = table.stream()
    head = stream.head(1)
    held = s3_double.strike(Effect.HELD_BEFORE, "snapshot-1", times=ALWAYS)
    assert isinstance(stream.publish(1, head, [event]), OutcomeUnknown)
    held.release.set()
    s3_double.settle()
    assert isinstance(stream.ask(1), Found)
    assert table.rows() == 1


@pytest.mark.slow
def test_requests_that_are_always_in_conflict_publish_nothing(
    s3_double: S3Double, table: ObjectTable
) -> None:
    stream = table.stream()
    event, head = table.event([1]), stream.head(1)
    s3_double.strike(Effect.CONFLICT, "snapshot-1", times=ALWAYS)
    outcome = stream.publish(1, head, [event])
    assert isinstance(outcome, NotPublished)
    assert "409 ConditionalRequestConflict" in outcome.reason
    assert keys(s3_double, "manifest") == []
    assert keys(s3_double, "snapshot") == []


@pytest.mark.slow
@pytest.mark.parametrize("effect", [Effect.LOST_BEFORE, Effect.CONFLICT, Effect.UNAVAILABLE])
def test_a_commit_that_another_one_overtakes_is_a_conflict(
    s3_double: S3Double, table: ObjectTable, effect: Effect
) -> None:
    stream, other = table.stream(), table.stream()
    event, head = table.event([1]), stream.head(1)
    theirs = table.event([7])
    fault = s3_double.strike(effect, "snapshot-1")
    fault.meanwhile = lambda: other.publish(9, None, [theirs])
    outcome = stream.publish(1, head, [event])
    assert isinstance(outcome, Conflict)
    assert len(keys(s3_double, "manifest")) == 3
    assert table.rows() == 1


@pytest.mark.slow
def test_manifests_that_cannot_be_written_publish_nothing(s3_double: S3Double, table: ObjectTable) -> None:
    stream = table.stream()
    event, head = table.event([1]), stream.head(1)
    s3_double.strike(Effect.REJECTED, "-0", times=1)
    s3_double.strike(Effect.REJECTED, "-1", times=1)
    outcome = stream.publish(1, head, [event])
    assert isinstance(outcome, NotPublished)
    assert keys(s3_double, "snapshot") == []
    assert keys(s3_double, "manifest") == []
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)


@pytest.mark.slow
@pytest.mark.parametrize("effect", [Effect.LOST_BEFORE, Effect.LOST_AFTER, Effect.UNAVAILABLE])
def test_data_files_are_uploaded_again(s3_double: S3Double, table: ObjectTable, effect: Effect) -> None:
    s3_double.strike(effect, ".parquet", times=2)
    event = table.event(range(100))
    (file,) = event.files
    assert len(s3_double.objects[f"warehouse/numbers/{file.path}"]) == file.size
    stream = table.stream()
    stream.committer.check([event])


@pytest.mark.slow
def test_a_data_file_that_cannot_be_uploaded_is_described_by_nobody(
    s3_double: S3Double, table: ObjectTable
) -> None:
    s3_double.strike(Effect.REJECTED, ".parquet", times=ALWAYS)
    with pytest.raises(LakeUnavailable, match="cannot write data files to s3://"):
        table.event([1])
    assert keys(s3_double, "bucket-0") == []


@pytest.mark.slow
def test_an_aborted_attempt_leaves_no_files(s3_double: S3Double, table: ObjectTable) -> None:
    event = table.event([1])
    writer = ADAPTER.open_writer(table.ref, None)
    writer.abort()
    assert keys(s3_double, "bucket-0") == [event.files[0].path.removeprefix("bucket-0/")]


@pytest.mark.slow
def test_files_are_checked_by_size(s3_double: S3Double, table: ObjectTable) -> None:
    event = table.event([1])
    key = f"warehouse/numbers/{event.files[0].path}"
    whole = s3_double.objects[key]
    stream = table.stream()
    s3_double.objects[key] = whole[:-1]
    with pytest.raises(BadFiles, match=f"{len(whole) - 1} bytes instead of {len(whole)}"):
        stream.committer.check([event])
    del s3_double.objects[key]
    with pytest.raises(BadFiles, match="is not in s3://"):
        stream.committer.check([event])


@pytest.mark.slow
def test_a_truncated_manifest_list_is_not_taken_for_a_shorter_one(
    s3_double: S3Double, table: ObjectTable
) -> None:
    table.stream().commit(1, [1])
    stream = table.stream()
    event, head = table.event([2]), stream.head(2)
    for name in keys(s3_double, "manifest"):
        s3_double.strike(Effect.TRUNCATED, name, method="GET", times=ALWAYS)
    assert isinstance(stream.publish(2, head, [event]), NotPublished)
    s3_double.faults.clear()
    assert isinstance(stream.publish(2, head, [event]), Published)
    assert table.rows() == 2


@pytest.mark.slow
def test_a_snapshot_that_another_writer_has_overwritten_is_noticed(table: ObjectTable) -> None:
    """It is not asked for again and not published again: the way out is a human's."""
    stream = table.stream()
    stream.commit(1, [1])
    stream.commit(2, [2])
    table.overwrite(2)
    answer = stream.ask(3)
    assert isinstance(answer, Unproven)
    assert answer.cause == Cause(code=CauseCode.RECORDED_OVERWRITTEN, snapshot=2)
    sentence = format_cause(answer.cause)
    assert "a writer without a lock has overwritten the snapshot" in sentence
    assert "give every other writer of the table a lock" in sentence


@pytest.mark.slow
def test_a_snapshot_that_is_overwritten_before_its_outcome_is_known(
    s3_double: S3Double, table: ObjectTable
) -> None:
    stream = table.stream()
    stream.commit(1, [1])
    event, head = table.event([2]), stream.head(2)
    fault = s3_double.strike(Effect.LOST_AFTER, "snapshot-2")
    fault.meanwhile = lambda: table.overwrite(2)
    assert isinstance(stream.publish(2, head, [event]), Conflict)
    assert isinstance(stream.ask(2), Absent)


@pytest.mark.slow
def test_the_check_of_a_service_puts_a_file_and_removes_it(s3_double: S3Double, table: ObjectTable) -> None:
    settings = StreamSettings(table=URI, commit_user="stream-a")
    before = set(s3_double.objects)
    findings, _ = check_stream("numbers", settings)
    assert [finding.verdict for finding in findings] == ["OK"] * 4
    assert set(s3_double.objects) == before
    s3_double.heeds_conditions = False
    findings, _ = check_stream("numbers", settings)
    assert findings[2].verdict == "PROBLEM"
    assert "Use a store with conditional writes" in findings[2].detail


@pytest.mark.slow
def test_no_event_and_no_snapshot_contains_credentials(s3_double: S3Double, table: ObjectTable) -> None:
    event = table.event([1])
    stream = table.stream()
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    secrets = list(s3_double.environment().values())[-2:]
    written = [event.model_dump_json().encode(), *s3_double.objects.values()]
    assert not any(secret.encode() in text for secret in secrets for text in written)
    assert json.loads(event.model_dump_json())["location"] == URI
