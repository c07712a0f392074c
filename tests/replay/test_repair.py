"""Repair adds decisions at the end alone, and leaves no hole before one that it adds."""

from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from sluicegate.coordinator.replay.decisions import CommitStatus, Comparison, ReplayRefused
from sluicegate.coordinator.replay.repair import Repair
from sluicegate.lakes.history import TableHistory
from tests.replay.test_comparison import US, committed, history, unresolved


def repair_of(log: Any = None) -> Repair:
    """Return a repair that only plans."""
    log = log or MagicMock(bodies=AsyncMock(return_value={}))
    table = MagicMock(require_files=AsyncMock())
    return Repair(log, "s", table, AsyncMock(), dry=True)


async def add(number: int, last: int | None, found: TableHistory) -> Repair:
    """Add a decision to a table that ends with another one."""
    made, comparison = repair_of(), Comparison(found, US)
    made._last = last
    logged = committed(number)
    await made._commit(comparison.judge(logged), logged, found, lambda _: None)
    return made


@pytest.mark.parametrize(("number", "last"), [(2, 1), (3, None), (1, 0)])
async def test_the_next_decision_is_added(number: int, last: int | None) -> None:
    made = await add(number, last, history(whole=False))
    assert (made._last, len(made._result.committed)) == (number, 1)


@pytest.mark.parametrize(("number", "last"), [(3, 1), (2, 0), (2, 2)])
async def test_a_decision_after_a_hole_is_refused(number: int, last: int) -> None:
    with pytest.raises(ReplayRefused, match=f"decision {number} cannot be committed: the table ends with"):
        await add(number, last, history((US, 1, "d1")))


def test_a_decision_before_the_newest_one_is_refused() -> None:
    comparison = Comparison(history((US, 1, "d1"), (US, 3, "d3")), US)
    made = repair_of()
    with pytest.raises(ReplayRefused, match="is not in the table, but 3 is"):
        made._is_missing(comparison.judge(committed(2)), comparison)
    assert made._is_missing(comparison.judge(unresolved(4)), comparison)


@pytest.mark.parametrize(
    "commits", [((US, 1, "other"),), ((US, 1, "d1"), ("another", 1, "d1"))], ids=["content", "twice"]
)
def test_a_decision_with_other_content_or_twice_is_refused(commits: tuple[tuple[str, int, str], ...]) -> None:
    comparison = Comparison(history(*commits), US)
    finding = comparison.judge(committed(1))
    assert finding.status in (CommitStatus.OTHER, CommitStatus.DOUBLED)
    with pytest.raises(ReplayRefused):
        repair_of()._is_missing(finding, comparison)


def test_a_decision_whose_history_expired_is_left() -> None:
    comparison = Comparison(history(("another", 1, "x"), whole=False), US)
    made = repair_of()
    assert not made._is_missing(comparison.judge(committed(1)), comparison)
    assert [finding.status for finding, _ in made._result.left] == [CommitStatus.UNKNOWN]
