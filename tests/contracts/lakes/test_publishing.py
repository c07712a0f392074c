"""The committer half of every table format: what publishing a decision does to the table."""

import pytest

from sluicegate.events.models import SnapshotRef
from sluicegate.lakes.port import Absent, CommitRequest, Found, OtherDigest, Published
from tests.contracts.lakes.harness import Lake, Stream, with_commits
from tests.lakes.outcomes import is_refused


def test_a_fresh_table_has_no_head_and_no_decisions(lake: Lake) -> None:
    state = lake.committer().inspect()
    assert state.head is None
    assert state.newest_decision is None
    assert Stream(lake).ask(1) == Absent(None)


def test_a_published_decision_is_found_with_its_rows(lake: Lake) -> None:
    stream = Stream(lake)
    made = stream.commit(1, [1, 2, 3], record=False)
    assert lake.place(made) == 1
    assert stream.ask(1) == Found(made)
    assert lake.ids() == [1, 2, 3]
    state = lake.committer().inspect()
    assert (state.head, state.newest_decision, state.identity) == (made, 1, stream.table)


def test_repeating_a_publication_changes_nothing(lake: Lake) -> None:
    stream = Stream(lake)
    events = [lake.event([1])]
    head = stream.head(1)
    first = stream.publish(1, head, events)
    assert stream.publish(1, head, events) == first
    assert (
        Stream(lake, lake.committer()).ask(1) == Found(first.snapshot) if isinstance(first, Published) else 0
    )
    assert lake.ids() == [1]


def test_another_digest_under_the_same_id_is_told_apart(lake: Lake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1], record=False)
    assert stream.ask(1, "something else") == OtherDigest("digest-1")


def test_another_users_decision_is_not_taken_for_a_repetition(lake: Lake) -> None:
    one, other = Stream(lake), Stream(lake, lake.committer("stream-b"))
    events = [lake.event([1])]
    one.head(1)
    other.head(1)
    assert isinstance(one.publish(1, None, events), Published)
    assert is_refused(other.publish(1, None, [lake.event([2])]), again=True)
    assert lake.ids() == [1]


@pytest.mark.slow
def test_a_moved_head_is_a_conflict_and_asking_again_goes_on(lake: Lake) -> None:
    stream = with_commits(lake, 1)
    head = stream.head(2)
    lake.foreign([100])
    events = [lake.event([2])]
    assert is_refused(stream.publish(2, head, events), again=True)
    assert lake.ids() == [1, 100]
    assert isinstance(stream.publish(2, stream.head(2), events), Published)
    assert lake.ids() == [1, 2, 100]


def test_a_late_publication_on_an_old_head_is_a_conflict(lake: Lake) -> None:
    stream, late = Stream(lake), Stream(lake)
    old = late.head(1)
    stream.commit(1, [1])
    stream.commit(2, [2])
    request_of_another_content = [lake.event([9])]
    assert is_refused(late.publish(2, old, request_of_another_content), again=True)
    assert lake.ids() == [1, 2]


def test_a_head_that_never_was_is_a_conflict(lake: Lake) -> None:
    stream = Stream(lake)
    stream.head(1)
    assert is_refused(stream.publish(1, SnapshotRef(7, "never"), [lake.event([1])]), again=True)
    assert lake.ids() == []


def test_an_empty_commit_makes_a_snapshot(lake: Lake) -> None:
    stream = Stream(lake)
    head = stream.head(1)
    outcome = stream.publish(1, head, [], 1_000)
    assert isinstance(outcome, Published)
    assert stream.ask(1) == Found(outcome.snapshot)
    assert lake.ids() == []
    assert lake.watermark() == 1_000
    stream.recorded = outcome.snapshot
    stream.commit(2, [1])
    assert lake.ids() == [1]


@pytest.mark.slow
def test_the_watermark_never_regresses(lake: Lake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1], watermark=5_000)
    stream.commit(2, [2], watermark=4_000)
    assert lake.watermark() == 5_000
    lake.foreign([100])
    stream.commit(3, [3])
    assert lake.watermark() == 5_000
    stream.commit(4, [4], watermark=6_000)
    assert lake.watermark() == 6_000


def test_checks_of_files_hold_over_commits(lake: Lake) -> None:
    stream = Stream(lake)
    committer = stream.committer
    event, premises = lake.event([9]), committer.premises()
    checked = committer.check([event])
    stream.commit(1, [1])
    lake.foreign([100])
    assert committer.premises() == premises
    stream.recorded = lake.committer().inspect().head
    assert isinstance(stream.publish(2, stream.head(2), checked), Published)
    assert lake.ids() == [1, 9, 100]


def test_checks_of_files_do_not_hold_for_the_table_that_replaced_theirs(lake: Lake) -> None:
    committer = lake.committer()
    checked, before = committer.check([lake.event([1])]), committer.premises()
    lake.replace()
    assert committer.premises() != before
    stream = Stream(lake)
    assert is_refused(stream.publish(1, stream.head(1), checked), again=True)
    assert lake.ids() == []


def test_a_checked_event_is_published_with_what_it_says(lake: Lake) -> None:
    stream, event = Stream(lake), lake.event([1, 2, 3])
    (checked,) = stream.committer.check([event])
    assert checked.premises == stream.committer.premises()
    assert checked.files == len(event.files)
    assert checked.rows == 3
    assert checked.size == sum(file.size for file in event.files)
    assert checked.held > 0
    assert isinstance(stream.publish(1, stream.head(1), [lake.event([4]), checked]), Published)
    assert lake.ids() == [1, 2, 3, 4]


def test_one_file_in_two_checked_events_is_refused(lake: Lake) -> None:
    stream, event = Stream(lake), lake.event([1])
    checked = [*stream.committer.check([event]), *stream.committer.check([event.model_copy()])]
    assert is_refused(stream.publish(1, stream.head(1), checked))
    assert lake.ids() == []


@pytest.mark.slow
def test_a_commit_on_another_head_of_the_same_number_is_not_this_one(lake: Lake) -> None:
    """Another coordinator has published the decision after the table was set back and grown again."""
    stream = with_commits(lake, 2)
    files, asked = stream.committer.check([lake.event([3])]), stream.head(3)
    lake.rollback(1)
    lake.foreign([100])
    other = lake.committer()
    head = other.inspect().head
    assert head is not None
    assert asked is not None
    assert head != asked
    request = CommitRequest(3, "digest-3", head, None, files)
    assert isinstance(other.publish(request), Published)
    assert is_refused(stream.publish(3, asked, files), again=True)
    assert lake.ids() == [1, 3, 100]


@pytest.mark.slow
@pytest.mark.parametrize("expired", [False, True], ids=["whole", "expired"])
def test_the_watermark_of_a_table_does_not_fall_behind_another_stream(lake: Lake, expired: bool) -> None:
    """The other stream has committed it, a foreign job has followed, and its snapshot may have expired."""
    Stream(lake).commit(1, [1], watermark=5_000)
    lake.foreign([100])
    lake.foreign([101])
    if expired:
        lake.expire(1)
    other = Stream(lake, lake.committer("stream-b"))
    other.recorded = other.committer.inspect().head
    head = other.committer.inspect().head
    request = CommitRequest(1, "digest-1", head, 4_000, other.committer.check([lake.event([2])]))
    assert other.committer.identity() == other.table
    assert isinstance(other.committer.publish(request), Published)
    assert lake.watermark() == 5_000
    assert lake.ids() == [1, 2, 100, 101]
