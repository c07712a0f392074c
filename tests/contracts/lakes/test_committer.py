"""The contract of the committer half, the same for every table format."""

from collections.abc import Callable

import pytest

from sluicegate.events import FilesWritten
from sluicegate.lakes.port import (
    Absent,
    Ahead,
    BadFiles,
    CommitRequest,
    Conflict,
    Found,
    OtherDigest,
    OutcomeUnknown,
    Published,
    Refused,
    SnapshotRef,
    TableReplaced,
    Unproven,
)
from tests.contracts.lakes.harness import Fault, Lake, Stream


def test_a_fresh_table_has_no_head_and_no_decisions(lake: Lake) -> None:
    state = lake.committer().inspect()
    assert state.head is None
    assert state.newest_decision is None
    assert Stream(lake).ask(1) == Absent(None)


def test_a_published_decision_is_found_with_its_rows(lake: Lake) -> None:
    stream = Stream(lake)
    made = stream.commit(1, [1, 2, 3], record=False)
    assert made.id == 1
    assert stream.ask(1) == Found(made)
    assert lake.ids() == [1, 2, 3]
    state = lake.committer().inspect()
    assert (state.head, state.newest_decision, state.identity) == (made, 1, stream.table)


def test_a_commit_takes_many_events_at_once(lake: Lake) -> None:
    stream = Stream(lake)
    events = [lake.event([number]) for number in range(7)]
    assert isinstance(stream.publish(1, stream.head(1), events), Published)
    assert lake.ids() == list(range(7))


def test_decisions_follow_each_other(lake: Lake) -> None:
    stream = Stream(lake)
    refs = [stream.commit(decision, [decision]) for decision in range(1, 6)]
    assert [ref.id for ref in refs] == [1, 2, 3, 4, 5]
    assert len({ref.identity for ref in refs}) == 5
    assert lake.ids() == [1, 2, 3, 4, 5]
    assert lake.committer().inspect().newest_decision == 5


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


def test_a_second_committer_of_the_same_user_only_repeats(lake: Lake) -> None:
    one, other = Stream(lake), Stream(lake)
    events = [lake.event([1])]
    head_of_one, head_of_other = one.head(1), other.head(1)
    assert other.publish(1, head_of_other, events) == one.publish(1, head_of_one, events)
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
    assert other.publish(1, None, [lake.event([2])]) == Conflict()
    assert lake.ids() == [1]


def test_a_moved_head_is_a_conflict_and_asking_again_goes_on(lake: Lake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    head = stream.head(2)
    lake.foreign([100])
    events = [lake.event([2])]
    assert stream.publish(2, head, events) == Conflict()
    assert lake.ids() == [1, 100]
    assert isinstance(stream.publish(2, stream.head(2), events), Published)
    assert lake.ids() == [1, 2, 100]


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


def test_a_void_is_an_empty_commit_in_the_place_of_a_decision(lake: Lake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1], 5_000)
    head = stream.head(2)
    assert head is not None
    void = CommitRequest(2, "void-of-2", head, 5_000, [])
    outcome = stream.committer.publish(void)
    assert isinstance(outcome, Published)
    assert outcome.snapshot.id == head.id + 1
    assert stream.committer.publish(void) == outcome
    successor = Stream(lake)
    successor.recorded = head
    assert successor.ask(2) == OtherDigest("void-of-2")
    assert successor.ask(2, "void-of-2") == Found(outcome.snapshot)
    assert (lake.ids(), lake.watermark()) == ([1], 5_000)
    stream.recorded = outcome.snapshot
    stream.commit(3, [3], 6_000)
    assert (lake.ids(), lake.watermark()) == ([1, 3], 6_000)


def test_a_decision_and_its_void_never_both_come_about(lake: Lake) -> None:
    one, other = Stream(lake), Stream(lake)
    head = one.head(1)
    void = CommitRequest(1, "void-of-1", head, None, [])
    assert isinstance(other.committer.publish(void), Published)
    assert one.publish(1, head, [lake.event([1])]) == Conflict()
    assert one.ask(1) == OtherDigest("void-of-1")
    assert lake.ids() == []


