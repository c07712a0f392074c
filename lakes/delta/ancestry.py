"""The history of a Delta table, read back by the numbers of its versions.

Version 0 creates the table. So it is no snapshot: the first one is version 1.
"""

from functools import cached_property
from typing import Final

from sluicegate.lakes import history
from sluicegate.lakes.delta.decisions import Mark, mark_of, past_of
from sluicegate.lakes.delta.log import Log, State
from sluicegate.lakes.history import Marker, Newest, NoParent, PastSnapshot, TableHistory
from sluicegate.lakes.port import Answer, SnapshotRef

_FIRST: Final = 1
EXPIRED: Final = "expired"
"""Identity of a version whose commit file was deleted."""


def head_of(state: State) -> SnapshotRef | None:
    """Return the newest snapshot; None if nothing was committed since the table was created."""
    return state.head.ref if state.version >= _FIRST else None


class Ancestry:
    """The versions below the head of one state, for one question."""

    def __init__(self, log: Log, state: State, commit_user: str | None = None) -> None:
        self._log = log
        self._state = state
        self._user = commit_user
        self._head = past_of(state.head, commit_user) if head_of(state) is not None else None

    @cached_property
    def oldest(self) -> int:
        """The version where the history begins."""
        found = self._log.listing().oldest
        return self._state.version if found is None else min(found, self._state.version)

    def look_for(self, asked: tuple[int, str], recorded: SnapshotRef | None) -> Answer:
        """Answer whether a decision is in the history, as `history.look_for` does. Raises LakeUnavailable."""
        return history.look_for(
            self._head, self._parent, self._at, self._user or "", asked, recorded, self._marker()
        )

    def newest_decisions(self) -> Newest:
        """Return the highest decisions of the user. Raises LakeUnavailable.

        While no foreign job commits as the same user, the marker shows them without a walk through the
        history.
        """
        user, mark = self._user or "", mark_of(self._state, self._user or "")
        made = self._state.txns.get(user)
        if mark is not None and made is not None and made.last_updated == mark.time_ms:
            return Newest(mark.decision, mark.decision)
        if mark is None and made is None and self._head is not None and self.oldest >= _FIRST:
            return Newest(None, None)
        return history.newest_decisions(self._head, self._parent, self._at, user, self._marker())

    def history(self) -> TableHistory:
        """Read the history back from its head. Raises LakeUnavailable."""
        return history.read_history(self._state.metadata.id, self._head, self._parent)

    def _parent(self, past: PastSnapshot) -> PastSnapshot | NoParent:
        if past.ref.id == _FIRST:
            return NoParent.FIRST
        return self._at(past.ref.id - 1) or NoParent.UNREADABLE

    def _at(self, number: int) -> PastSnapshot | None:
        # A file before the oldest version was put too late, by a process that stood still.
        if number < max(self.oldest, _FIRST):
            return None
        found = self._log.version(number)
        return None if found is None else past_of(found, self._user)

    def has(self, mark: Mark) -> bool:
        """Return True if the version of a mark is the commit that wrote it, or has expired.

        Raises LakeUnavailable.
        """
        past = self._at(mark.version)
        return past is None or self._wrote(past, mark)

    def _wrote(self, past: PastSnapshot, mark: Mark) -> bool:
        made = (past.ref.id, past.commit_user, past.decision, past.digest)
        return made == (mark.version, self._user, mark.decision, mark.digest)

    def _marker(self) -> Marker | None:
        """Return the marker of the user's newest commit. Raises LakeUnavailable."""
        mark = mark_of(self._state, self._user or "")
        if mark is None:
            return None
        past = self._head if mark.version == self._state.version else self._at(mark.version)
        wrote = past is not None and self._wrote(past, mark)
        ref = past.ref if past is not None and wrote else SnapshotRef(mark.version, EXPIRED)
        # Transactions are part of the head's state, and a rollback takes them back.
        return Marker(mark.decision, mark.digest, ref, certain=True)
