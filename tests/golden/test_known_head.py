"""The known head of a decision whose own head belongs to a table that lacks the newest outcome."""

import pytest

from sluicegate.coordinator.core.commit import Committing
from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.state import Before, Decision, LogState
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import SnapshotRef, StreamCommand

OUTCOME, LATER = SnapshotRef(id=2, identity="a"), SnapshotRef(id=3, identity="b")


def test_the_snapshot_of_the_newest_outcome_is_asked_before_the_head_that_a_decision_names() -> None:
    """A rolled back table has later heads, too: only the outcome's snapshot shows the lack."""
    before = Before(regions={}, watermark=None, provisional=False, former=None)
    made = Decision(
        id=3,
        digest="d",
        offset=9,
        cut={},
        fallbacks={},
        parts=[],
        files=0,
        first_offset=9,
        head=LATER,
        before=before,
    )
    state = LogState(decided=3, snapshot=OUTCOME, unresolved=made)
    # This coordinator has an answer about the decision before alone.
    table = TableProgress(head=SnapshotRef(id=1, identity="c"), upto=1)
    assert table.known_head(state, None) == OUTCOME
    assert table.known_head(state, None, expired=True) == LATER


@pytest.mark.parametrize(("table", "upto"), [(None, -1), ("items", 1)])
def test_a_statement_about_a_further_table_leaves_the_known_head(table: str | None, upto: int) -> None:
    """Nothing else may prove it, as after an expiry of the anchor's history."""
    progress = TableProgress(head=OUTCOME, upto=1)
    body = StreamCommand(command="resume", head=LATER, decision=1, table=table)
    record = LogRecord(1, 0, Envelope("e", EventType.STREAM_COMMAND, "s"), body)
    Committing(progress).observe(record, Applied())
    assert progress.upto == upto