def test_a_void_whose_outcome_is_unknown_is_found_when_asked_again(lake: Lake) -> None:
    stream = Stream(lake, lake.committer(fault=Fault.LANDED))
    void = CommitRequest(1, "void-of-1", stream.head(1), None, [])
    assert isinstance(stream.committer.publish(void), OutcomeUnknown)
    assert isinstance(stream.ask(1, "void-of-1"), Found)
    assert stream.ask(1) == OtherDigest("void-of-1")


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


def test_unknown_and_landed_is_found_when_asked_again(lake: Lake) -> None:
    stream = Stream(lake, lake.committer(fault=Fault.LANDED))
    head = stream.head(1)
    events = [lake.event([1])]
    assert isinstance(stream.publish(1, head, events), OutcomeUnknown)
    assert isinstance(stream.ask(1), Found)
    assert isinstance(stream.publish(1, head, events), Published)
    assert lake.ids() == [1]


def test_unknown_and_lost_is_absent_when_asked_again(lake: Lake) -> None:
    stream = Stream(lake, lake.committer(fault=Fault.LOST))
    head = stream.head(1)
    events = [lake.event([1])]
    assert isinstance(stream.publish(1, head, events), OutcomeUnknown)
    assert stream.ask(1) == Absent(None)
    assert isinstance(stream.publish(1, head, events), Published)
    assert lake.ids() == [1]


def test_a_successor_finds_what_its_predecessor_left_unknown(lake: Lake) -> None:
    Stream(lake).commit(1, [1])
    recorded = lake.committer().inspect().head
    before = Stream(lake, lake.committer(fault=Fault.LANDED))
    before.publish(2, before.head(2), [lake.event([2])])
    lake.foreign([100])
    successor = Stream(lake)
    successor.recorded = recorded
    answer = successor.ask(2)
    assert isinstance(answer, Found)
    assert answer.snapshot.id == 2
    assert lake.ids() == [1, 2, 100]


def test_a_table_ahead_of_the_record_is_found_decision_by_decision(lake: Lake) -> None:
    stream = Stream(lake)
    recorded = stream.commit(1, [1])
    refs = {decision: stream.commit(decision, [decision]) for decision in (2, 3, 4)}
    successor = Stream(lake)
    successor.recorded = recorded
    for decision, ref in refs.items():
        assert successor.ask(decision) == Found(ref)
    assert isinstance(successor.ask(5), Absent)


def test_a_late_committer_learns_that_the_table_is_ahead(lake: Lake) -> None:
    stream = Stream(lake)
    recorded = stream.commit(5, [5])
    stream.commit(6, [6])
    stream.commit(7, [7])
    late = Stream(lake)
    late.recorded = recorded
    assert late.ask(4) == Ahead(7)
    late.recorded = None
    assert late.ask(4) == Ahead(7)


def test_a_late_publication_on_an_old_head_is_a_conflict(lake: Lake) -> None:
    stream, late = Stream(lake), Stream(lake)
    old = late.head(1)
    stream.commit(1, [1])
    stream.commit(2, [2])
    request_of_another_content = [lake.event([9])]
    assert late.publish(2, old, request_of_another_content) == Conflict()
    assert lake.ids() == [1, 2]


def test_other_users_decisions_are_no_evidence(lake: Lake) -> None:
    theirs = Stream(lake, lake.committer("stream-b"))
    ours = Stream(lake)
    theirs.commit(1, [10])
    theirs.commit(2, [20])
    assert isinstance(ours.ask(1), Absent)
    ours.commit(1, [1])
    assert isinstance(theirs.ask(3), Absent)
    assert lake.committer().inspect().newest_decision == 1
    assert lake.committer("stream-c").inspect().newest_decision is None


