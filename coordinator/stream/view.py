"""View of a stream in the state store, made from its state record."""

import time
from typing import Literal

from sluicegate.coordinator.core.state import RegionState, Savepoint, StateRecord
from sluicegate.coordinator.telemetry.reasons import behind, exhausted, notes, region_reason
from sluicegate.state_store import RegionView, RetryView, SavepointView, StreamView


def view_of(record: StateRecord, commit_user: str) -> StreamView:
    """Return the view of a stream for status, dashboards and other services."""
    state = record.state
    now = time.time_ns() // 1_000_000
    return StreamView(
        stream=record.stream,
        revision=record.applied,
        updated_at=now,
        commit_user=commit_user,
        decision=state.committed,
        snapshot=state.snapshot,
        cut={name: region.ref for name, region in state.regions.items() if region.ref is not None},
        fallbacks=behind(state),
        forced_by=tuple(exhausted(state)),
        joined=record.joined,
        savepoint=_savepoint(state.savepoint) if state.savepoint else None,
        watermark=state.watermark,
        assignment=state.assignment.number if state.assignment else None,
        assigned=state.assignment.regions if state.assignment else (),
        next_assignment=state.next,
        regions={name: _region(record, name, region) for name, region in state.regions.items()},
        warnings=tuple(notes(record)),
        stalled=record.stalled,
        retries=tuple(
            RetryView(
                effect=each.effect,
                reason=each.reason,
                failures=each.failures,
                since=max(0, now - each.lasted),
            )
            for each in record.retries
        ),
        paused=state.blocked if state.paused else None,
    )


def _savepoint(waiting: Savepoint) -> SavepointView:
    return SavepointView(
        names=tuple(order.name for order in waiting.orders),
        drain=any(order.drain for order in waiting.orders),
        targets=waiting.targets,
    )


def _region(record: StateRecord, name: str, region: RegionState) -> RegionView:
    standing: Literal["active", "idle", "closed", "stalled", "removed"] = "active"
    if region.fault is not None:
        standing = "stalled"
    elif region.removed:
        standing = "removed"
    elif region.left or region.closed:
        standing = "closed"
    elif region.resting:
        standing = "idle"
    return RegionView(
        state=standing,
        reason=region_reason(record.state, name),
        refused=record.refused.get(name),
        heard=record.heard.get(name),
        lineage=region.live,
        watermark=region.watermark,
        consecutive_fallbacks=region.fallbacks,
        owned=region.owned,
        listeners=region.listeners,
    )
