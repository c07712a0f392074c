"""The history of a Paimon table, read back by the numbers of its snapshots."""

from dataclasses import replace
from typing import Final

from sluicegate.lakes import history
from sluicegate.lakes.history import Newest, NoParent, PastSnapshot, TableHistory
from sluicegate.lakes.paimon.snapshots import Snapshot, Snapshots
from sluicegate.lakes.port import Answer, SnapshotRef, Unproven

_FIRST: Final = 1


class Ancestry:
    """The snapshots below one head, for one question.

    A snapshot does not name its parent, which has the number before. But a process that stood still may put a
    snapshot right below the history, where others have expired. Such a stray is in no history, and holds
    nothing that a reader sees. So when the walk of a question ends at a stray, the question is asked again
    without strays.
    """

    def __init__(self, snapshots: Snapshots, head: Snapshot | None) -> None:
        self._snapshots = snapshots
        self._head = head.past() if head is not None else None
        self._last = head.ref if head is not None else None
        """The oldest snapshot that was read."""
        self._oldest = _FIRST
        """The number where the history begins, as far as that is known."""

    def look_for(self, commit_user: str, asked: tuple[int, str], recorded: SnapshotRef | None) -> Answer:
        """Answer whether a decision is in the history, as `history.look_for` does. Raises LakeUnavailable."""
        answer = history.look_for(self._head, self._parent, self._at, commit_user, asked, recorded)
        stray = self._leave_out_strays(recorded)
        if stray is None:
            return answer
        answer = history.look_for(self._head, self._parent, self._at, commit_user, asked, recorded)
        if not isinstance(answer, Unproven):
            return answer
        late = {"stray": stray, "oldest": self._oldest}
        return replace(answer, cause=answer.cause.model_copy(update=late) if answer.cause else None)

    def newest_decisions(self, commit_user: str) -> Newest:
        """Return the highest decisions of this user in the history. Raises LakeUnavailable."""
        found = history.newest_decisions(self._head, self._parent, self._at, commit_user)
        if self._leave_out_strays(None) is None:
            return found
        return history.newest_decisions(self._head, self._parent, self._at, commit_user)

    def history(self, identity: str) -> TableHistory:
        """Read the history back from its head. Raises LakeUnavailable."""
        found = history.read_history(identity, self._head, self._parent)
        if self._leave_out_strays(None) is None:
            return found
        return history.read_history(identity, self._head, self._parent)

    def _parent(self, past: PastSnapshot) -> PastSnapshot | NoParent:
        if past.ref.id == _FIRST:
            return NoParent.FIRST
        found = self._at(past.ref.id - 1)
        if found is None:
            return NoParent.UNREADABLE
        self._last = found.ref
        return found

    def _at(self, number: int) -> PastSnapshot | None:
        return self._snapshots.past(number) if number >= self._oldest else None

    def _leave_out_strays(self, recorded: SnapshotRef | None) -> int | None:
        """Find where the history begins; returns the number of the oldest stray that was read, if any.

        History expires from its oldest snapshot on, so strays are below all of it: all snapshots above one
        of the history are of the history too. One that was recorded, or that the next was made on, is.
        """
        last, head = self._last, self._head
        if last is None or head is None or last in (head.ref, recorded):
            return None
        if recorded is not None:
            there = self._at(recorded.id)
            if there is not None and there.ref == recorded:
                return None
        numbers = range(last.id, head.ref.id)
        self._oldest = next(filter(self._snapshots.linked, numbers), head.ref.id)
        return last.id if self._oldest > last.id else None
