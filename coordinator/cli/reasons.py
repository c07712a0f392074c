"""What a stream or a region waits for, in words, by its state record."""

from sluicegate.coordinator.core.state import LightState, RegionState, StateRecord
from sluicegate.events import Position


def waits_for(record: StateRecord | None, order: int) -> str:
    """What an order at this offset of the events topic waits for, by the newest record."""
    if record is None:
        return "a coordinator that writes the stream's state record"
    reasons = [f"the stream is stalled: {record.stalled}"] if record.stalled else []
    reasons += savepoint_waits(record.state)
    if record.applied < order:
        reasons.append(
            f"the newest state record was written before the order was read (it stands at offset "
            f"{record.applied}); see `sluicegate status`, and whether a coordinator runs"
        )
    return "; ".join(reasons) or "its commit, see `sluicegate status`"


def savepoint_waits(state: LightState) -> list[str]:
    """Per region that has not reached the target of the savepoint, why."""
    if state.savepoint is None:
        return []
    found = []
    for name, target in sorted(state.savepoint.targets.items()):
        region = state.regions.get(name)
        if region is None or _has_reached(region, target):
            continue
        at = f"is at {region.ref.checkpoint}" if region.ref else "has nothing committed"
        why = f" ({region.fault})" if region.fault else ""
        found.append(f"region {name} {at}, the savepoint is at {target.checkpoint}{why}")
    return found


def _has_reached(region: RegionState, target: Position) -> bool:
    ref = region.ref
    if ref is None:
        return False
    # A target whose lineage is behind the ref was passed or replaced.
    return ref.checkpoint >= target.checkpoint if ref.lineage == target.lineage else True
