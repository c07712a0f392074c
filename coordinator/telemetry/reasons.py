"""Reasons why a region or a stream is not committed in full, for status, the view and commands."""

from typing import Final

from sluicegate.coordinator.core.state import LightState, RegionState, StateRecord
from sluicegate.events.models import Position

REMOVED: Final = "an operator removed it: commits do not wait for it; starting its query takes that back"
UNOWNED: Final = (
    "restored without owning what its parents wrote: their files must stay until a full commit says all anew"
)


def region_reason(state: LightState, name: str) -> str | None:
    """Return the reason why a region is not active, the most important one first; None if it is."""
    region = state.regions[name]
    if region.fault is not None:
        return region.fault
    if region.removed:
        return REMOVED
    if region.fallbacks and _counts(region):
        times = "the last commit" if region.fallbacks == 1 else f"the last {region.fallbacks} commits"
        more = ", as often as it may: the next one has to take it along" if name in exhausted(state) else ""
        return f"stayed behind in {times}{more}"
    if not region.owned:
        return UNOWNED
    return None


def behind(state: LightState) -> dict[str, Position | None]:
    """Return the regions that the last commit left out although they were expected, with their positions."""
    return {
        name: region.ref
        for name, region in sorted(state.regions.items())
        if region.fallbacks and _counts(region)
    }


def exhausted(state: LightState) -> list[str]:
    """Return the regions that may not be left out again, so that the next commit must be full."""
    policy = state.policy
    if policy is None or policy.partial == "never":
        return []
    names = state.assignment.regions if state.assignment else ()
    most = policy.max_consecutive_fallbacks
    return [name for name in names if name in state.regions and state.regions[name].fallbacks >= most]


def notes(record: StateRecord) -> list[str]:
    """Return notes about the stream as a whole."""
    state = record.state
    found: list[str] = []
    if record.joined:
        found.append(f"one region for all commits, which are full: {record.joined}")
    if forcing := exhausted(state):
        found.append(
            f"the next commit has to be full: {', '.join(forcing)} stayed behind as often as allowed"
        )
    if state.next is not None:
        listed = ", ".join(state.next.regions)
        found.append(f"assignment {state.next.number} ({listed}) holds from its first full commit on")
    if state.savepoint is not None:
        kind = "drain" if any(order.drain for order in state.savepoint.orders) else "savepoint"
        names = ", ".join(order.name for order in state.savepoint.orders)
        waits = "; ".join(_savepoint_waits(state)) or "its commit"
        found.append(f"the {kind} {names} waits for: {waits}")
    if unowned := [name for name, region in sorted(state.regions.items()) if not region.owned]:
        found.append(f"{', '.join(unowned)}: {UNOWNED}")
    return found


def waits_for(record: StateRecord | None, order: int) -> str:
    """Return the reasons why a command at this offset has no outcome yet, by the newest record."""
    if record is None:
        return "a coordinator that writes the stream's state record"
    reasons = [f"the stream is stalled: {record.stalled}"] if record.stalled else []
    if (blocked := record.state.blocked) not in (None, record.stalled):
        reasons.append(f"the stream does not go on: {blocked}")
    reasons += _savepoint_waits(record.state)
    if record.applied < order:
        reasons.append(
            f"the newest state record was written before the order was read (it stands at offset "
            f"{record.applied}); see `sluicegate status`, and whether a coordinator runs"
        )
    return "; ".join(reasons) or "its commit, see `sluicegate status`"


def _savepoint_waits(state: LightState) -> list[str]:
    """Return a line for each region that has not reached the target of the savepoint."""
    if state.savepoint is None:
        return []
    found = []
    for name, target in sorted(state.savepoint.targets.items()):
        region = state.regions.get(name)
        if region is None or _has_reached(region, target):
            continue
        at = f"is at checkpoint {region.ref.checkpoint}" if region.ref else "has nothing committed"
        why = f" ({region.fault})" if region.fault else ""
        found.append(f"region {name} {at}, to reach {target.checkpoint}{why}")
    return found


def _has_reached(region: RegionState, target: Position) -> bool:
    ref = region.ref
    if ref is None:
        return False
    # A target in an earlier lineage than the ref's was passed, or its lineage was replaced.
    return ref.checkpoint >= target.checkpoint if ref.lineage == target.lineage else True


def _counts(region: RegionState) -> bool:
    return not (region.resting or region.left or region.removed)
