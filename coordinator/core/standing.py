"""What has been seen of the table, and which snapshot absence can be proven from."""

from typing import Literal

from sluicegate.coordinator.core.commit import Stall, replaced
from sluicegate.coordinator.core.state import LightState
from sluicegate.lakes.port import SnapshotRef, TableState, Unproven


class Standing:
    """The table as of the last inspection, in the light of what the log says."""

    def __init__(self, stream: str = "...") -> None:
        self._stream = stream
        self.inspected = False
        self.joined: str | None = None
        """Why the table makes the stream one region."""
        self.probe_at = 0
        """When the recorded snapshot is moved on, though nothing is decided."""
        self._newest: int | None = None
        self._unrecorded = False
        """Whether nothing was known of the table before the last inspection."""
        self._seen: TableState | None = None
        """The last inspection, as long as the log has not been read to an end fetched after it."""
        self._clean: tuple[SnapshotRef | None, int] | None = None
        """A head of the table, and the last decision that can be in its history: the log had no other."""
        self._tried: SnapshotRef | None = None
        """That head, while it is asked from instead of the recorded one."""

    def inspect(self, state: LightState, found: TableState) -> Stall | None:
        """Take note of the table; returns why it cannot be the stream's."""
        if state.table is None:
            state.table = found.identity
            # With commits of ours but no record of them, only the whole history proves an absence.
            state.recorded = found.head if found.newest_decision is None else None
            self._unrecorded = True
        elif state.table != found.identity:
            return replaced(self._stream, found.identity)
        self.inspected = True
        self.joined = found.joined
        self._seen = found
        self._newest = found.newest_decision
        return None

    def read_to_end(self, state: LightState) -> None:
        """The log has been read to an end fetched after the inspection."""
        if self._unrecorded:
            # Before the first decision there is a record: it was lost, and what it proved with it.
            state.recorded = state.recorded if state.decided == 0 else None
            self._unrecorded = False
        if self._seen is not None:
            # Decisions stand in the log before they are in the table, so the head holds no unknown one.
            if not state.pending:
                self._clean = (self._seen.head, state.decided)
            self._seen = None

    def problem(self, state: LightState) -> str | None:
        """Why what the table shows does not go with the log, which has been read to its end."""
        if self._newest is None or self._newest <= state.decided:
            return None
        return (
            f"the table has decision {self._newest} of this stream, but the log ends at decision "
            f"{state.decided}: the topics were recreated, or another deployment commits as "
            "the same commit user. To see which: sluicegate replay --stream "
            f"{self._stream} --verify; then restore the topics, or configure another commit_user"
        )

    def proves(self, state: LightState) -> SnapshotRef | None:
        """The snapshot that an absence is proven from."""
        return self._tried if _is_newer(self._tried, state.recorded) else state.recorded

    def recall(self, state: LightState, *, expired: bool) -> Literal["moved", "inspect", "lost"]:
        """Ask from a head that held no unknown decision when the recorded snapshot has expired.

        It is recorded only when the table has answered for it: the branch that it was the head of may
        have been given up since. "inspect": none is known, and there is nothing pending that another
        inspection could miss.
        """
        tried = _is_newer(self._tried, state.recorded)
        if tried:
            self._tried = self._clean = None
        if not expired and (state.decided > 0 or not tried):
            state.contradicted = state.recorded
            return "lost"
        if _is_contradicted(state):
            return "lost"
        known = state.pending[0].id - 1 if state.pending else state.decided
        if self._clean is not None and self._clean[1] == known and _is_newer(self._clean[0], state.recorded):
            self._tried = self._clean[0]
            return "moved"
        if state.pending:
            return "lost"
        self._clean = None
        self.inspected = False
        return "inspect"


def reason_of(state: LightState, unproven: Unproven) -> str:
    """Why an absence is not proven: a table that was rolled back stays so when what shows it expires."""
    if state.contradicted is None or not unproven.expired or not _is_contradicted(state):
        return unproven.reason
    return f"snapshot {state.contradicted.id} is not the one that was recorded: rolled back or overwritten"


def _is_contradicted(state: LightState) -> bool:
    return state.contradicted is not None and state.contradicted == state.recorded


def _is_newer(head: SnapshotRef | None, recorded: SnapshotRef | None) -> bool:
    """Whether a head may still be there when the recorded snapshot is not: an older one proves nothing."""
    return head is not None and (recorded is None or head.id > recorded.id)
