"""The committer half of every table format: empty commits in the place of decisions."""

import pytest

from sluicegate.lakes.port import CommitRequest, Found, OtherDigest, OutcomeUnknown, Published
from tests.contracts.lakes.harness import Fault, Lake, Stream
from tests.lakes.outcomes import is_refused


@pytest.mark.slow
def test_a_void_is_an_empty_commit_in_the_place_of_a_decision(lake: Lake) -> None:
    stream = Stream(lake)
    stream.commit(1, [1], 5_000)
    head = stream.head(2)
    assert head is not None
    void = CommitRequest(2, "void-of-2", head, 5_000, [])
    outcome = stream.committer.publish(void)
    assert isinstance(outcome, Published)
    assert lake.place(outcome.snapshot) == lake.place(head) + 1
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
    assert is_refused(one.publish(1, head, [lake.event([1])]), again=True)
    assert one.ask(1) == OtherDigest("void-of-1")
    assert lake.ids() == []


def test_a_void_whose_outcome_is_unknown_is_found_when_asked_again(lake: Lake) -> None:
    stream = Stream(lake, lake.committer(fault=Fault.LANDED))
    void = CommitRequest(1, "void-of-1", stream.head(1), None, [])
    assert isinstance(stream.committer.publish(void), OutcomeUnknown)
    assert isinstance(stream.ask(1, "void-of-1"), Found)
    assert stream.ask(1) == OtherDigest("void-of-1")
