"""Paimon in an object store whose requests fail: outcomes of commits, and snapshots that others overwrite."""

from pathlib import Path

import pytest

from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.port import Absent, Found, OutcomeUnknown, Published
from tests.contracts.lakes.stores import PaimonInStore
from tests.doubles.s3 import Effect, S3Double
from tests.lakes.outcomes import is_refused

ALWAYS = 1_000


@pytest.fixture
def table(s3_double: S3Double, tmp_path: Path) -> PaimonInStore:
    return PaimonInStore(tmp_path)


def keys(double: S3Double, folder: str) -> list[str]:
    prefix = f"warehouse/numbers/{folder}/"
    return sorted(key.removeprefix(prefix) for key in double.objects if key.startswith(prefix))


@pytest.mark.slow
def test_a_commit_is_a_snapshot_with_its_manifests(s3_double: S3Double, table: PaimonInStore) -> None:
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
def test_no_answer_at_all_is_an_unknown_outcome(s3_double: S3Double, table: PaimonInStore) -> None:
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
def test_manifests_that_cannot_be_written_publish_nothing(s3_double: S3Double, table: PaimonInStore) -> None:
    stream = table.stream()
    event, head = table.event([1]), stream.head(1)
    s3_double.strike(Effect.REJECTED, "-0", times=1)
    s3_double.strike(Effect.REJECTED, "-1", times=1)
    outcome = stream.publish(1, head, [event])
    assert is_refused(outcome, again=True)
    assert keys(s3_double, "snapshot") == []
    assert keys(s3_double, "manifest") == []
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)


@pytest.mark.slow
def test_an_aborted_attempt_leaves_no_files(s3_double: S3Double, table: PaimonInStore) -> None:
    event = table.event([1])
    writer = ADAPTER.open_writer(table.ref, None)
    writer.abort()
    assert keys(s3_double, "bucket-0") == [event.files[0].path.removeprefix("bucket-0/")]


@pytest.mark.slow
def test_a_truncated_manifest_list_is_not_taken_for_a_shorter_one(
    s3_double: S3Double, table: PaimonInStore
) -> None:
    table.stream().commit(1, [1])
    stream = table.stream()
    event, head = table.event([2]), stream.head(2)
    for name in keys(s3_double, "manifest"):
        s3_double.strike(Effect.TRUNCATED, name, method="GET", times=ALWAYS)
    assert is_refused(stream.publish(2, head, [event]), again=True)
    s3_double.faults.clear()
    assert isinstance(stream.publish(2, head, [event]), Published)
    assert table.rows() == 2
