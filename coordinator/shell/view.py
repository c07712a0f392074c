"""The state store's view of a stream, made from its state record."""

import time
from typing import Literal

from sluicegate.coordinator.core.state import RegionState, StateRecord
from sluicegate.state_store import RegionView, StreamView


def view_of(record: StateRecord, commit_user: str) -> StreamView:
    """What status, dashboards and other services see of a stream."""
    state = record.state
    return StreamView(
        stream=record.stream,
        revision=record.applied,
        updated_at=time.time_ns() // 1_000_000,
        commit_user=commit_user,
        decision=state.committed,
        snapshot=state.snapshot,
        cut={name: region.ref for name, region in state.regions.items() if region.ref is not None},
        watermark=state.watermark,
        assignment=state.assignment.number if state.assignment else None,
        regions={name: _region(region) for name, region in state.regions.items()},
        stalled=record.stalled,
    )


def _region(region: RegionState) -> RegionView:
    standing: Literal["active", "idle", "closed", "stalled"] = "active"
    if region.fault is not None:
        standing = "stalled"
    elif region.left or region.closed:
        standing = "closed"
    elif region.idle:
        standing = "idle"
    return RegionView(state=standing, reason=region.fault, watermark=region.watermark)
