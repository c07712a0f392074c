"""Proofs that the table has given to the coordinator, and contradictions of them.

A commit is published only where its decision is proven absent. The proof begins at a *known head*: a
snapshot that no commit of the asked decision precedes. If it is an ancestor of the head now, only what came
after it has to be read. There are four sources of a known head, the surest first: the newest answer of the
table, an operator's statement, the snapshot of the newest outcome, and once that has expired, the head that
the decision names. Whoever wrote the decision had a proof of its head; a forged one may name a head of a
table that was rolled back since. A statement is worth nothing as soon as the table disproves it.

A table can be rolled back, also below commits that are announced. It lacks a known head then, and the
stream stalls until the table is restored. History that expires afterwards hides a rollback, and repairs
nothing: so the contradiction is remembered (`contradicted`).
"""

from pydantic import Field

from sluicegate.coordinator.core.state import Light, LogState
from sluicegate.events.models import SingleRegionReason, SnapshotRef
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.port import TableState, Unproven


class TableProgress(Light):
    """The table as of its last answer. Only answers set it; a head that an operator names withdraws one."""

    identity: str | None = None
    head: SnapshotRef | None = None
    """A head of the table that no commit of an id after `upto` precedes; None: an empty table."""
    upto: int = -1
    """-1: no head is known."""
    contradicted: SnapshotRef | None = None
    """A known head that the table was seen to lack. An expiry afterwards hides that, and repairs nothing."""
    doubted: dict[str, int] = Field(default_factory=dict)
    """By name, the further tables that were seen without their newest decision, with that decision.

    Whoever compares them notes it: an expiry afterwards hides it here, too."""
    single_region: SingleRegionReason | None = None
    """Reason for which the table makes all writers one failure domain."""

    def prove(self, head: SnapshotRef | None, upto: int) -> None:
        """Note that the table has this head, and no commit of an id after `upto` at or before it."""
        self.head, self.upto = head, upto

    def unproven(self, answer: Unproven, known: SnapshotRef | None, decided: int, asked: int) -> Problem:
        """Note an answer that proves nothing about this known head, and return the stall for it.

        `decided` is the newest decision of the log, and `asked` the one that the table was asked about.
        A table that was rolled back stays so when its history expires afterwards.
        """
        if not answer.expired:
            self.contradicted = known
        unknown = answer.expired and self.contradicted is None
        code, number = (Code.ABSENCE_UNPROVEN, asked) if unknown else (Code.TABLE_CONTRADICTS, decided)
        return Problem(code=code, number=number, cause=answer.cause, detail=answer.reason)

    def forget(self) -> None:
        """Forget the known head: an operator names another one."""
        self.head, self.upto = None, -1

    def known_head(
        self, state: LogState, found: TableState | None, *, expired: bool = False
    ) -> SnapshotRef | None:
        """Return the known head for the asked decision; None: the whole history has to be read.

        `found`: the table, if it was seen. `expired`: it has let the snapshot of the newest outcome expire.
        """
        seen, stated = self.upto == asked_decision(state) - 1, _stated_head(state, found)
        # The newest outcome may be of another history than the table's answer: then it is asked for.
        if seen and (stated is not None or not _lacks(self.head, state.snapshot)):
            return self.head
        if stated is not None:
            # The operator looked at the table as it is: the log may name snapshots that were rolled back.
            return stated
        made = state.unresolved
        if made is None or seen or self.contradicted is not None or _lacks(made.head, state.snapshot):
            # A table that lacks the decision before does not have the head that this one names.
            return state.snapshot
        return made.head if expired else state.snapshot

    def mismatch(self, state: LogState, found: TableState) -> Problem | None:
        """Return the contradiction between the table and a log that was read to its end; None if not."""
        if state.table is not None and state.table != found.identity:
            return Problem(code=Code.TABLE_REPLACED, detail=found.identity)
        # An operator's statement excuses a foreign job's ids, until the asked decision is another one.
        excused = _stated_head(state, found) is not None and not disproves(found, state.decided + 1)
        if (found.newest_decision or 0) > state.decided and not excused:
            return Problem(code=Code.TABLE_AHEAD, number=state.decided, other=found.newest_decision)
        return self.lost_decision(state, found)

    def lost_decision(self, state: LogState, found: TableState) -> Problem | None:
        """Return the contradiction if the table lacks its newest committed decision; None if it has it.

        No statement brings it back. History expires from its beginning, so the decisions in between were
        rolled back. An expired history proves nothing after the table was seen without them, and neither does
        a marker alone. Its revert may be in its place, or the other way round: the table was rolled back
        after somebody had found an outcome, and before that was logged.
        """
        committed, newest = state.decided - (state.unresolved is not None), found.newest_made
        if found.by_marker and newest is not None and newest >= committed:
            newest = None
        if newest is None:
            lost = committed > 0 and (self.contradicted is not None or _names_older(state))
        elif newest == committed and found.digest and state.outcome and found.digest != state.outcome:
            return Problem(code=Code.TABLE_CONTRADICTS, number=committed, names=(found.digest,))
        else:
            lost = newest < committed
        return Problem(code=Code.TABLE_CONTRADICTS, number=committed, other=newest) if lost else None


def asked_decision(state: LogState) -> int:
    """Return the decision about which the table is asked: the unresolved one, else the next one."""
    return state.unresolved.id if state.unresolved is not None else state.decided + 1


def disproves(found: TableState, decision: int) -> bool:
    """True if the table shows a commit of this product with this id or a higher one: no statement hides it.

    A marker alone may be left of a commit that was rolled back.
    """
    return not found.by_marker and (found.newest_made or 0) >= decision


def _stated_head(state: LogState, found: TableState | None) -> SnapshotRef | None:
    """Return the head that an operator has named for the asked decision, unless the table disproves it."""
    proof, asked = state.proof, asked_decision(state)
    if proof is None or proof.decision != asked or (found is not None and disproves(found, asked)):
        return None
    return proof.head


def _names_older(state: LogState) -> bool:
    """True if the head that an operator named cannot contain the newest outcome."""
    named = _stated_head(state, None)
    return named is not None and _lacks(named, state.snapshot)


def _lacks(head: SnapshotRef | None, made: SnapshotRef | None) -> bool:
    """True if a history that ends with this head cannot contain the other one: positions only rise."""
    return made is not None and (head is None or (head != made and head.id <= made.id))
