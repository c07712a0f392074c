"""Processes that stand still at the link that decides a commit, and what the history proves after it."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import Absent, Found, OutcomeUnknown, Published, Unproven
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.harness import USER, Stream, with_commits
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.contracts.lakes.paimon_objects import PAIMON, paimon_of
from tests.lakes.outcomes import is_refused


class Paused(LocalStorage):
    """Others work right before and right behind the link that decides a commit."""

    def __init__(self, lake: PaimonLake, before: Callable[[], None], after: Callable[[], None]) -> None:
        super().__init__(lake.location)
        self._before, self._after = before, after

    def link(self, draft: str, target: str) -> None:
        self._before()
        super().link(draft, target)
        self._after()


def nothing() -> None:
    """Nobody works."""


def paused(
    lake: PaimonLake, *, before: Callable[[], None] = nothing, after: Callable[[], None] = nothing
) -> Stream:
    return Stream(lake, PaimonCommitter(Paused(lake, before, after), USER))


def foreign_and_expire(lake: PaimonLake, *rows: Sequence[int], keep: int = 1) -> Callable[[], None]:
    """Return what others do: a commit for each list of rows, and an expiry."""

    def act() -> None:
        for each in rows:
            lake.foreign(each)
        lake.expire(keep)

    return act


@pytest.mark.slow
@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("others", [2, 5])
def test_a_thawed_committer_does_not_publish_into_expired_history(
    lake: PaimonLake, before: int, keep: int, others: int
) -> None:
    """The number after its head is free again, because what stood there has expired."""
    with_commits(lake, before)
    rows = [[1_000 + number, 2_000 + number] for number in range(others)]
    frozen = paused(lake, before=foreign_and_expire(lake, *rows, keep=keep))
    outcome = frozen.publish(before + 1, frozen.head(before + 1), [lake.event([7])])
    if others == 2 and keep == 2:
        assert is_refused(outcome, again=True)
    else:
        assert isinstance(outcome, OutcomeUnknown)
        assert outcome.cause == Cause(code=CauseCode.WITHDRAWN, snapshot=before + 1)
    found = lake.ids()
    assert 7 not in found
    assert len(found) == before + 2 * others
    assert max(lake.snapshot_ids()) == before + others
    assert (lake.root / "snapshot" / "LATEST").read_text() == str(before + others)
    answer = frozen.ask(before + 1)
    assert isinstance(answer, Unproven if before or len(lake.snapshot_ids()) < others else Absent)


@pytest.mark.slow
@pytest.mark.parametrize("regrown", [0, 1])
def test_a_thawed_committer_does_not_publish_on_what_was_rolled_back(lake: PaimonLake, regrown: int) -> None:
    stream = with_commits(lake, 3)

    def meanwhile() -> None:
        lake.rollback(2)
        for number in range(regrown):
            lake.foreign([1_000 + number])

    frozen = paused(lake, before=meanwhile)
    assert isinstance(frozen.publish(4, stream.recorded, [lake.event([4])]), OutcomeUnknown)
    assert lake.ids() == [1, 2, *range(1_000, 1_000 + regrown)]
    assert isinstance(frozen.ask(4), Unproven)


def test_a_commit_that_others_build_on_at_once_counts(lake: PaimonLake) -> None:
    """The first snapshot has no predecessor to prove its place; what follows it does."""
    paused(lake, after=lambda: lake.foreign([1_000])).commit(1, [1])
    assert lake.ids() == [1, 1_000]


@pytest.mark.slow
@pytest.mark.parametrize("older", [1, 28, 29], ids=["lists as they were", "one short of a merge", "merged"])
@pytest.mark.parametrize("rows", [[100], []], ids=["rows", "no rows"])
def test_a_commit_counts_that_others_built_on_before_its_predecessor_expired(
    lake: PaimonLake, older: int, rows: list[int]
) -> None:
    """Neither its predecessor nor a manifest of the same name proves its place when manifests are merged."""
    with_commits(lake, older)
    other = Stream(lake, lake.committer("stream-b"))

    def meanwhile() -> None:
        other.recorded = lake.committer().inspect().head
        other.commit(1, [200])
        lake.expire(2)

    thawed = paused(lake, after=meanwhile)
    made = thawed.commit(older + 1, rows)
    assert lake.snapshot_ids() == [older + 1, older + 2]
    assert thawed.ask(older + 1) == Found(made)
    assert lake.ids() == sorted([*range(1, older + 1), *rows, 200])


# --- snapshots of dead processes at numbers that had expired ------------------------------------------


@pytest.fixture(params=PAIMON)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> PaimonLake:
    """A table on local files, or in an S3 server."""
    return paimon_of(request.param, request, tmp_path)


@pytest.mark.seam
@pytest.mark.slow
@pytest.mark.parametrize("rows", [[100], [], [100, 101, 102]], ids=["as many rows", "no rows", "more rows"])
def test_a_stray_is_in_no_history_and_not_found_by_the_successor(stored: PaimonLake, rows: list[int]) -> None:
    first, event = with_commits(stored, 1), stored.event([2])
    stored.strand(2, event, foreign_and_expire(stored, rows, [200]))
    successor = Stream(stored)
    successor.recorded = first.recorded
    answer = successor.ask(2)
    assert isinstance(answer, Unproven), answer
    assert answer.cause is not None
    assert (answer.cause.stray, answer.cause.oldest) == (2, 3)
    assert stored.ids() == sorted([1, *rows, 200])


def test_strays_are_in_no_history_and_their_files_stay(lake: PaimonLake) -> None:
    with_commits(lake, 1)
    event = lake.event([2])
    lake.strand(2, event, foreign_and_expire(lake, [100], [200]))
    history = lake.maintenance().history()
    assert [lake.place(each.ref) for each in history.commits] == [3]
    assert not history.whole
    (path,) = [each.path for each in event.files]
    assert lake.maintenance().file_status([path]) == {path: FileStatus.REFERENCED}


@pytest.mark.seam
@pytest.mark.slow
def test_a_stray_is_no_proof_of_an_absence(stored: PaimonLake) -> None:
    """It looks like the beginning of a history that can be read whole."""
    other = Stream(stored, stored.committer("stream-b"))

    def meanwhile() -> None:
        Stream(stored, stored.committer("stream-b")).commit(1, [100])
        foreign_and_expire(stored, [200])()

    stored.strand(1, stored.event([1]), meanwhile)
    assert other.recorded is None
    answer = other.ask(1)
    assert isinstance(answer, Unproven), answer
    assert stored.ids() == [100, 200]


@pytest.mark.slow
def test_a_stray_hides_nothing_that_is_in_the_history(lake: PaimonLake) -> None:
    first = with_commits(lake, 1)

    def meanwhile() -> None:
        lake.foreign([100])
        first.commit(2, [2], record=False)
        foreign_and_expire(lake, [200], keep=2)()

    lake.strand(2, lake.event([2]), meanwhile)
    answer = first.ask(2)
    assert isinstance(answer, Found), answer
    assert lake.place(answer.snapshot) == 3
    first.recorded = answer.snapshot
    assert isinstance(first.ask(3), Absent)
    assert lake.ids() == [1, 2, 100, 200]


@pytest.mark.slow
def test_a_stray_below_does_not_make_the_head_one(lake: PaimonLake) -> None:
    """A commit whose predecessor expires at once is not withdrawn for what was left there long ago."""
    stream = Stream(lake)

    def others() -> None:
        for decision in (1, 2, 3):
            stream.commit(decision, [decision])
        lake.expire(1)

    lake.strand(1, lake.event([1]), others)
    assert lake.snapshot_ids() == [1, 3]
    hasty = paused(lake, after=(lake.root / "snapshot" / "snapshot-3").unlink)
    hasty.recorded = stream.recorded
    assert isinstance(hasty.publish(4, hasty.head(4), [lake.event([4])]), OutcomeUnknown)
    assert lake.snapshot_ids() == [1, 4]
    assert isinstance(hasty.ask(4), Found)
    assert lake.ids() == [1, 2, 3, 4]


@pytest.mark.slow
def test_the_stray_of_a_twin_is_not_taken_for_the_commit(lake: PaimonLake) -> None:
    with_commits(lake, 1)
    event = lake.event([2])
    others = foreign_and_expire(lake, [100], [101])
    twin = paused(lake, before=lambda: lake.strand(2, event, others))
    assert isinstance(twin.publish(2, twin.head(2), [event]), OutcomeUnknown)
    assert isinstance(twin.ask(2), Unproven)
    assert lake.ids() == [1, 100, 101]


@pytest.mark.slow
def test_a_stray_whose_lists_were_cleaned_away_is_no_obstacle(lake: PaimonLake) -> None:
    stream = with_commits(lake, 1)
    drafts, kept = set(os.listdir(lake.root / "manifest")), set[str]()

    def others() -> None:
        kept.update(os.listdir(lake.root / "manifest"))
        foreign_and_expire(lake, [100], [101])()

    lake.strand(2, lake.event([2]), others)
    for name in kept - drafts:
        (lake.root / "manifest" / name).unlink()
    assert isinstance(stream.ask(2), Unproven)


# --- files that were checked before -------------------------------------------------------------------


def test_files_that_vanish_before_they_are_checked_are_refused(lake: PaimonLake) -> None:
    stream, event = Stream(lake), lake.event([1])
    head = stream.head(1)
    gone = lake.root / event.files[0].path
    gone.rename(lake.root / "away")
    outcome = stream.publish(1, head, [event])
    assert is_refused(outcome)
    assert event.files[0].path in outcome.reason
    assert lake.ids() == []
    (lake.root / "away").rename(gone)
    assert isinstance(stream.publish(1, head, [event]), Published)
    assert lake.ids() == [1]
