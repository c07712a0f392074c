"""The committer half in an object store whose requests fail, for formats whose commit is the put of one file.

Iceberg's commit is a change of its catalog; its own tests are in tests/lakes/iceberg/test_objects.py.
"""

import json
from pathlib import Path

import pytest

from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.port import (
    Absent,
    BadFiles,
    Found,
    LakeUnavailable,
    OutcomeUnknown,
    Published,
    Unproven,
)
from tests.contracts.lakes.stores import FOLDER, URI, DeltaInStore, PaimonInStore, StoreTable
from tests.doubles.s3 import Effect, S3Double
from tests.lakes.outcomes import is_refused

pytestmark = pytest.mark.slow
ALWAYS = 1_000


@pytest.fixture(params=[DeltaInStore, PaimonInStore], ids=["delta", "paimon"])
def table(request: pytest.FixtureRequest, s3_double: S3Double, tmp_path: Path) -> StoreTable:
    made: StoreTable = request.param(tmp_path)
    return made


def parquet(double: S3Double) -> list[str]:
    return [key for key in double.objects if key.endswith(".parquet")]


@pytest.mark.parametrize(
    "effect", [Effect.LOST_AFTER, Effect.ERROR_AFTER, Effect.LOST_BEFORE, Effect.UNAVAILABLE, Effect.CONFLICT]
)
def test_a_lost_answer_does_not_double_a_commit(
    s3_double: S3Double, table: StoreTable, effect: Effect
) -> None:
    stream = table.stream()
    events = table.event([1]), table.event([2])
    first = stream.publish(1, stream.head(1), events[:1])
    assert isinstance(first, Published)
    stream.recorded = first.snapshot
    fault = s3_double.strike(effect, table.deciding(2))
    assert isinstance(stream.publish(2, stream.head(2), events[1:]), Published)
    assert fault.times == 0
    assert table.commits(s3_double) == 2
    assert table.has(*events)


def test_no_answer_at_all_is_an_unknown_outcome(s3_double: S3Double, table: StoreTable) -> None:
    stream = table.stream()
    event, head = table.event([1]), stream.head(1)
    s3_double.strike(Effect.UNAVAILABLE, table.deciding(1), times=ALWAYS)
    outcome = stream.publish(1, head, [event])
    assert isinstance(outcome, OutcomeUnknown)
    assert "503 SlowDown" in outcome.reason
    s3_double.faults.clear()
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    assert table.commits(s3_double) == 1
    assert table.has(event)


def test_a_put_that_lands_later_is_found(
    s3_double: S3Double, table: StoreTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = table.event([1])
    monkeypatch.setenv("AWS_TIMEOUT", "500 ms")
    stream = table.stream()
    head = stream.head(1)
    held = s3_double.strike(Effect.HELD_BEFORE, table.deciding(1), times=ALWAYS)
    assert isinstance(stream.publish(1, head, [event]), OutcomeUnknown)
    held.release.set()
    s3_double.settle()
    assert isinstance(stream.ask(1), Found)
    assert table.commits(s3_double) == 1
    assert table.has(event)


def test_requests_that_are_always_in_conflict_publish_nothing(s3_double: S3Double, table: StoreTable) -> None:
    stream = table.stream()
    event, head = table.event([1]), stream.head(1)
    s3_double.strike(Effect.CONFLICT, table.deciding(1), times=ALWAYS)
    outcome = stream.publish(1, head, [event])
    assert is_refused(outcome, again=True)
    assert "409 ConditionalRequestConflict" in outcome.reason
    assert table.commits(s3_double) == 0
    assert not [key for key in s3_double.objects if key.startswith(f"{FOLDER}/manifest/")]


@pytest.mark.parametrize("effect", [Effect.LOST_BEFORE, Effect.CONFLICT, Effect.UNAVAILABLE])
def test_a_commit_that_another_one_overtakes_is_a_conflict(
    s3_double: S3Double, table: StoreTable, effect: Effect
) -> None:
    stream, other = table.stream(), table.stream()
    event, head = table.event([1]), stream.head(1)
    theirs = table.event([7])
    fault = s3_double.strike(effect, table.deciding(1))
    fault.meanwhile = lambda: other.publish(9, None, [theirs])
    assert is_refused(stream.publish(1, head, [event]), again=True)
    assert table.commits(s3_double) == 1
    assert table.has(theirs)


def test_a_store_that_ignores_conditions_gets_no_commit(s3_double: S3Double, table: StoreTable) -> None:
    event = table.event([1])
    stream = table.stream()
    s3_double.heeds_conditions = False
    outcome = stream.publish(1, stream.head(1), [event])
    assert is_refused(outcome)
    assert outcome.cause == Cause(code=CauseCode.NO_CONDITIONAL_PUT)
    assert table.commits(s3_double) == 0


@pytest.mark.parametrize("effect", [Effect.LOST_BEFORE, Effect.LOST_AFTER, Effect.UNAVAILABLE])
def test_data_files_are_uploaded_again(s3_double: S3Double, table: StoreTable, effect: Effect) -> None:
    s3_double.strike(effect, ".parquet", times=2)
    event = table.event(range(100))
    (file,) = event.files
    assert len(s3_double.objects[f"{FOLDER}/{file.path}"]) == file.size
    table.stream().committer.check([event])


def test_a_data_file_that_cannot_be_uploaded_is_described_by_nobody(
    s3_double: S3Double, table: StoreTable
) -> None:
    s3_double.strike(Effect.REJECTED, ".parquet", times=ALWAYS)
    with pytest.raises(LakeUnavailable, match="s3://"):
        table.event([1])
    assert parquet(s3_double) == []


def test_files_are_checked_by_size(s3_double: S3Double, table: StoreTable) -> None:
    event = table.event([1])
    key = f"{FOLDER}/{event.files[0].path}"
    whole = s3_double.objects[key]
    stream = table.stream()
    s3_double.objects[key] = whole[:-1]
    with pytest.raises(BadFiles, match=f"{len(whole) - 1} bytes instead of {len(whole)}"):
        stream.committer.check([event])
    del s3_double.objects[key]
    with pytest.raises(BadFiles, match="is not in s3://"):
        stream.committer.check([event])


def test_a_commit_that_another_writer_has_overwritten_is_noticed(table: StoreTable) -> None:
    """It is not asked for again and not published again: the way out is a human's."""
    stream = table.stream()
    stream.commit(1, [1])
    stream.commit(2, [2])
    table.overwrite(2)
    answer = stream.ask(3)
    assert isinstance(answer, Unproven)
    assert answer.cause == Cause(code=CauseCode.RECORDED_OVERWRITTEN, snapshot=2)


def test_a_commit_that_is_overwritten_before_its_outcome_is_known(
    s3_double: S3Double, table: StoreTable
) -> None:
    stream = table.stream()
    stream.commit(1, [1])
    event, head = table.event([2]), stream.head(2)
    fault = s3_double.strike(Effect.LOST_AFTER, table.deciding(2))
    fault.meanwhile = lambda: table.overwrite(2)
    assert is_refused(stream.publish(2, head, [event]), again=True)
    assert isinstance(stream.ask(2), Absent)


def test_nothing_that_is_written_contains_credentials(s3_double: S3Double, table: StoreTable) -> None:
    event = table.event([1])
    stream = table.stream()
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    secrets = list(s3_double.environment().values())[-2:]
    written = [event.model_dump_json().encode(), *s3_double.objects.values()]
    assert not any(secret.encode() in text for secret in secrets for text in written)
    assert json.loads(event.model_dump_json())["location"] == URI
