"""Readers of one log agree about every record, whatever state record each of them started from."""

from typing import Any, Final

import pytest

from sluicegate.coordinator.core.log import PendingCheckpoints
from sluicegate.coordinator.core.state import LogState
from sluicegate.events.models import Position, StreamCommand
from tests.simulation.random_logs import differences
from tests.simulation.seams import Defect, Function, planted, skip, variant

SEEDS: Final = range(40)
"""`python -m tests.simulation.random_logs` compares as many as one wants."""
SEEN_WITHIN: Final = 500
"""Logs. The rarest defect needs some dozens, and each is 40 milliseconds."""


@variant
def _forgets_the_rest(right: Function, pending: PendingCheckpoints, upto: Position) -> Any:
    taken = right(pending, upto)
    taken.keep_sealed()
    return taken


def _reads_skipped(right: Function) -> Function:
    return lambda replica, record: replica.refill(record)


@variant
def _forgets_skipped(right: Function, state: LogState, body: StreamCommand) -> Any:
    """Forget a skipped record at its order: the next one meets a state that has another effect."""
    found = right(state, body)
    state.skipped = [each for each in state.skipped if each.offset != body.offset]
    return found


IN_RECOVERIES: Final = (
    Defect("a loser is forgotten", "events that an unresolved decision settles", skip, ("I15",)),
    Defect(
        "a revert restores sealed checkpoints only", "the decided checkpoints", _forgets_the_rest, ("I15",)
    ),
    Defect("the end of a region discards nothing", "discarding", skip, ("I15",)),
    Defect("the end of reading again discards nothing", "the end of reading again", skip, ("I15",)),
    Defect(
        "a skipped record is read again", "skipped records that the state includes", _reads_skipped, ("I15",)
    ),
    Defect("an order skips a record twice", "orders to skip", _forgets_skipped, ("I15",)),
)
"""The simulator sees these too rarely: they need a restart between two events of one checkpoint."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_of_a_record_equals_one_of_the_whole_log(seed: int) -> None:
    assert list(differences(seed)) == []


@pytest.mark.slow
@pytest.mark.parametrize("defect", IN_RECOVERIES, ids=lambda defect: defect.name)
def test_a_planted_defect_is_seen(defect: Defect) -> None:
    with planted(defect):
        assert any(list(differences(seed)) for seed in range(SEEN_WITHIN))
