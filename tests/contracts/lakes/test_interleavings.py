"""Coordinators that overlap, die and come back, driven through random interleavings."""

import random

import pytest

from sluicegate.events.models import FilesWritten, SnapshotRef
from sluicegate.lakes.port import Absent, CommitRequest, Committer, Found, Published
from tests.contracts.lakes.harness import Fault, Lake

DECISIONS = 6


class Coordinator:
    """Commits the decisions of a log in order; one call is one step that others may come between."""

    def __init__(self, lake: Lake, log: list[FilesWritten], fault: Fault | None) -> None:
        self.committer: Committer = lake.committer(fault=fault)
        self._log = log
        self._table = self.committer.inspect().identity
        self._recorded: SnapshotRef | None = None
        self._next = 1
        self._asked: Absent | None = None

    @property
    def done(self) -> bool:
        return self._next > len(self._log)

    def step(self) -> None:

        decision, digest = self._next, f"digest-{self._next}"
        if self._asked is None:
            answer = self.committer.ask(decision, digest, self._table, self._recorded)
            assert isinstance(answer, Absent | Found), answer
            if isinstance(answer, Found):
                self._moved(answer.snapshot)
            else:
                self._asked = answer
            return
        head, self._asked = self._asked.head, None
        outcome = self.committer.publish(
            CommitRequest(decision, digest, head, decision, [self._log[decision - 1]])
        )
        if isinstance(outcome, Published):
            self._moved(outcome.snapshot)

    def _moved(self, to: SnapshotRef) -> None:
        self._recorded = to
        self._next += 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(5, 25))]
)
def test_nothing_is_lost_or_doubled(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    log = [lake.event([decision]) for decision in range(1, DECISIONS + 1)]
    coordinators: list[Coordinator] = []
    foreign: list[int] = []
    while not any(each.done for each in coordinators):
        what = chance.random()
        if len(coordinators) < 2 or what < 0.05:
            fault = chance.choice([None, Fault.LOST, Fault.LANDED])
            coordinators = [*coordinators[-2:], Coordinator(lake, log, fault)]
        elif what < 0.15:
            foreign.append(1_000 + len(foreign))
            lake.foreign(foreign[-1:])
        else:
            chance.choice(coordinators).step()
    assert lake.ids() == [*range(1, DECISIONS + 1), *foreign]
    last = lake.committer().inspect()
    assert last.newest_decision == DECISIONS
    assert lake.watermark() == DECISIONS


@pytest.mark.slow
def test_a_coordinator_left_behind_publishes_nothing(lake: Lake) -> None:
    log = [lake.event([decision]) for decision in (1, 2, 3)]
    behind, ahead = Coordinator(lake, log, None), Coordinator(lake, log, None)
    behind.step()
    while not ahead.done:
        ahead.step()
    while not behind.done:
        behind.step()
    assert lake.ids() == [1, 2, 3]
