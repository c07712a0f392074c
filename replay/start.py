"""The state with which the reading of a stream's log begins."""

from collections.abc import Mapping
from typing import NamedTuple

from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.replay.errors import ReplayRefused


class Start(NamedTuple):
    """State before the first record that is read."""

    begin: int
    """The first offset to read."""
    state: LogState
    applied: int
    """Every record at or before this offset is in `state`; -1: none is."""

    @property
    def resolved(self) -> int:
        """Return the id of the newest decision whose outcome is in `state`; 0: there is none."""
        return self.state.decided - (self.state.pending is not None)


def start_of(stream: str, begin: int, bases: Mapping[int, StateRecord]) -> Start:
    """Return the state to begin with, for a log whose first offset is `begin`. Raises ReplayRefused.

    `bases` are the stream's base records by the offset up to which the log was deleted for each. A log with a
    greater first offset lacks events that the record needs. An adopted stream has one for offset 0.
    """
    if begin == 0 and 0 not in bases:
        return Start(0, LogState(), -1)
    usable = [offset for offset, record in bases.items() if begin <= offset <= record.low_water]
    if not usable:
        raise ReplayRefused(
            f"the log of stream {stream} cannot be replayed: it begins at offset {begin}, and no base record "
            "has the state before that. The events were deleted by a retention of the topic, not by the "
            "coordinators. From now on, set retention.ms of the events topic to -1. To move the table, copy "
            "its whole folder"
        )
    # The largest one needs the least reading, and it cannot need deleted events.
    first = max(usable)
    return Start(first, bases[first].state, bases[first].applied)
