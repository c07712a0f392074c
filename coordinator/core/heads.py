"""Heads of the table, and the proof that a decision is absent."""

from sluicegate.coordinator.core.log_state import LogState
from sluicegate.coordinator.core.state_record import TableProgress
from sluicegate.events.models import Head
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.port import SnapshotRef, TableState

OF_OTHERS = frozenset({Code.TABLE_AHEAD, Code.TABLE_CONTRADICTS})
"""Stalls that may come from a record of another coordinator that is still to be read."""


def head_of(ref: SnapshotRef | None) -> Head | None:
    """Return a snapshot of the port in the form of events."""
    return Head(snapshot=ref.id, identity=ref.identity) if ref is not None else None


def ref_of(head: Head | None) -> SnapshotRef | None:
    """Return a snapshot of an event in the form of the port."""
    return SnapshotRef(head.snapshot, head.identity) if head is not None else None


def asked_decision(state: LogState) -> int:
    """Return the decision about which the table is asked: the unresolved one, else the next one."""
    return state.pending.id if state.pending is not None else state.decided + 1


def known_head(table: TableProgress, state: LogState, found: TableState | None) -> Head | None:
    """Return a head that no commit of the asked decision precedes, and that follows the newest outcome.

    The own answers of the table come first: they have proven both. Without them, an operator's statement or
    the snapshot of the newest outcome does. None: read the whole history. `found`: the table, if it was seen.
    """
    asked = asked_decision(state)
    stated = _is_stated(state, found)
    # The newest outcome may be of another history than the one that the table has had since: ask for that.
    if table.upto == asked - 1 and (stated or not _lacks(table.head, state.snapshot)):
        return table.head
    # The operator looked at the table as it is: the log may name snapshots that were rolled back.
    return state.proof.head if state.proof is not None and stated else state.snapshot


def disproves(found: TableState, decision: int) -> bool:
    """True if the table shows a commit of this product with this id or a higher one: no statement hides it.

    A marker alone may be left of a commit that was rolled back.
    """
    return not found.by_marker and (found.newest_made or 0) >= decision


def _is_stated(state: LogState, found: TableState | None) -> bool:
    """True if an operator has stated which head the asked decision may follow, and the table may be so."""
    asked = asked_decision(state)
    if state.proof is None or state.proof.decision != asked:
        return False
    return found is None or not disproves(found, asked)


def _lacks(head: Head | None, made: Head | None) -> bool:
    """True if a history that ends with this head cannot contain the other one: positions only rise."""
    return made is not None and (head is None or (head != made and head.snapshot <= made.snapshot))


def recorded_head(table: TableProgress, state: LogState, found: TableState | None) -> Head | None:
    """Return the head that the unresolved decision names, if it may serve where the known head has expired.

    Its writer has proven it, for the table of that time. A table that lacks the decision before does not have
    it, unless the record is wrong. So it serves only those who have seen nothing of the table themselves.
    """
    made = state.pending
    if made is None or _is_stated(state, found):
        return None
    if table.upto == made.id - 1 or table.contradicted is not None:
        return None
    return made.head


def mismatch(state: LogState, found: TableState, table: TableProgress) -> Problem | None:
    """Return the contradiction between the table and a log that was read to its end, if there is one."""
    if state.table is not None and state.table != found.identity:
        return Problem(code=Code.TABLE_REPLACED, detail=found.identity)
    # An operator's statement excuses a foreign job's ids, until the asked decision is another one.
    vouched = state.pending is not None and state.pending.vouched is not None
    excused = (vouched or _is_stated(state, found)) and not disproves(found, state.decided + 1)
    if (found.newest_decision or 0) > state.decided and not excused:
        return Problem(code=Code.TABLE_AHEAD, number=state.decided, other=found.newest_decision)
    return lost_decision(state, found, table)


def lost_decision(state: LogState, found: TableState, table: TableProgress) -> Problem | None:
    """Return the contradiction if the table lacks its newest committed decision. No statement brings it back.

    History expires from its beginning, so the decisions in between were rolled back. An expired history
    proves nothing after the table was seen without them, and neither does a marker alone.
    """
    committed, newest = state.decided - (state.pending is not None), found.newest_made
    newest = None if found.by_marker and newest is not None and newest >= committed else newest
    seen = committed > 0 and (table.contradicted is not None or _names_older(state))
    if not seen if newest is None else newest >= committed:
        return None
    return Problem(code=Code.TABLE_CONTRADICTS, number=committed, other=newest)


def _names_older(state: LogState) -> bool:
    """True if the head that an operator named cannot contain the newest outcome: positions only rise."""
    made, proof = state.snapshot, state.proof
    if made is None or proof is None or proof.decision != asked_decision(state):
        return False
    return _lacks(proof.head, made)
