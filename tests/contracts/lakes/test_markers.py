"""The committer half of formats with a marker: what it proves where the history does not."""

import pytest

from sluicegate.lakes.port import Absent, Ahead, CommitRequest, Found, OtherDigest, Published, Unproven
from tests.contracts.lakes.harness import USER, Lake, Stream, with_commits
from tests.contracts.lakes.memory_lake import MemoryLake
from tests.doubles.memory_lake import MarkerKind


def expired(lake: Lake) -> Stream:
    """Return a stream whose commits 1 and 2, and whatever it has recorded, have expired."""
    stream = with_commits(lake, 1)
    stream.commit(2, [2], record=False)
    lake.foreign([100])
    lake.foreign([101])
    lake.expire(1)
    return stream


@pytest.mark.slow
def test_a_commit_that_has_expired_is_found(marked: Lake) -> None:
    stream = expired(marked)
    answer = stream.ask(2)
    assert isinstance(answer, Found)
    assert marked.place(answer.snapshot) == 2
    stream.recorded = None
    assert stream.ask(2) == answer
    assert stream.ask(2, "another") == OtherDigest("digest-2")


@pytest.mark.slow
def test_the_next_decision_is_absent_after_the_expiry_of_the_one_before(marked: Lake) -> None:
    stream = expired(marked)
    head = stream.head(3)
    assert head is not None
    assert marked.place(head) == 4
    stream.commit(3, [3])
    assert marked.ids() == [1, 2, 3, 100, 101]


@pytest.mark.slow
def test_a_decision_that_is_missing_before_the_asked_one_is_told(marked: Lake) -> None:
    answer = expired(marked).ask(4)
    assert isinstance(answer, Unproven)
    assert not answer.expired


@pytest.mark.slow
def test_a_higher_decision_is_told_though_it_has_expired(marked: Lake) -> None:
    assert expired(marked).ask(1) == Ahead(2, (2, "digest-2"))


@pytest.mark.slow
def test_a_void_that_has_expired_is_found(marked: Lake) -> None:
    stream = Stream(marked)
    head = stream.commit(1, [1])
    assert isinstance(stream.committer.publish(CommitRequest(2, "void-of-2", head, None, [])), Published)
    marked.foreign([100])
    marked.expire(1)
    assert stream.ask(2) == OtherDigest("void-of-2")
    assert isinstance(stream.ask(2, "void-of-2"), Found)


@pytest.mark.slow
def test_foreign_ids_under_our_user_do_not_hide_a_commit_that_has_expired(marked: Lake) -> None:
    stream = expired(marked)
    for decision in (1, 2, 9):
        marked.impostor(decision, [200 + decision])
    marked.expire(3)
    assert isinstance(stream.ask(2), Found)
    assert stream.ask(3) == Ahead(9)


@pytest.mark.slow
def test_each_commit_user_has_its_own_marker(marked: Lake) -> None:
    theirs = Stream(marked, marked.committer("stream-b"))
    theirs.commit(1, [10])
    stream = expired(marked)
    assert isinstance(stream.ask(3), Absent)
    assert isinstance(theirs.ask(1), Found)
    assert isinstance(theirs.ask(2), Absent)
    assert marked.committer("stream-c").inspect().newest_made is None


@pytest.mark.slow
def test_decisions_that_were_rolled_back_are_committed_again_on_a_head_before_them(marked: Lake) -> None:
    """As a repair does: their ids are not above that of the marker."""
    stream = Stream(marked)
    kept = stream.commit(1, [1])
    for decision in (2, 3):
        stream.commit(decision, [decision])
    marked.rollback(1)
    stream.recorded = kept
    for decision in (2, 3):
        stream.commit(decision, [decision])
    assert marked.ids() == [1, 2, 3]
    assert marked.committer().inspect().newest_made == 3


@pytest.mark.slow
def test_a_table_in_the_place_of_ours_has_no_marker(marked: Lake) -> None:
    expired(marked)
    marked.replace()
    assert Stream(marked).ask(1) == Absent(None)


@pytest.mark.slow
def test_a_rolled_back_commit_is_not_found(marked: Lake) -> None:
    stream = with_commits(marked, 2)
    marked.rollback(1)
    for number in range(3):
        assert not isinstance(stream.ask(2), Found)
        assert isinstance(stream.ask(3), Unproven)
        marked.foreign([100 + number])
    state = marked.committer().inspect()
    assert (state.newest_decision, state.newest_made) == (1, 1)


@pytest.mark.slow
def test_a_marker_hides_no_rollback_of_others(marked: Lake) -> None:
    """What others have committed after ours is theirs: our decisions are all there."""
    stream = with_commits(marked, 1)
    marked.foreign([100])
    stream.recorded = marked.committer().inspect().head
    marked.rollback(1)
    stream.commit(2, [2])
    assert marked.ids() == [1, 2]


@pytest.mark.parametrize("kind", ["property", "state"])
def test_the_history_has_to_prove_an_absence_again_where_the_marker_is_gone(kind: MarkerKind) -> None:
    lake = MemoryLake(markers=kind)
    stream = expired(lake)
    lake.table.unmark(USER)
    assert isinstance(stream.ask(2), Unproven)
    assert isinstance(stream.ask(3), Unproven)
    assert lake.committer().inspect().newest_made is None
    stream.recorded = lake.committer().inspect().head
    stream.commit(3, [3])
    assert isinstance(stream.ask(4), Absent)


def test_a_property_whose_snapshot_was_rolled_back_proves_nothing_when_all_else_has_expired() -> None:
    """It is beside the history, or below a snapshot of the history that was made on another one."""
    lake = MemoryLake(markers="property")
    stream = with_commits(lake, 2)
    lake.rollback(1)
    lake.foreign([100])
    lake.expire(1)
    assert isinstance(stream.ask(2), Unproven)
    assert isinstance(stream.ask(3), Unproven)
    assert lake.committer().inspect().newest_made is None


@pytest.mark.parametrize(("kind", "alone"), [("property", True), ("state", False)])
def test_an_answer_by_a_property_alone_is_marked(kind: MarkerKind, alone: bool) -> None:
    """No trace of a rollback is left where the snapshots of that time have expired, those beside, too."""
    lake = MemoryLake(markers=kind)
    stream = expired(lake)
    found, absent, state = stream.ask(2), stream.ask(3), lake.committer().inspect()
    assert isinstance(found, Found)
    assert isinstance(absent, Absent)
    assert (found.by_marker, absent.by_marker, state.by_marker) == (alone, alone, alone)
    assert (state.newest_decision, state.newest_made) == (2, 2)
