"""The committer half of every table format: tables that others have set back or replaced."""

import pytest

from sluicegate.lakes.port import TableReplaced, Unproven
from tests.contracts.lakes.harness import Lake, Stream, with_commits
from tests.lakes.outcomes import is_refused


def test_a_rolled_back_table_is_noticed(lake: Lake) -> None:
    stream = with_commits(lake, 3)
    lake.rollback(1)
    assert isinstance(stream.ask(3), Unproven)
    assert isinstance(stream.ask(4), Unproven)


@pytest.mark.slow
def test_a_table_rolled_back_and_grown_again_is_noticed(lake: Lake) -> None:
    stream = with_commits(lake, 3)
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
    assert lake.place(again) == 2
    assert lake.ids() == [1, 2]


@pytest.mark.slow
def test_a_head_of_the_same_number_but_other_content_is_a_conflict(lake: Lake) -> None:
    stream = with_commits(lake, 2)
    head = stream.head(3)
    lake.rollback(1)
    lake.foreign([100])
    assert is_refused(stream.publish(3, head, [lake.event([3])]), again=True)
    assert lake.ids() == [1, 100]


@pytest.mark.slow
def test_a_replaced_table_is_noticed(lake: Lake) -> None:
    stream = with_commits(lake, 1)
    old = stream.table
    lake.replace()
    answer = stream.ask(2)
    assert isinstance(answer, TableReplaced)
    assert answer.identity == lake.committer().inspect().identity != old


@pytest.mark.slow
def test_the_identity_is_that_of_the_table_that_is_there_now(lake: Lake) -> None:
    stream = with_commits(lake, 1)
    assert stream.committer.identity() == stream.table
    lake.replace()
    assert stream.committer.identity() == lake.committer().inspect().identity != stream.table


def test_files_state_the_identity_of_the_table_that_they_were_written_for(lake: Lake) -> None:
    stream = Stream(lake)
    assert lake.event([1]).table_identity == stream.table
    lake.replace()
    assert lake.event([2]).table_identity == lake.committer().identity() != stream.table


@pytest.mark.slow
def test_the_highest_own_decision_of_a_rolled_back_table_is_known(lake: Lake) -> None:
    """A foreign job that commits as the same user hides nothing."""
    lake.foreign([100])
    with_commits(lake, 2)
    state = lake.committer().inspect()
    assert (state.newest_made, state.digest) == (2, "digest-2")
    lake.rollback(2)
    lake.impostor(2, [101])
    state = lake.committer().inspect()
    assert (state.newest_decision, state.newest_made, state.digest) == (2, 1, "digest-1")
    lake.rollback(1)
    lake.impostor(2, [102])
    state = lake.committer().inspect()
    assert (state.newest_decision, state.newest_made, state.digest) == (2, 0, "")


@pytest.mark.slow
def test_only_a_marker_shows_own_decisions_in_an_expired_history(lake: Lake) -> None:
    Stream(lake).commit(1, [1])
    lake.foreign([100])
    lake.foreign([101])
    lake.expire(1)
    state = lake.committer().inspect()
    found = state.newest_decision, state.newest_made, state.digest
    assert found == ((1, 1, "digest-1") if lake.marked else (None, None, ""))
