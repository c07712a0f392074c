"""Snapshots that a process put after it stood still, where others had expired: they are in no history."""

import pytest

from sluicegate.lakes.port import Absent, Found, Unproven
from tests.contracts.lakes.harness import Lake, Stream
from tests.contracts.lakes.paimon_lake import PaimonLake


@pytest.mark.parametrize("rows", [[100], [], [100, 101, 102]], ids=["as many rows", "no rows", "more rows"])
def test_a_stray_is_not_found_by_the_successor(lake: Lake, rows: list[int]) -> None:
    first = Stream(lake)
    first.commit(1, [1])

    def meanwhile() -> None:
        lake.foreign(rows)
        lake.foreign([200])
        lake.expire(1)

    lake.strand(2, lake.event([2]), meanwhile)
    successor = Stream(lake)
    successor.recorded = first.recorded
    answer = successor.ask(2)
    assert isinstance(answer, Unproven), answer
    if isinstance(lake, PaimonLake):
        assert answer.cause is not None
        assert (answer.cause.stray, answer.cause.oldest) == (2, 3)
    assert lake.ids() == sorted([1, *rows, 200])


def test_a_stray_is_no_proof_of_an_absence(lake: Lake) -> None:
    """It looks like the beginning of a history that can be read whole."""
    other = Stream(lake, lake.committer("stream-b"))

    def meanwhile() -> None:
        Stream(lake, lake.committer("stream-b")).commit(1, [100])
        lake.foreign([200])
        lake.expire(1)

    lake.strand(1, lake.event([1]), meanwhile)
    assert other.recorded is None
    answer = other.ask(1)
    assert isinstance(answer, Unproven), answer
    assert lake.ids() == [100, 200]


def test_a_stray_hides_nothing_that_is_in_the_history(lake: Lake) -> None:
    first = Stream(lake)
    first.commit(1, [1])

    def meanwhile() -> None:
        lake.foreign([100])
        first.commit(2, [2], record=False)
        lake.foreign([200])
        lake.expire(2)

    lake.strand(2, lake.event([2]), meanwhile)
    answer = first.ask(2)
    assert isinstance(answer, Found), answer
    assert lake.place(answer.snapshot) == 3
    first.recorded = answer.snapshot
    assert isinstance(first.ask(3), Absent)
    assert lake.ids() == [1, 2, 100, 200]


def test_a_commit_is_found_below_others_though_what_was_recorded_has_expired(lake: Lake) -> None:
    first = Stream(lake)
    first.commit(1, [1])
    made = first.commit(2, [2], record=False)
    for number in range(3):
        lake.foreign([100 + number])
    lake.expire(4)
    answer = first.ask(2)
    assert answer == Found(made)
