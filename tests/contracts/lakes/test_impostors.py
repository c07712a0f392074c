"""A foreign job commits as our commit user: its ids say nothing of our decisions, and rows stay single."""

import pytest

from sluicegate.events.problems import CauseCode
from sluicegate.lakes.port import Absent, Ahead, CommitRequest, Found, OtherDigest, Published, Unproven
from tests.contracts.lakes.harness import USER, Lake, Stream, with_commits


def goes_on(lake: Lake, stream: Stream, decision: int) -> None:
    """Do as a coordinator that does not know the outcome of its last publication: ask, publish if absent."""
    answer = stream.ask(decision)
    if isinstance(answer, Absent):
        outcome = stream.publish(decision, answer.head, [lake.event([decision])])
        assert isinstance(outcome, Published)
        stream.recorded = outcome.snapshot
    if isinstance(answer, Found):
        stream.recorded = answer.snapshot


@pytest.mark.slow
@pytest.mark.parametrize("theirs", [[1], [0], [1, 0, 1], [0, 1]], ids=str)
def test_a_lower_id_above_a_decision_doubles_no_rows(lake: Lake, theirs: list[int]) -> None:
    stream = with_commits(lake, 1)
    made = stream.commit(2, [2], record=False)
    for number, decision in enumerate(theirs):
        lake.impostor(decision, [100 + number])
    assert stream.ask(2) == Found(made)
    goes_on(lake, stream, 2)
    goes_on(lake, stream, 3)
    assert lake.ids() == [1, 2, 3, *range(100, 100 + len(theirs))]


@pytest.mark.slow
def test_lower_ids_between_the_record_and_the_head_hide_nothing(lake: Lake) -> None:
    stream = with_commits(lake, 2)
    lake.impostor(1, [100])
    assert isinstance(stream.ask(3), Absent)
    made = stream.commit(3, [3], record=False)
    lake.impostor(0, [101])
    assert stream.ask(3) == Found(made)
    assert stream.ask(2) == Found(stream.recorded) if stream.recorded else False
    assert lake.ids() == [1, 2, 3, 100, 101]


def test_the_same_id_above_ours_does_not_hide_it(lake: Lake) -> None:
    stream = with_commits(lake, 1)
    made = stream.commit(2, [2], record=False)
    lake.impostor(2, [100])
    assert stream.ask(2) == Found(made)


def test_the_same_id_does_not_hide_that_ours_was_given_up(lake: Lake) -> None:
    stream = Stream(lake)
    head = stream.commit(1, [1])
    void = CommitRequest(2, "void-of-2", head, None, [])
    assert isinstance(stream.committer.publish(void), Published)
    lake.impostor(2, [100])
    assert stream.ask(2) == OtherDigest("void-of-2")


@pytest.mark.slow
def test_the_same_id_does_not_hide_that_ours_has_expired(lake: Lake) -> None:
    stream = with_commits(lake, 1)
    for decision in (2, 3):
        stream.commit(decision, [decision], record=False)
    lake.impostor(2, [100])
    lake.expire(2)
    assert stream.ask(2) == Ahead(3, (3, "digest-3"))


@pytest.mark.slow
def test_the_same_id_in_the_place_of_ours_is_told(lake: Lake) -> None:
    stream = with_commits(lake, 1)
    lake.impostor(2, [100])
    assert stream.ask(2) == OtherDigest("")
    lake.rollback(1)
    assert isinstance(stream.ask(2), Absent)
    stream.commit(2, [2])
    assert lake.ids() == [1, 2]


@pytest.mark.slow
def test_a_higher_id_publishes_nothing(lake: Lake) -> None:
    stream = with_commits(lake, 1)
    lake.impostor(9, [100])
    lake.impostor(1, [101])
    assert stream.ask(2) == Ahead(9)


@pytest.mark.slow
def test_the_highest_decision_is_the_newest(lake: Lake) -> None:
    with_commits(lake, 3)
    lake.impostor(1, [100])
    lake.foreign([101])
    assert lake.committer().inspect().newest_decision == 3


@pytest.mark.slow
def test_a_lower_id_proves_nothing_where_the_record_has_expired(lake: Lake) -> None:
    """Decision 2 was made before everything that can still be read; decision 1 is not ours."""
    stream = with_commits(lake, 1)
    stream.commit(2, [2], record=False)
    lake.impostor(1, [100])
    lake.expire(1)
    expected = Found if lake.marked else Unproven
    assert isinstance(stream.ask(2), expected)
    stream.recorded = None
    assert isinstance(stream.ask(2), expected)
    assert lake.ids() == [1, 2, 100]


def test_the_id_of_another_deployment_proves_nothing_either(lake: Lake) -> None:
    """It writes digests as we do. Where the table has a marker, it sees ours when it asks."""
    stream = with_commits(lake, 1)
    stream.commit(2, [2], record=False)
    other = lake.committer(USER)
    head = other.inspect().head
    if lake.marked:
        lake.expire(1)
        assert other.ask(1, "another", stream.table, None) == Ahead(2, (2, "digest-2"))
        return
    assert isinstance(other.publish(CommitRequest(1, "another", head, None, [lake.event([100])])), Published)
    lake.expire(1)
    assert isinstance(stream.ask(2), Unproven)
    stream.recorded = None
    assert isinstance(stream.ask(2), Unproven)


@pytest.mark.slow
def test_without_a_record_the_whole_history_is_read(lake: Lake) -> None:
    stream = Stream(lake)
    lake.impostor(0, [100])
    assert isinstance(stream.ask(1), Absent)
    stream.commit(1, [1], record=False)
    made = stream.commit(2, [2], record=False)
    lake.impostor(1, [101])
    assert stream.recorded is None
    assert stream.ask(2) == Found(made)
    stream.commit(3, [3])
    assert lake.ids() == [1, 2, 3, 100, 101]


@pytest.mark.slow
def test_a_lower_id_covers_no_hole_in_the_history(lake: Lake) -> None:
    stream = with_commits(lake, 1)
    stream.commit(2, [2], record=False)
    lake.foreign([100])
    lake.impostor(1, [101])
    lake.lose(2)
    answer = stream.ask(2)
    assert isinstance(answer, Unproven) or (lake.marked and isinstance(answer, Found)), answer
    if isinstance(answer, Unproven):
        assert answer.cause is not None
        assert answer.cause.code is CauseCode.SNAPSHOT_MISSING
    stream.recorded = None
    assert isinstance(stream.ask(2), Found if lake.marked else Unproven)


@pytest.mark.slow
def test_a_rolled_back_table_is_noticed_below_a_lower_id(lake: Lake) -> None:
    stream = with_commits(lake, 3)
    lake.rollback(1)
    recorded, number = stream.recorded, 100
    assert recorded is not None
    # Positions have gaps in some tables: others commit until the recorded one is passed.
    while (head := lake.committer().inspect().head) is not None and head.id <= recorded.id:
        lake.impostor(2, [number])
        number += 1
    answer = stream.ask(4)
    assert isinstance(answer, Unproven), answer
    assert answer.cause is not None
    assert answer.cause.code in (CauseCode.RECORDED_DIFFERS, CauseCode.RECORDED_OVERWRITTEN)
