"""One commit: ask, publish on exactly the head that was asked, and the meaning of each answer."""

from collections.abc import Mapping

from sluicegate.coordinator.core.effects import Append, Ask, Publish, Result
from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.state import Decision, LogState
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.coordinator.core.undo import revert_digest
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.models import CutCommitted, CutReverted, SnapshotRef, StreamCommand
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.port import (
    Absent,
    Ahead,
    Found,
    OtherDigest,
    OutcomeUnknown,
    Published,
    Refused,
    TableReplaced,
    TableState,
    Unproven,
)

OF_OTHERS = frozenset({Code.TABLE_AHEAD, Code.TABLE_CONTRADICTS})
"""Stalls that may come from a record of another coordinator that is still to be read."""

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
        self._apart: Found | None = None
        """The anchor's answer, if it has the decision and a further table lacks it."""
        self._expired = False
        """True if the snapshot of the newest outcome has expired: the head that the decision names serves."""
        self._left_out: frozenset[str] = frozenset()
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
        elif isinstance(body, StreamCommand) and body.head and not body.table and applied.ignored is None:
            # An operator names a head because the known one proves nothing.
            self._table.forget()

    def next(self, state: LogState, table: TableState | None) -> Ask | Publish | None:
        """Return the next step: ask first, every time; publish only on a head without the decision.

        `table`: as it was seen last.
        """
        if self._decision is not state.unresolved:
            self._decision, self._absent, self._reverted, self.retries = state.unresolved, None, False, 0
            self._expired, self._apart = False, None
        if (made := self._decision) is None:
            return None
        revert, policy = revert_digest(made), state.policy
        # The registry has the newest name of a table in the catalog, and an operator's statement about it.
        tables = {name: state.registered(name, each) or each for name, each in made.tables.items()}
        self._left_out = frozenset(each for each in tables if policy.tables.get(each) != tables[each].terms)
        if revert and tables and self._absent is not None and self._absent.elsewhere is None:
            # The order came after the question, which was about the anchor alone.
            self._absent = None
        if self._absent is None and self._apart is None:
            digest = revert if self._reverted and revert is not None else made.digest
            known = self._table.known_head(state, table, expired=self._expired)
            identity = state.table or self._table.identity or ""
            return Ask(made.id, digest, identity, known, tables, self._left_out, revert is not None)
        head = self._absent.head if self._absent is not None else None
        if self._apart is not None:
            # The anchor has it, so no order reverts it.
            revert = None
            head, tables = self._apart.snapshot, {name: tables[name] for name in self.apart}
        elif self._absent is not None and self._absent.elsewhere:
            # Rows of it are visible, so it stands.
            revert = None
        offsets = {} if revert else {name: tuple(made.parts_of[name]) for name in tables}
        return Publish(
            decision=made.id,
            digest=revert or made.digest,
            head=head,
            watermark=made.before.watermark if revert else made.watermark,
            offsets=() if revert else tuple(made.parts),
            allowed_locations=policy.allowed_locations,
            names_checked=policy.file_names == "checked",
            tables={name: state.tables[name] for name in policy.tables} | tables,
            offsets_of=offsets,
            apart=self._apart is not None,
            left_out=self._left_out,
        )

    @property
    def apart(self) -> list[str]:
        """Return the further tables that lack a decision which the anchor has."""
        if self._apart is None or self._decision is None:
            return []
        return sorted(self._decision.tables.keys() - self._apart.tables.keys() - self._left_out)

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
            case Found(snapshot, tables=tables):
                self._apart = None if self._reverted else answer
                if self.apart:
                    return None
                return self._resolved(made, snapshot, tables, reverted=self._reverted)
            case Absent(head):
                self._absent, self._reverted = answer, False
                self._table.prove(head, number - 1)
                self._table.contradicted = None
                return None
            case OtherDigest(digest) if digest == revert and not self._reverted:
                # Another coordinator has published the revert: ask for that one.
                self._reverted = True
                return None
            case OtherDigest(digest):
                return Problem(code=Code.TABLE_CONTRADICTS, number=number, names=(digest,))
            case Ahead(newest):
                return Problem(code=Code.TABLE_AHEAD, number=number, other=newest)
            case Unproven(expired=True) if not (self._expired or self._table.upto == number - 1):
                # That was the snapshot of the newest outcome, or a statement. The decision may name another.
                self._expired = True
                return None
            case Unproven():
                return self._table.unproven(answer, effect.known, number, number)
            case TableReplaced(identity):
                return Problem(code=Code.TABLE_REPLACED, detail=identity)
        raise TypeError(f"{answer!r} is no answer to an ask")

    def _published(self, made: Decision, effect: Publish, publication: Result) -> Outcome | Problem | None:
        found, self._absent, self._apart = self._apart, None, None
        match publication:
            case Published(_, tables) if found is not None:
                return self._resolved(made, found.snapshot, {**found.tables, **tables}, reverted=False)
            case Published(snapshot, tables):
                return self._resolved(made, snapshot, tables, reverted=effect.digest != made.digest)
            case OutcomeUnknown() | Refused(again=True):
                # The table is asked again. Files are never deleted here.
                self.retries += 1
                return None
            case Refused(reason, cause, region, table=table):
                names = tuple(sorted(made.moves)) if region is None else (region,)
                # A revert has no files, so that to give the decision up is no way out.
                names = names if made.revert is None else ()
                return Problem(
                    code=Code.COMMIT_REFUSED,
                    number=made.id,
                    table=table or None,
                    names=names,
                    cause=cause,
                    detail=reason,
                )
        raise TypeError(f"{publication!r} is no outcome of a publication")

    def _resolved(
        self,
        made: Decision,
        snapshot: SnapshotRef,
        tables: Mapping[str, SnapshotRef | None],
        *,
        reverted: bool,
    ) -> Outcome:
        head, table = snapshot, self._table.identity or ""
        self._table.prove(head, made.id)
        if reverted:
            digest = revert_digest(made) or ""
            return CutReverted(decision=made.id, digest=digest, table=table, snapshot=head)
        left_out = tuple(sorted(made.tables.keys() - tables.keys()))
        return CutCommitted(
            decision=made.id,
            digest=made.digest,
            table=table,
            snapshot=head,
            tables=dict(sorted(tables.items())),
            left_out=left_out,
        )
