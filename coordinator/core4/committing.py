"""One commit against the table: ask, publish on the head that was asked, and the meaning of each answer."""

from sluicegate.coordinator.core4.decisions import revert_digest
from sluicegate.coordinator.core4.effects import Ask, Publish, Result
from sluicegate.coordinator.core4.heads import head_of, known_head
from sluicegate.coordinator.core4.log_state import Decision, LogState
from sluicegate.coordinator.core4.state_record import TableProgress
from sluicegate.events.problems import Code, Problem
from sluicegate.events.version4 import CutCommitted, CutReverted
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
    Unproven,
)

Outcome = CutCommitted | CutReverted


class Commit:
    """The unresolved decision on its way into the table."""

    def __init__(self, decision: Decision, table: TableProgress) -> None:
        self.decision = decision
        self.retries = 0
        """How often a publication had to be asked about again."""
        self._table = table
        self._absent: Absent | None = None
        self._reverted = False
        """Whether the empty commit of the revert was seen in the table."""

    def next(self, state: LogState) -> Ask | Publish:
        """Ask first, every time; publish only on a head where the decision is absent."""
        made, revert = self.decision, revert_digest(self.decision)
        if self._absent is None:
            digest = revert if self._reverted and revert is not None else made.digest
            return Ask(made.id, digest, self._table.identity or "", known_head(self._table, state))
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

    def take(self, effect: Ask | Publish, result: Result) -> Outcome | Problem | None:
        """Apply a result; return the outcome or a stall, or None if the commit continues with `next`."""
        if isinstance(effect, Ask):
            return self._asked(result)
        return self._published(effect, result)

    def _asked(self, answer: Result) -> Outcome | Problem | None:
        number, revert = self.decision.id, revert_digest(self.decision)
        match answer:
            case Found(snapshot):
                return self._resolved(snapshot, reverted=self._reverted)
            case Absent(head):
                self._absent, self._reverted = answer, False
                self._table.head, self._table.upto = head_of(head), number - 1
                return None
            case OtherDigest(digest) if digest == revert and not self._reverted:
                self._reverted = True
                return None
            case OtherDigest(digest):
                return Problem(code=Code.TABLE_CONTRADICTS, number=number, names=(digest,))
            case Ahead(newest):
                return Problem(code=Code.TABLE_AHEAD, number=number, other=newest)
            case Unproven(reason):
                return Problem(code=Code.ABSENCE_UNPROVEN, number=number, detail=reason)
            case TableReplaced(identity):
                return Problem(code=Code.TABLE_REPLACED, detail=identity)
        raise TypeError(f"{answer!r} is no answer to an ask")

    def _published(self, effect: Publish, publication: Result) -> Outcome | Problem | None:
        self._absent = None
        match publication:
            case Published(snapshot):
                return self._resolved(snapshot, reverted=effect.digest != self.decision.digest)
            case Conflict() | NotPublished() | OutcomeUnknown():
                self.retries += 1
                return None
            case Refused(reason):
                return Problem(code=Code.COMMIT_REFUSED, number=self.decision.id, detail=reason)
        raise TypeError(f"{publication!r} is no outcome of a publication")

    def _resolved(self, snapshot: SnapshotRef, *, reverted: bool) -> Outcome:
        made, head, table = self.decision, head_of(snapshot), self._table.identity or ""
        self._table.head, self._table.upto = head, made.id
        if reverted:
            digest = revert_digest(made) or ""
            return CutReverted(decision=made.id, digest=digest, table=table, snapshot=head)
        return CutCommitted(decision=made.id, digest=made.digest, table=table, snapshot=head)
