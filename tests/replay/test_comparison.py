"""How a decision stands in a table, by its history alone."""

import pytest

from sluicegate.coordinator.core.decisions import void_digest
from sluicegate.lakes.history import PastSnapshot, TableHistory
from sluicegate.lakes.port import SnapshotRef
from sluicegate.replay.comparison import Comparison, Foreign, Standing
from sluicegate.replay.course import Settled
from tests.replay.test_marks import decision

US = "us"


def history(*commits: tuple[str, int, str], whole: bool = True, first: int = 1) -> TableHistory:
    """The oldest first: by whom, which decision, its digest."""
    past = [
        PastSnapshot(SnapshotRef(number, f"s{number}"), *made) for number, made in enumerate(commits, first)
    ]
    return TableHistory("t", tuple(reversed(past)), whole)


def with_digest(number: int, digest: str, *, voided: bool = False) -> Settled:
    settled = decision(number)
    return settled._replace(decision=settled.decision.model_copy(update={"digest": digest}), voided=voided)


@pytest.mark.parametrize(
    ("table", "standing"),
    [
        (history((US, 1, "d1"), (US, 2, "d2")), Standing.THERE),
        (history((US, 1, "d1"), ("other", 0, "")), Standing.MISSING),
        (history(), Standing.MISSING),
        (history((US, 1, "d1"), (US, 3, "d3")), Standing.MISSING),
        (history((US, 1, "d1"), whole=False, first=7), Standing.MISSING),
        (history((US, 3, "d3"), whole=False, first=7), Standing.EXPIRED),
        (history(("other", 0, ""), whole=False, first=7), Standing.UNKNOWN),
        (history((US, 2, "x")), Standing.OTHER),
        (history((US, 2, void_digest("d2"))), Standing.OTHER),
        (history((US, 2, "d2"), (US, 2, "d2")), Standing.DOUBLED),
        (history((US, 2, "d2"), (US, 2, "x")), Standing.OTHER),
        (history((US, 2, "d2"), ("renamed", 2, "d2")), Standing.DOUBLED),
        (history(("renamed", 2, "d2")), Standing.THERE),
    ],
)
def test_a_decision_stands_by_its_id_and_digest(table: TableHistory, standing: Standing) -> None:
    assert Comparison(table, US).judge(with_digest(2, "d2")).standing is standing


def test_a_void_stands_by_its_own_digest() -> None:
    table = history((US, 1, void_digest("d1")), (US, 2, "d2"))
    comparison = Comparison(table, US)
    assert comparison.judge(with_digest(1, "d1", voided=True)).standing is Standing.THERE
    assert comparison.judge(with_digest(2, "d2", voided=True)).standing is Standing.OTHER


def test_what_nobody_asked_for_is_foreign_within_the_range() -> None:
    table = history((US, 1, "d1"), (US, 2, "d2"), (US, 5, "x"), ("other", 6, "y"))
    comparison = Comparison(table, US)
    comparison.judge(with_digest(1, "d1"))
    assert comparison.foreign(1, None) == [Foreign(2, 2, "d2"), Foreign(5, 3, "x")]
    assert comparison.foreign(1, 4) == [Foreign(2, 2, "d2")]
    assert comparison.foreign(3, 4) == []
