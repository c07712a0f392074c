"""State records for tests of status and view: a stream of three regions, made by hand."""

from typing import Any

from sluicegate.coordinator.core.state import (
    AssignmentState,
    Before,
    Decision,
    Incarnation,
    LogState,
    RegionPhase,
    RegionState,
)
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.events.models import Position, SnapshotRef, StreamPolicy

NOW = 1_800_000_000_000
ONE, OTHER = "6f0c1d2e-7777-4a4a-9b9b-000000000001", "81ab34cd-7777-4b4b-9b9b-000000000002"


def position(incarnation: str, checkpoint: int) -> Position:
    """Return a position with a digest that follows from it."""
    return Position(incarnation=incarnation, checkpoint=checkpoint, digest=f"d{checkpoint}")


def region(incarnation: str, checkpoint: int | None, **more: Any) -> RegionState:
    """Return a live region at a checkpoint."""
    at = None if checkpoint is None else position(incarnation, checkpoint)
    life = Incarnation(id=incarnation, from_offset=0, base=None)
    return RegionState(
        **{"phase": RegionPhase.LIVE, "incarnation": life, "run": "run", "position": at, **more}
    )


def record(state: dict[str, Any] | None = None, **more: Any) -> StateRecord:
    """Return a record of decision 4: EWR is live, JFK is idle, LGA has to register."""
    regions = {
        "EWR": region(ONE, 17, source_offsets='{"orders":{"0":170}}'),
        "JFK": region(OTHER, 9, idle=True),
    }
    values = {
        "assignment": AssignmentState(number=2, regions=["EWR", "JFK", "LGA"], after=3, provisional=False),
        "policy": StreamPolicy(number=1, partial="allow", max_consecutive_fallbacks=2),
        "regions": regions,
        "decided": 4,
        "snapshot": SnapshotRef(id=57, identity="abc"),
        "watermark": NOW,
    }
    return StateRecord(
        stream="flights", applied=9, low_water=0, state=LogState(**{**values, **(state or {})}), **more
    )


def undecided(found: StateRecord) -> StateRecord:
    """Return the record with a fifth decision, which has no outcome: it moves EWR to 18 of a new life."""
    made, state = found.model_copy(deep=True), found.state.model_copy(deep=True)
    before = {name: each.model_copy(deep=True) for name, each in state.regions.items()}
    ewr = state.regions["EWR"]
    ewr.position, ewr.source_offsets, ewr.watermark = position(ONE, 18), '{"orders":{"0":180}}', NOW + 5
    ewr.listeners = {"tags": "18"}
    state.unresolved = Decision(
        id=5,
        digest="d",
        offset=8,
        cut=state.cut,
        fallbacks={"LGA": None},
        parts=[7],
        files=1,
        first_offset=7,
        before=Before(regions=before, watermark=state.watermark, provisional=False, former=None),
    )
    state.decided, state.watermark = 5, NOW + 5
    made.state = state
    return made
