"""Processes that stand still at the worst moment, and what the history proves when they go on."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.events.problems import Cause, CauseCode
from sluicegate.lakes.paimon import entries
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import Absent, Found, OutcomeUnknown, Published, Unproven
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.harness import USER, Stream
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.outcomes import is_refused


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLake:
    return PaimonLake(tmp_path)


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


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[100], [], [100, 101]], ids=["as many rows", "no rows", "more rows"])
def test_a_link_that_lands_on_an_expired_number_is_not_published(lake: PaimonLake, rows: list[int]) -> None:
    Stream(lake).commit(1, [1])

    def meanwhile() -> None:
        lake.foreign(rows)
        lake.foreign([200])
        lake.expire(1)

    thawed = paused(lake, before=meanwhile)
    event = lake.event([2])
    outcome = thawed.publish(2, thawed.head(2), [event])
    assert isinstance(outcome, OutcomeUnknown)
    assert outcome.cause == Cause(code=CauseCode.WITHDRAWN, snapshot=2)
    assert lake.snapshot_ids() == [3]
    assert lake.ids() == sorted([1, *rows, 200])
    assert isinstance(thawed.ask(2), Unproven)


@pytest.mark.slow
@pytest.mark.parametrize("older", [1, 28, 29], ids=["lists as they were", "one short of a merge", "merged"])
@pytest.mark.parametrize("rows", [[100], []], ids=["rows", "no rows"])
def test_a_commit_counts_that_others_built_on_before_its_predecessor_expired(
    lake: PaimonLake, older: int, rows: list[int]
) -> None:
    """Neither its predecessor nor a manifest of the same name proves its place when manifests are merged."""
    stream = Stream(lake)
    for decision in range(1, older + 1):
        stream.commit(decision, [decision])
    other = Stream(lake, lake.committer("stream-b"))

    def meanwhile() -> None:
        other.recorded = lake.committer().inspect().head
        other.commit(1, [200])
        lake.expire(2)

    thawed = paused(lake, after=meanwhile)
    outcome = thawed.publish(older + 1, thawed.head(older + 1), [lake.event(rows)])
    assert isinstance(outcome, Published)
    assert lake.snapshot_ids() == [older + 1, older + 2]
    assert thawed.ask(older + 1) == Found(outcome.snapshot)
    assert lake.ids() == sorted([*range(1, older + 1), *rows, 200])


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
    event = lake.event([4])
    outcome = hasty.publish(4, hasty.head(4), [event])
    assert isinstance(outcome, OutcomeUnknown)
    assert lake.snapshot_ids() == [1, 4]
    assert isinstance(hasty.ask(4), Found)
    assert lake.ids() == [1, 2, 3, 4]


@pytest.mark.slow
def test_the_stray_of_a_twin_is_not_taken_for_the_commit(lake: PaimonLake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    event = lake.event([2])

    def others() -> None:
        for number in (100, 101):
            lake.foreign([number])
        lake.expire(1)

    twin = paused(lake, before=lambda: lake.strand(2, event, others))
    outcome = twin.publish(2, twin.head(2), [event])
    assert isinstance(outcome, OutcomeUnknown)
    assert isinstance(twin.ask(2), Unproven)
    assert lake.ids() == [1, 100, 101]


@pytest.mark.slow
def test_a_stray_whose_lists_were_cleaned_away_is_no_obstacle(lake: PaimonLake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    kept: set[str] = set()

    def others() -> None:
        kept.update(os.listdir(lake.root / "manifest"))
        for number in (100, 101):
            lake.foreign([number])
        lake.expire(1)

    drafts = set(os.listdir(lake.root / "manifest"))
    lake.strand(2, lake.event([2]), others)
    for name in kept - drafts:
        (lake.root / "manifest" / name).unlink()
    assert isinstance(stream.ask(2), Unproven)


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


def test_a_successor_looks_at_files_that_it_has_never_seen(lake: PaimonLake) -> None:
    event = lake.event([1])
    Stream(lake).committer.check([event])
    (lake.root / event.files[0].path).unlink()
    successor = Stream(lake)
    assert isinstance(successor.ask(1), Absent)
    outcome = successor.publish(1, None, [event.model_copy()])
    assert is_refused(outcome)
    assert event.files[0].path in outcome.reason


def test_what_was_seen_is_not_looked_at_again(lake: PaimonLake, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(lake)
    event = lake.event([1])
    checked = stream.committer.check([event])
    looked: list[str] = []
    size = LocalStorage.size

    def watched(self: LocalStorage, name: str) -> int | None:
        looked.append(name)
        return size(self, name)

    def never(_: object) -> None:
        raise AssertionError("an entry was decoded again")

    monkeypatch.setattr(LocalStorage, "size", watched)
    monkeypatch.setattr(entries, "_decode", never)
    assert isinstance(stream.publish(1, stream.head(1), checked), Published)
    assert event.files[0].path not in looked
