"""State of a stream for `sluicegate status` and /status: one model, from a state record.

A coordinator makes the record from its current state. Without a coordinator, the last written record is used.
"""

from typing import Any, Final

from sluicegate.coordinator.core.state import RegionState, StateRecord
from sluicegate.coordinator.telemetry.reasons import behind, exhausted, notes, region_reason

MISSED: Final = 3
"""Number of missing heartbeats in a row before a region counts as silent."""
_RUNNING: Final = frozenset({"active", "behind", "idle", "closing", "refused"})
"""States of a region in which its query should run."""


def overview(record: StateRecord, as_of: int) -> dict[str, Any]:
    """Return a stream as JSON values; `as_of` is the time of the record. Times are Unix milliseconds."""
    state = record.state
    snapshot = state.recorded
    pause = state.blocked if state.paused else None
    assigned = state.assignment.regions if state.assignment else ()
    names = {*state.regions, *assigned}
    return {
        "as_of": as_of,
        "stalled": next((why for why in (record.stalled, state.blocked) if why != pause), None),
        "paused": pause,
        "retries": [each.model_dump() for each in record.retries],
        "applied_offset": record.applied,
        "low_water": record.low_water,
        "assignment": state.assignment.number if state.assignment else None,
        "next_assignment": state.next.model_dump(mode="json") if state.next else None,
        "partial": state.policy.partial if state.policy else None,
        "joined": record.joined,
        "fallbacks": {name: at.model_dump() if at else None for name, at in behind(state).items()},
        "forced_by": exhausted(state),
        "savepoint": state.savepoint.model_dump(mode="json") if state.savepoint else None,
        "waits_for": record.waits,
        "waiting": _waiting(record, as_of),
        "notes": notes(record),
        "decided": state.decided,
        "committed": state.committed,
        "pending": len(state.pending),
        "pending_files": sum(each.files for each in state.pending),
        "snapshot": snapshot.id if snapshot else None,
        "table": state.table,
        "watermark": state.watermark,
        "regions": {name: _region(record, name, as_of, assigned=name in assigned) for name in sorted(names)},
        "strangers": {name: why for name, why in sorted(record.refused.items()) if name not in names},
    }


def _waiting(record: StateRecord, as_of: int) -> dict[str, Any]:
    """Return the totals over all regions of written data in no decision; ages in seconds."""
    every = record.waiting.values()
    return {
        "files": sum(each.files for each in every),
        "rows": sum(each.rows for each in every),
        "oldest": max((_age(each.since, as_of) for each in every), default=None),
    }


def _region(record: StateRecord, name: str, as_of: int, *, assigned: bool) -> dict[str, Any]:
    state = record.state
    region, refused = state.regions.get(name, RegionState()), record.refused.get(name)
    standing = _state(region, assigned=assigned) if name in state.regions else "not opened"
    shown = "refused" if refused and standing not in ("stalled", "removed") else standing
    heard, interval = record.heard.get(name), record.heartbeats.get(name)
    waits = record.waiting.get(name)
    return {
        "state": shown,
        "lineage": region.live,
        "cut": region.ref.model_dump() if region.ref else None,
        "watermark": region.watermark,
        "consecutive_fallbacks": region.fallbacks,
        "owned": region.owned,
        "listeners": region.listeners,
        "reason": region_reason(state, name) if name in state.regions else None,
        "refused": refused,
        "heard": heard,
        "heartbeat_interval": interval,
        "silent": _silent(heard, interval, as_of) if shown in _RUNNING else None,
        "waiting_files": waits.files if waits else 0,
        "waiting_rows": waits.rows if waits else 0,
        "waiting_oldest": _age(waits.since, as_of) if waits else None,
    }


def _silent(heard: int | None, interval: int | None, as_of: int) -> float | None:
    """Return the seconds for which a region has been silent; None before MISSED heartbeats are missing."""
    if heard is None or interval is None:
        return None
    silence = as_of - heard
    return silence / 1000 if silence > MISSED * interval else None


def _age(since: int, as_of: int) -> float:
    """Return an age in seconds; never negative, because the brokers' clocks may be ahead of this host's."""
    return max(0.0, (as_of - since) / 1000)


def _state(region: RegionState, *, assigned: bool) -> str:
    """Return the state of a region; if several apply, the most important one for an operator."""
    if region.fault:
        return "stalled"
    if region.removed:
        return "removed"
    if region.left:
        return "closed"
    if not assigned:
        return "not assigned"
    if region.closed:
        return "closing"
    if not region.chain:
        return "not opened"
    if region.resting:
        return "idle"
    return "behind" if region.fallbacks else "active"
