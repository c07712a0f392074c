"""Late completions: whether the incarnation of an event was live when it arrived."""

from sluicegate.coordinator.core.log_state import LogState
from sluicegate.events.envelope import Envelope


def was_not_live(state: LogState, envelope: Envelope, offset: int) -> bool:
    """True if the incarnation of an event was not live at its offset, which the state is past.

    The state has the newest incarnation of a region, and not its end. So that one counts as live from its
    beginning on, and each other one before that. A withdrawal removes regions with their incarnations.
    """
    region = state.regions.get(envelope.region)
    newest = region.incarnation if region is not None else None
    if newest is None:
        return state.withdrawn < 0
    if newest.id == envelope.incarnation:
        return offset < newest.from_offset
    return offset > newest.from_offset
