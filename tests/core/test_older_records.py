"""What was written before an acceptance held for one ref: by the same version of records and events."""

from sluicegate.coordinator.core.state import LightState, RegionState, StateRecord
from sluicegate.events.models import Position
from tests.core.scene import opened


def test_a_record_with_a_list_of_accepted_lineages_is_read() -> None:
    region = RegionState(accepted=["p.0"])
    record = StateRecord(stream="s", applied=7, low_water=3, state=LightState(regions={"r1": region}))
    older = record.model_dump_json().replace(',"accepted_behind":{}', "")
    assert "behind" not in older
    assert StateRecord.model_validate_json(older).state.regions["r1"] == region


def test_a_log_with_an_acceptance_that_names_no_ref_is_read_as_it_was() -> None:
    """Without a record the whole log is read anew, and what came of the lineage is in the table."""
    scene = opened()
    scene.batch(0)
    scene.settle()
    # What the CLI of before appended, and the coordinator of before accepted.
    scene.command("accept", "r1", "p.0")
    answer = scene.open(lineage="p.0")
    assert answer is not None
    assert answer.accepted, answer.reason
    assert answer.start == Position(lineage="q.0", checkpoint=0)
