"""Heads of the table, and the proof that a decision is absent."""

from sluicegate.coordinator.core.cuts import revert_digest
from sluicegate.coordinator.core.effects import Append, Ask, Publish, Result
from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.state import Decision, LogState
from sluicegate.coordinator.core.state_record import TableProgress
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.models import CutCommitted, CutReverted, Head, StreamCommand
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.port import (
    Absent,
    Ahead,
    Conflict,
    Found,
    NotPublished,
    OtherDigest,
    OutcomeUnknown,
    Published,
    Refused,
    SnapshotRef,
    TableReplaced,
    TableState,
    Unproven,
)

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


# One commit: ask, publish on exactly the head that was asked, and the meaning of each answer.

Outcome = CutCommitted | CutReverted


class Committing:
    """The unresolved decision of one stream on its way into the table."""

    def __init__(self, table: TableProgress) -> None:
        self.outcome: Outcome | None = None
        """The outcome of the decision, to be appended and read back."""
        self.retries = 0
        """Number of publications in a row that failed or lost against another writer."""
        self._table = table
        self._decision: Decision | None = None
        """The decision under way. A stall ends that, and the next question begins it again."""
        self._absent: Absent | None = None
        self._recorded: Head | None = None
        """The head that the decision names, while it may take the place of a known one that expires."""
        self._expired = False
        """True if the known head has expired: the one that the decision names takes its place."""
        self._reverted = False
        """True if the empty commit of the revert was seen in the table."""

    @property
    def under_way(self) -> bool:
        """True if the table was asked about the decision, and it neither stalls nor has its outcome."""
        return self._decision is not None

    def next_append(self) -> Append | None:
        """Return the event of the outcome, if the log lacks it."""
        if self.outcome is None:
            return None
        reverted = isinstance(self.outcome, CutReverted)
        return Append(EventType.CUT_REVERTED if reverted else EventType.CUT_COMMITTED, self.outcome)

    def observe(self, record: LogRecord, applied: Applied) -> None:
        """Note the consequences of a new record."""
        body = record.body
        if applied.resolved is not None:
            self._decision = self.outcome = None
        elif isinstance(body, StreamCommand) and body.head is not None and applied.ignored is None:
            # An operator names a head because the known one proves nothing.
            self._table.head, self._table.upto = None, -1

    def next(self, state: LogState, table: TableState | None) -> Ask | Publish | None:
        """Return the next step: ask first, every time; publish only on a head without the decision.

        `table`: as it was seen last.
        """
        if self._decision is not state.pending:
            self._decision, self._absent, self._reverted, self.retries = state.pending, None, False, 0
            self._expired = False
        if (made := self._decision) is None:
            return None
        revert = revert_digest(made)
        if self._absent is None:
            digest = revert if self._reverted and revert is not None else made.digest
            known = known_head(self._table, state, table)
            self._recorded = recorded_head(self._table, state, table)
            if self._recorded is not None and self._expired:
                known = self._recorded
            return Ask(made.id, digest, state.table or self._table.identity or "", known)
        policy = state.policy
        return Publish(
            decision=made.id,
            digest=revert or made.digest,
            head=head_of(self._absent.head),
            watermark=made.before.watermark if revert else made.watermark,
            offsets=() if revert else tuple(made.parts),
            allowed_locations=policy.allowed_locations if policy else (),
            names_checked=policy is None or policy.file_names == "checked",
        )

    def believed(self, answer: Result) -> Result:
        """Return an answer; one by the marker alone proves nothing after the table was seen rolled back."""
        alone = isinstance(answer, Absent | Found) and answer.by_marker
        return Unproven(expired=True) if alone and self._table.contradicted is not None else answer

    def apply(self, effect: Ask | Publish, result: Result) -> Problem | None:
        """Apply a result: `outcome` is set, or a stall is returned, or the commit continues with `next`."""
        made = self._decision
        if made is None or made.id != effect.decision:
            return None
        if isinstance(effect, Ask):
            found = self._asked(made, effect, result)
        else:
            found = self._published(made, effect, result)
        if isinstance(found, Problem):
            self._decision = None
            return found
        self.outcome = found
        return None

    def _asked(self, made: Decision, effect: Ask, answer: Result) -> Outcome | Problem | None:
        number, revert = made.id, revert_digest(made)
        match answer:
            case Found(snapshot):
                return self._resolved(made, snapshot, reverted=self._reverted)
            case Absent(head):
                self._absent, self._reverted = answer, False
                self._table.head, self._table.upto = head_of(head), number - 1
                self._table.contradicted = None
                return None
            case OtherDigest(digest) if digest == revert and not self._reverted:
                # Another coordinator has published the revert: ask for that one.
                self._reverted = True
                return None
            case Unproven() | OtherDigest("") | Ahead(made=None) if vouched := ref_of(made.vouched):
                # Its own snapshot has expired. The named one contains it, and precedes the next decision.
                return self._resolved(made, vouched, reverted=False)
            case OtherDigest(digest):
                return Problem(code=Code.TABLE_CONTRADICTS, number=number, names=(digest,))
            case Ahead(newest):
                return Problem(code=Code.TABLE_AHEAD, number=number, other=newest)
            case Unproven(_, True) if self._recorded not in (None, effect.known):
                self._expired = True
                return None
            case Unproven(reason, True, cause) if self._table.contradicted is None:
                return Problem(code=Code.ABSENCE_UNPROVEN, number=number, cause=cause, detail=reason)
            case Unproven(reason, expired, cause):
                # A table that was rolled back stays so when its history expires afterwards.
                self._table.contradicted = self._table.contradicted if expired else effect.known
                return Problem(code=Code.TABLE_CONTRADICTS, number=number, cause=cause, detail=reason)
            case TableReplaced(identity):
                return Problem(code=Code.TABLE_REPLACED, detail=identity)
        raise TypeError(f"{answer!r} is no answer to an ask")

    def _published(self, made: Decision, effect: Publish, publication: Result) -> Outcome | Problem | None:
        self._absent = None
        match publication:
            case Published(snapshot):
                return self._resolved(made, snapshot, reverted=effect.digest != made.digest)
            case Conflict() | NotPublished() | OutcomeUnknown():
                # An unknown outcome is asked about. Files are never deleted here.
                self.retries += 1
                return None
            case Refused(reason, cause, region):
                names = tuple(sorted(made.moves)) if region is None else (region,)
                return Problem(
                    code=Code.COMMIT_REFUSED, number=made.id, names=names, cause=cause, detail=reason
                )
        raise TypeError(f"{publication!r} is no outcome of a publication")

    def _resolved(self, made: Decision, snapshot: SnapshotRef, *, reverted: bool) -> Outcome:
        head, table = head_of(snapshot), self._table.identity or ""
        self._table.head, self._table.upto = head, made.id
        if reverted:
            digest = revert_digest(made) or ""
            return CutReverted(decision=made.id, digest=digest, table=table, snapshot=head)
        return CutCommitted(decision=made.id, digest=made.digest, table=table, snapshot=head)
