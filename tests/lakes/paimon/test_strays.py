"""Snapshots that a process put after it stood still, where others had expired: they are in no history."""

from pathlib import Path

import pytest

from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.port import Absent, Found, Unproven
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.contracts.lakes.paimon_objects import PAIMON, paimon_of

pytestmark = pytest.mark.seam


@pytest.fixture(params=PAIMON)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> PaimonLake:
    return paimon_of(request.param, request, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[100], [], [100, 101, 102]], ids=["as many rows", "no rows", "more rows"])
def test_a_stray_is_not_found_by_the_successor(lake: PaimonLake, rows: list[int]) -> None:
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
    assert answer.cause is not None
    assert (answer.cause.stray, answer.cause.oldest) == (2, 3)
    assert lake.ids() == sorted([1, *rows, 200])


@pytest.mark.slow
def test_a_stray_is_no_proof_of_an_absence(lake: PaimonLake) -> None:
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


@pytest.mark.slow
def test_a_stray_hides_nothing_that_is_in_the_history(lake: PaimonLake) -> None:
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


@pytest.mark.slow
def test_a_stray_below_a_lower_id_is_in_no_history(lake: PaimonLake) -> None:
    first = Stream(lake)
    first.commit(1, [1])

    def meanwhile() -> None:
        lake.foreign([100])
        lake.impostor(1, [200])
        lake.expire(1)

    lake.strand(2, lake.event([2]), meanwhile)
    answer = first.ask(2)
    assert isinstance(answer, Unproven), answer
    assert lake.committer().inspect().newest_decision == 1
    assert lake.ids() == [1, 100, 200]


def test_strays_are_in_no_history(lake: PaimonLake) -> None:
    Stream(lake).commit(1, [1])

    def meanwhile() -> None:
        lake.foreign([100])
        lake.foreign([200])
        lake.expire(1)

    event = lake.event([2])
    lake.strand(2, event, meanwhile)
    history = lake.maintenance().history()
    assert [lake.place(each.ref) for each in history.commits] == [3]
    assert not history.whole
    (path,) = [each.path for each in event.files]
    assert lake.maintenance().file_status([path]) == {path: FileStatus.REFERENCED}
