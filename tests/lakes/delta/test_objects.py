"""Delta in an object store whose requests fail: outcomes of commits, and versions that others overwrite."""

from pathlib import Path

import pytest

from sluicegate.lakes.port import Found, LakeUnavailable, OutcomeUnknown, Published
from tests.contracts.lakes.stores import DeltaInStore
from tests.doubles.s3 import Effect, S3Double
from tests.lakes.outcomes import is_refused

pytestmark = pytest.mark.slow

ALWAYS = 1_000
FIRST = "00000000000000000001.json"
SECOND = "00000000000000000002.json"


@pytest.fixture
def table(s3_double: S3Double, tmp_path: Path) -> DeltaInStore:
    return DeltaInStore(tmp_path)


def versions(double: S3Double) -> list[int]:
    prefix = "warehouse/numbers/_delta_log/"
    return sorted(int(key.removeprefix(prefix)[:20]) for key in double.objects if key.startswith(prefix))


def test_a_put_that_lands_after_the_next_one_makes_no_second_version(
    s3_double: S3Double, table: DeltaInStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is published again meanwhile, with another time in its commit."""
    event = table.event([1])
    stream = table.stream()
    monkeypatch.setenv("AWS_TIMEOUT", "500 ms")
    late = table.stream()
    held = s3_double.strike(Effect.HELD_BEFORE, FIRST, times=4)
    assert isinstance(late.publish(1, late.head(1), [event]), OutcomeUnknown)
    made = stream.add(1, event)
    held.release.set()
    s3_double.settle()
    assert late.ask(1) == Found(made)
    assert versions(s3_double) == [0, 1]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_version_whose_place_cannot_be_proven_is_asked_for(
    s3_double: S3Double, table: DeltaInStore, method: str
) -> None:
    """The requests after the put fail: the version before, and the hint of the last checkpoint."""
    stream = table.stream()
    stream.commit(1, [1])
    event, head = table.event([2]), stream.head(2)
    key = FIRST if method == "HEAD" else "_last_checkpoint"
    put = s3_double.strike(Effect.HELD_AFTER, SECOND)
    put.meanwhile = lambda: s3_double.strike(Effect.REJECTED, key, method=method, times=1)
    put.release.set()
    assert isinstance(stream.publish(2, head, [event]), OutcomeUnknown)
    assert isinstance(stream.ask(2), Found)
    assert versions(s3_double) == [0, 1, 2]


def test_a_log_that_cannot_be_read_publishes_nothing(s3_double: S3Double, table: DeltaInStore) -> None:
    stream = table.stream()
    stream.commit(1, [1])
    event, head = table.event([2]), stream.head(2)
    s3_double.strike(Effect.REJECTED, SECOND, method="GET", times=1)
    assert is_refused(stream.publish(2, head, [event]), again=True)
    s3_double.strike(Effect.REJECTED, FIRST, method="HEAD", times=1)
    with pytest.raises(LakeUnavailable):
        stream.ask(2)
    s3_double.strike(Effect.TRUNCATED, FIRST, method="GET", times=ALWAYS)
    with pytest.raises(LakeUnavailable):
        stream.committer.inspect()
    s3_double.faults.clear()
    assert isinstance(stream.publish(2, head, [event]), Published)
