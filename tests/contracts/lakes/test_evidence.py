"""The committer half of every table format: what the history proves of an unknown outcome."""

import pytest

from sluicegate.events.problems import CauseCode
from sluicegate.lakes.port import Absent, Ahead, Found, OutcomeUnknown, Published, Refused, Unproven
from tests.contracts.lakes.harness import Fault, Lake, Stream, with_commits
from tests.lakes.outcomes import is_refused


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


def test_storage_that_fails_before_the_snapshot_publishes_nothing(lake: Lake) -> None:
    stream = Stream(lake, lake.committer(fault=Fault.AWAY))
    head = stream.head(1)
    events = [lake.event([1])]
    assert stream.publish(1, head, events) == Refused("injected", again=True)
    assert lake.ids() == []
    assert stream.ask(1) == Absent(None)
    assert isinstance(stream.publish(1, head, events), Published)
    assert lake.ids() == [1]


def test_a_conflict_names_its_reason(lake: Lake) -> None:
    stream = Stream(lake)
    head = stream.head(1)
    lake.foreign([100])
    outcome = stream.publish(1, head, [lake.event([1])])
    assert is_refused(outcome, again=True)
    assert outcome.cause is not None
    assert outcome.cause.code is CauseCode.OTHER_WRITER


@pytest.mark.slow
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
    assert lake.place(answer.snapshot) == 2
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
    assert late.ask(4) == Ahead(7, (7, "digest-7"))
    late.recorded = None
    assert late.ask(4) == Ahead(7, (7, "digest-7"))


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


@pytest.mark.slow
def test_absence_is_proven_across_foreign_commits(lake: Lake) -> None:
    stream = with_commits(lake, 1)
    for number in range(5):
        lake.foreign([100 + number])
    answer = stream.ask(2)
    assert isinstance(answer, Absent)
    assert answer.head is not None
    assert lake.place(answer.head) == 6


@pytest.mark.slow
def test_an_expired_record_proves_nothing_by_itself(lake: Lake) -> None:
    stream = with_commits(lake, 1)
    for number in range(4):
        lake.foreign([100 + number])
    lake.expire(2)
    assert isinstance(stream.ask(2), Absent if lake.marked else Unproven)
    assert isinstance(stream.ask(1), Found if lake.marked else Unproven)


@pytest.mark.slow
def test_an_expired_record_is_not_replaced_by_the_decision_before(lake: Lake) -> None:
    """Its id may be a foreign job's; what was decided may lie in what has expired."""
    stream = Stream(lake)
    recorded = stream.commit(1, [1])
    stream.commit(2, [2])
    lake.foreign([100])
    lake.expire(2)
    stream.recorded = recorded
    answer = stream.ask(3)
    assert isinstance(answer, Absent if lake.marked else Unproven)
    assert lake.marked or (isinstance(answer, Unproven) and answer.expired)
    assert isinstance(stream.ask(4), Unproven)
    assert isinstance(stream.ask(2), Found)
