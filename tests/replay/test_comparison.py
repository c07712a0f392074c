"""The state of a decision in a table, by the table's history alone."""

from dataclasses import replace

import pytest

from sluicegate.coordinator.core.state import Revert
from sluicegate.coordinator.core.undo import revert_digest
from sluicegate.coordinator.replay.decisions import CommitStatus, Comparison, Foreign, LoggedDecision
from sluicegate.events.models import CutCommitted, CutReverted, SnapshotRef
from sluicegate.lakes.history import PastSnapshot, TableHistory
from tests.replay.test_window import decision

US = "us"


def history(*commits: tuple[str, int, str], whole: bool = True, first: int = 1) -> TableHistory:
    """The oldest first: by whom, which decision, its digest."""
    past = [
        PastSnapshot(SnapshotRef(number, f"s{number}"), *made) for number, made in enumerate(commits, first)
    ]
    return TableHistory("t", tuple(reversed(past)), whole)


def foreign(decision: int, number: int, digest: str) -> Foreign:
    """Return the finding of a commit that `history` has at that place."""
    return Foreign(decision, SnapshotRef(number, f"s{number}"), digest)


def unresolved(number: int, *, ordered: bool = False) -> LoggedDecision:
    """Return decision n with the digest dn, and perhaps with an order to revert it."""
    logged = decision(number)
    revert = Revert(offset=99, region="r1") if ordered else None
    return replace(logged, decision=logged.decision.model_copy(update={"revert": revert}))


def committed(number: int) -> LoggedDecision:
    logged = unresolved(number)
    return replace(logged, outcome=CutCommitted(decision=number, digest=f"d{number}", table="t"))


def reverted(number: int) -> LoggedDecision:
    logged = unresolved(number, ordered=True)
    return replace(logged, outcome=CutReverted(decision=number, digest=revert_of(number), table="t"))


def revert_of(number: int) -> str:
    return revert_digest(unresolved(number, ordered=True).decision) or ""


@pytest.mark.parametrize(
    ("table", "status"),
    [
        (history((US, 1, "d1"), (US, 2, "d2")), CommitStatus.THERE),
        (history((US, 1, "d1"), ("other", 0, "")), CommitStatus.MISSING),
        (history(), CommitStatus.MISSING),
        (history((US, 1, "d1"), (US, 3, "d3")), CommitStatus.MISSING),
        (history((US, 1, "d1"), whole=False, first=7), CommitStatus.MISSING),
        (history((US, 3, "d3"), whole=False, first=7), CommitStatus.EXPIRED),
        (history(("other", 0, ""), whole=False, first=7), CommitStatus.UNKNOWN),
        (history((US, 2, "x")), CommitStatus.OTHER),
        (history((US, 2, revert_of(2))), CommitStatus.OTHER),
        (history((US, 2, "d2"), (US, 2, "d2")), CommitStatus.DOUBLED),
        (history((US, 2, "d2"), (US, 2, "x")), CommitStatus.OTHER),
        (history((US, 2, "d2"), ("renamed", 2, "d2")), CommitStatus.DOUBLED),
        (history(("renamed", 2, "d2")), CommitStatus.THERE),
    ],
)
def test_a_committed_decision_is_found_by_its_id_and_digest(
    table: TableHistory, status: CommitStatus
) -> None:
    assert Comparison(table, US).judge(committed(2)).status is status


def test_a_reverted_decision_has_its_own_digest() -> None:
    comparison = Comparison(history((US, 1, revert_of(1)), (US, 2, "d2")), US)
    assert comparison.judge(reverted(1)).status is CommitStatus.THERE
    assert comparison.judge(reverted(2)).status is CommitStatus.OTHER


@pytest.mark.parametrize("ordered", [False, True])
def test_a_decision_without_an_outcome_may_be_absent(ordered: bool) -> None:
    logged = unresolved(2, ordered=ordered)
    assert logged.undetermined is ordered
    assert Comparison(history((US, 1, "d1")), US).judge(logged).status is CommitStatus.UNRESOLVED
    assert Comparison(history((US, 2, "d2")), US).judge(logged).status is CommitStatus.THERE
    found = Comparison(history((US, 2, revert_of(2))), US).judge(logged).status
    assert found is (CommitStatus.THERE if ordered else CommitStatus.OTHER)


def test_ids_that_the_log_does_not_have_any_more_are_missing_if_that_is_proven() -> None:
    assert [each.decision for each in Comparison(history((US, 2, "d2")), US).lost((1, 2, 3))] == [1, 3]
    expired = Comparison(history((US, 2, "d2"), whole=False, first=7), US)
    assert [each.decision for each in expired.lost((1, 2, 3))] == [3]


def test_a_commit_that_the_log_does_not_have_is_foreign_within_the_range() -> None:
    table = history((US, 1, "d1"), (US, 2, "d2"), (US, 5, "x"), ("other", 6, "y"))
    comparison = Comparison(table, US)
    comparison.judge(committed(1))
    assert comparison.foreign(1, None) == [foreign(2, 2, "d2"), foreign(5, 3, "x")]
    assert comparison.foreign(1, 4) == [foreign(2, 2, "d2")]
    assert comparison.foreign(3, 4) == []


def test_a_commit_without_a_digest_orders_nothing() -> None:
    """Another job made it under the stream's commit user, so its id proves nothing of earlier decisions."""
    foreign_one = Comparison(history((US, 1, ""), whole=False), US)
    assert foreign_one.judge(committed(2)).status is CommitStatus.UNKNOWN
    own = Comparison(history((US, 1, "d1"), whole=False), US)
    assert own.judge(committed(2)).status is CommitStatus.MISSING
