"""Each change of a region's phase that occurs in a golden case is in the table, and each row occurs."""

from unittest.mock import patch

import pytest

from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import RegionPhase
from sluicegate.events.envelope import EventType, LogRecord
from tests.golden.script import Script
from tests.golden.test_cases import FILES
from tools.docs.states_page import REGION
from tools.docs.states_page import changes as rows_of

OF_OTHERS = "another coordinator counts it before it has registered"
"""No coordinator of this release abandons an attempt before the first cut of an assignment."""
Change = tuple[RegionPhase | None, EventType, RegionPhase | None]


@pytest.fixture(scope="module")
def changes() -> set[Change]:
    """Return the changes of all golden cases."""
    found: set[Change] = set()
    apply = Replica.apply

    def noting(replica: Replica, record: LogRecord) -> Applied:
        before = {name: each.phase for name, each in replica.state.regions.items()}
        applied = apply(replica, record)
        after = {name: each.phase for name, each in replica.state.regions.items()}
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                found.add((before.get(name), record.envelope.type, after.get(name)))
        return applied

    with patch.object(Replica, "apply", noting):
        for path in FILES:
            Script().run(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
def test_every_change_is_in_the_table(changes: set[Change]) -> None:
    assert {each for each in changes if not rows_of(*each)} == set()


@pytest.mark.slow
def test_every_row_occurs(changes: set[Change]) -> None:
    seen = {row for each in changes for row in rows_of(*each)}
    unseen = [row.cause for row in REGION if row not in seen]
    assert unseen == [OF_OTHERS]