def test_absence_is_proven_across_foreign_commits(lake: Lake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    for number in range(5):
        lake.foreign([100 + number])
    answer = stream.ask(2)
    assert isinstance(answer, Absent)
    assert answer.head is not None
    assert answer.head.id == 6


def test_an_expired_record_proves_nothing_by_itself(lake: Lake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    for number in range(4):
        lake.foreign([100 + number])
    lake.expire(2)
    assert isinstance(stream.ask(2), Unproven)
    assert isinstance(stream.ask(1), Unproven)


def test_an_expired_record_is_replaced_by_the_decision_before(lake: Lake) -> None:
    stream = Stream(lake)
    recorded = stream.commit(1, [1])
    stream.commit(2, [2])
    lake.foreign([100])
    lake.expire(2)
    stream.recorded = recorded
    assert isinstance(stream.ask(3), Absent)
    assert isinstance(stream.ask(4), Unproven)
    assert isinstance(stream.ask(2), Found)


def test_without_a_record_the_whole_history_must_be_there(lake: Lake) -> None:
    stream = Stream(lake)
    assert stream.recorded is None
    lake.foreign([100])
    lake.foreign([101])
    assert isinstance(stream.ask(1), Absent)
    lake.expire(1)
    assert isinstance(stream.ask(1), Unproven)


def test_a_rolled_back_table_is_noticed(lake: Lake) -> None:
    stream = Stream(lake)
    for decision in (1, 2, 3):
        stream.commit(decision, [decision])
    lake.rollback(1)
    assert isinstance(stream.ask(3), Unproven)
    assert isinstance(stream.ask(4), Unproven)


def test_a_table_rolled_back_and_grown_again_is_noticed(lake: Lake) -> None:
    stream = Stream(lake)
    for decision in (1, 2, 3):
        stream.commit(decision, [decision])
    lake.rollback(1)
    lake.foreign([100])
    lake.foreign([101])
    lake.foreign([102])
    assert isinstance(stream.ask(4), Unproven)


def test_a_decision_rolled_back_behind_the_record_may_be_committed_again(lake: Lake) -> None:
    stream = Stream(lake)
    recorded = stream.commit(1, [1])
    stream.commit(2, [2], record=False)
    lake.rollback(1)
    stream.recorded = recorded
    again = stream.commit(2, [2])
    assert again.id == 2
    assert lake.ids() == [1, 2]


def test_a_publication_on_a_head_that_was_rolled_back_is_a_conflict(lake: Lake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    stream.commit(2, [2])
    head = stream.head(3)
    lake.rollback(1)
    assert stream.publish(3, head, [lake.event([3])]) == Conflict()
    assert lake.ids() == [1]


def test_a_head_of_the_same_number_but_other_content_is_a_conflict(lake: Lake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    stream.commit(2, [2])
    head = stream.head(3)
    lake.rollback(1)
    lake.foreign([100])
    assert stream.publish(3, head, [lake.event([3])]) == Conflict()
    assert lake.ids() == [1, 100]


def test_a_replaced_table_is_noticed(lake: Lake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1])
    old = stream.table
    lake.replace()
    answer = stream.ask(2)
    assert isinstance(answer, TableReplaced)
    assert answer.identity == lake.committer().inspect().identity != old


def test_a_head_that_never_was_is_a_conflict(lake: Lake) -> None:
    stream = Stream(lake)
    stream.head(1)
    assert stream.publish(1, SnapshotRef(7, "never"), [lake.event([1])]) == Conflict()
    assert lake.ids() == []


Spoiler = Callable[[FilesWritten], FilesWritten]


def _elsewhere(event: FilesWritten) -> FilesWritten:
    return event.model_copy(update={"location": event.location + "-elsewhere"})


def _climbing(event: FilesWritten) -> FilesWritten:
    climbing = event.files[0].model_copy(update={"path": "../" + event.files[0].path})
    return event.model_copy(update={"files": (climbing,)})


def _newer(event: FilesWritten) -> FilesWritten:
    return event.model_copy(update={"format_version": event.format_version + 1})


def _foreign(event: FilesWritten) -> FilesWritten:
    return event.model_copy(update={"format": "somebody-elses"})


def _twice(event: FilesWritten) -> FilesWritten:
    return event.model_copy(update={"files": event.files * 2})


@pytest.mark.parametrize("spoil", [_elsewhere, _climbing, _newer, _foreign, _twice])
def test_files_that_cannot_be_committed_are_refused(lake: Lake, spoil: Spoiler) -> None:
    stream = Stream(lake)
    bad = spoil(lake.event([1]))
    head = stream.head(1)
    with pytest.raises(BadFiles):
        stream.committer.check([bad])
    assert isinstance(stream.publish(1, head, [bad]), Refused)
    assert stream.ask(1) == Absent(None)
    assert lake.ids() == []


def test_the_same_file_in_two_events_is_refused(lake: Lake) -> None:
    stream = Stream(lake)
    event = lake.event([1])
    twin = event.model_copy()
    with pytest.raises(BadFiles, match="twice"):
        stream.committer.check([event, twin])
    assert isinstance(stream.publish(1, stream.head(1), [event, twin]), Refused)
    assert lake.ids() == []
