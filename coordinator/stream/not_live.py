"""Late completions: whether the incarnation of an event was live when it arrived."""

from sluicegate.coordinator.core.state import LogState
from sluicegate.events.envelope import Envelope


def was_not_live(state: LogState, envelope: Envelope, offset: int) -> bool:
    """True if the incarnation of an event was not live at its offset, which the state is past.

    The end of an incarnation that has no successor yet is not known, so its events count as live. The same
    holds for one that the state may have forgotten.
    """
    region = state.regions.get(envelope.region)
    newest = region.incarnation if region is not None else None
    # Those of the former assignment end with the first decision of the newest one.
    ended = (*state.ended, *(state.former.suspended if state.former is not None else ()))
    if newest is None:
        return envelope.incarnation not in ended
    if newest.id == envelope.incarnation:
        return offset < newest.from_offset
    # Before a region has a position, the state forgets none of its incarnations.
    never = newest.base is None and envelope.incarnation not in ended
    return never or offset > newest.from_offset
