"""Repair: commit valid decisions of the log that the table provably lacks.

Repair asks and publishes like a coordinator, with the same ids and digests. It cannot commit twice, even
beside other writers. A decision is published on exactly the head where its absence was proven, so the slower
writer finds it. Only the last decisions can be missing. A gap among them cannot be filled, because ids only
rise along a table's history.

A repair of the anchor commits a decision to it, and in the same step to the further tables that lack it, too.
A repair of a further table completes decisions that the anchor has. So one that all tables lack comes back
with the anchor. Each further table is judged by its own history.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sluicegate.coordinator.core.table import TableProgress, asked_decision
from sluicegate.coordinator.observe.messages import ADOPT, fill, format_cause, format_problem
from sluicegate.coordinator.replay.decisions import (
    CommitStatus,
    Comparison,
    Finding,
    LoggedDecision,
    ReplayRefused,
    Start,
)
from sluicegate.coordinator.replay.log import Print, StreamLog
from sluicegate.coordinator.replay.reading import Reading, Window, parse_mark, read_decisions
from sluicegate.coordinator.replay.tables import Connected, ReplayTable
from sluicegate.events.models import (
    FurtherTable,
    KnownTable,
    SnapshotRef,
    StreamCommand,
    TableVersion,
)
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.bodies import BodyUnavailable, WrittenEvent
from sluicegate.lakes.history import TableHistory

_NO_TABLES: Final[Mapping[str, KnownTable]] = {}


@dataclass
class Repaired:
    """Result of a repair, made or only planned."""

    committed: list[Finding] = field(default_factory=list)
    left: list[tuple[Finding, str]] = field(default_factory=list)
    """Decisions that were left out, with the reason."""
    done: Reading | None = None
    orders: list[StreamCommand] = field(default_factory=list)
    """Orders to append, so that a coordinator continues from the table as it is now."""


class Repair:
    """One repair of a table from a log."""

    def __init__(
        self,
        log: StreamLog,
        stream: str,
        table: ReplayTable,
        refuse_if_owned: Callable[[], Awaitable[None]],
        *,
        dry: bool,
        tables: Mapping[str, KnownTable] = _NO_TABLES,
        name: str = "",
    ) -> None:
        """`table`: the anchor. `tables`: the further ones, as the log has them at its end.

        `name`: that of the further table to repair; empty: the anchor.
        """
        self._log = log
        self._stream = stream
        self._table = table
        self._refuse_if_owned = refuse_if_owned
        self._dry = dry
        self._tables = tables
        self._name = name
        self._further: dict[str, _Further] = {}
        """Further tables whose history was read."""
        self._before: tuple[int, SnapshotRef | None] | None = None
        """The last decision that the table has with its own digest, and its snapshot."""
        self._last: int | None = None
        """Id of the stream's last commit in the table; 0 if there is none, None if unknown."""
        self._made = 0
        """The same, with the mark of the table; 0 also if unknown."""
        self._result = Repaired()

    async def run(self, start: Start, window: Window, note: Print) -> Repaired:
        """Commit the missing decisions in order. `note` gets each commit.

        Raises ReplayRefused at the first decision that cannot be committed. Decisions before it stay
        committed.
        """
        self._made = (await self._table.inspect()).newest_made or 0
        history = await self._table.comparison()
        self._last = history.newest if history.newest or not history.history.whole else 0
        further = await self._read(self._name) if self._name else None

        async def repair(logged: LoggedDecision) -> None:
            if logged.table not in (None, history.history.identity):
                replaced = Problem(code=Code.TABLE_REPLACED, detail=history.history.identity)
                raise ReplayRefused(format_problem(replaced, self._stream))
            if further is not None:
                await self._complete(logged, history, further, note)
                return
            finding = history.judge(logged)
            if finding.status is CommitStatus.THERE:
                self._before = finding.decision, finding.snapshots[0]
            elif self._is_missing(finding, history):
                await self._commit(finding, logged, history.history, note)

        end = await self._log.end()
        done = await read_decisions(
            self._log, self._stream, start, end, window, repair, accounted=not self._dry
        )
        self._result.done = done
        if not self._dry and done.fold.problem is None:
            orders = [] if self._name else self._orders(done, await self._table.history())
            stated = [await self._statement(each, done) for each in self._further.values()]
            self._result.orders = [*orders, *(each for each in stated if each is not None)]
        return self._result

    async def _read(self, name: str) -> "_Further":
        """Return a further table with its history. Raises ReplayRefused."""
        if name not in self._further:
            known = self._tables[name]
            table = self._table.further(name, known.terms)
            self._further[name] = _Further(
                self._stream, name, table, known, await table.comparison(known.terms)
            )
        return self._further[name]

    # --- a further table --------------------------------------------------------------------------

    async def _complete(
        self, logged: LoggedDecision, anchor: Comparison, further: "_Further", note: Print
    ) -> None:
        """Commit a decision to the further table, if it belongs there, and the table lacks it."""
        history, name, number = further.history, further.name, logged.decision.id
        if not history.concerns(logged):
            return
        finding = history.judge(logged)
        if finding.status is CommitStatus.UNRESOLVED:
            why = "the log has no outcome of it: the coordinator completes it"
            self._result.left.append((finding, why))
            return
        if finding.status is CommitStatus.LEFT_OUT and number < (further.last or 0):
            why = "the table was left out of it, and later ones are there"
            self._result.left.append((finding, why))
            return
        if finding.status is not CommitStatus.LEFT_OUT and not self._is_missing(finding, history):
            further.note(finding)
            return
        if not self._is_in_anchor(anchor.judge(logged)):
            raise ReplayRefused(
                f"nothing proves that decision {number} is in the stream's own table. Repair that first: "
                f"sluicegate replay repair --stream {self._stream}"
            )
        known = further.known_before(logged)
        offsets = logged.offsets_of(name)
        bodies = await self._bodies(logged, offsets)
        if self._dry:
            identity = anchor.history.identity
            await self._table.require_files(logged, identity, logged.policy, bodies, {name: known})
            self._result.committed.append(finding)
            further.note(finding)
            return
        await self._refuse_if_owned()
        made = await self._table.complete(logged, name, known, bodies)
        at = f" as snapshot {made.id}" if made else ""
        note(f"decision {number} is in the table {name}{at}")
        done = finding._replace(snapshots=(made,) if made else ())
        further.note(done)
        self._result.committed.append(done)

    def _is_in_anchor(self, finding: Finding) -> bool:
        if finding.status is CommitStatus.UNKNOWN:
            return self._made >= finding.decision
        return finding.status in (CommitStatus.THERE, CommitStatus.EXPIRED)

    async def _lacking(self, logged: LoggedDecision) -> dict[str, KnownTable]:
        """Return the further tables that get a decision together with the anchor. Raises ReplayRefused.

        They are those that lack it. One that the policy leaves out now does not hold up the anchor.
        """
        found: dict[str, KnownTable] = {}
        for name, made in logged.decision.tables.items():
            now = self._tables.get(name)
            if logged.reverted or now is None or now.terms.identity != made.terms.identity:
                continue
            further = await self._read(name)
            finding = further.history.judge(logged)
            if finding.status is CommitStatus.OTHER:
                raise ReplayRefused(_wrong(finding, self._stream, name))
            # A hole cannot be filled, and `verify` names it.
            there = finding.snapshots or finding.status is CommitStatus.EXPIRED
            if not there and (further.last is None or further.last < finding.decision):
                found[name] = further.known_before(logged)
        return found

    async def _statement(self, further: "_Further", done: Reading) -> StreamCommand | None:
        """Return the order that states a further table's snapshot, if the log names one that was lost.

        It is given only if the table has everything that touched it.
        """
        state, name = done.fold.replica.state, further.name
        known = state.tables.get(name)
        after = await further.table.comparison(further.known.terms)
        newest = after.newest
        if known is None or newest is None or known.terms.identity != further.known.terms.identity:
            return None
        if newest != max(further.last_touch or 0, known.newest.decision):
            return None
        ref, snapshot = after.snapshot_of(newest), known.newest.snapshot
        there = snapshot is None or any(past.ref == snapshot for past in after.history.commits)
        oldest = after.history.commits[-1].ref
        expired = snapshot is not None and not after.history.whole and snapshot.id < oldest.id
        if known.newest.decision == newest and (there or expired):
            return None
        return StreamCommand(
            command="resume", table=name, decision=newest, head=ref, known=known.newest.decision
        )

    # --- the anchor -------------------------------------------------------------------------------

    def _is_missing(self, finding: Finding, history: Comparison) -> bool:
        """True if the decision is to be committed. Raises ReplayRefused."""
        if finding.status in (CommitStatus.OTHER, CommitStatus.DOUBLED, CommitStatus.MISPLACED):
            raise ReplayRefused(_wrong(finding, self._stream, history.table))
        if finding.status in (CommitStatus.THERE, CommitStatus.EXPIRED):
            return False
        if finding.status is CommitStatus.UNKNOWN:
            why = "the log has it as committed, and the history that could show it has expired"
            self._result.left.append((finding, why))
            return False
        if history.newest is not None and finding.decision < history.newest:
            option = f" --table {history.table}" if history.table else ""
            raise ReplayRefused(
                f"decision {finding.decision} is not in the table, but {history.newest} is: commits are "
                "ordered, so it cannot be added before that one. Build a fresh table: sluicegate replay "
                f"rebuild --stream {self._stream}{option} --into TABLE"
            )
        return True

    async def _commit(
        self, finding: Finding, logged: LoggedDecision, history: TableHistory, note: Print
    ) -> None:
        decision = logged.decision
        if logged.undetermined:
            why = "an operator ordered to revert it: the coordinator asks the table, and chooses"
            self._result.left.append((finding, why))
            return
        if self._last is not None and decision.id != self._last + 1:
            ends = f"decision {self._last}" if self._last else "no decision"
            raise ReplayRefused(
                f"decision {decision.id} cannot be committed: the table ends with {ends} of this stream, and "
                "those in between are not in this range of the log. Include them with --from earliest; if "
                "the log does not have them any more, restore the table's snapshots"
            )
        self._last = decision.id
        # A coordinator may have started since the last commit of this run.
        if not self._dry:
            await self._refuse_if_owned()
        tables = await self._lacking(logged)
        offsets = sorted(offset for name in ("", *tables) for offset in logged.offsets_of(name))
        bodies, policy = await self._bodies(logged, offsets), logged.policy
        if self._dry:
            await self._table.require_files(logged, history.identity, policy, bodies, tables)
            self._result.committed.append(finding)
            for name in tables:
                self._further[name].note(finding)
            return
        known = self._known(logged, history)
        outcome = await self._table.commit(logged, history.identity, known, policy, bodies, tables)
        for name in tables:
            self._further[name].note(finding)
        self._before = decision.id, outcome.snapshot
        made = outcome.snapshot
        note(f"decision {decision.id} is in the table{f' as snapshot {made.id}' if made else ''}")
        self._result.committed.append(finding._replace(snapshots=(made,) if made else ()))

    async def _bodies(self, logged: LoggedDecision, offsets: Sequence[int]) -> dict[int, WrittenEvent]:
        try:
            return await self._log.bodies(offsets) if offsets else {}
        except BodyUnavailable as error:
            why = format_cause(error.cause)
            raise ReplayRefused(f"decision {logged.decision.id} cannot be committed: {why}") from error

    def _known(self, logged: LoggedDecision, history: TableHistory) -> SnapshotRef | None:
        """Return a head that no commit of the decision precedes; None if the whole history is readable."""
        if self._before is not None and self._before[0] == logged.decision.id - 1:
            # Commits are ordered: no snapshot up to that of the decision before has this one.
            return self._before[1]
        return None if history.whole else logged.decision.head

    def _orders(self, done: Reading, history: TableHistory) -> list[StreamCommand]:
        """Return the operator's statement about the head, if the log's own proof names a lost snapshot.

        After a rollback and this repair, the outcomes in the log name snapshots that do not exist any more.
        So they do if the owner of the table has brought the commits back in other snapshots.
        """
        state = done.fold.replica.state
        asked, known = asked_decision(state), TableProgress().known_head(state, None)
        if self._before is None or (not self._result.committed and self._before[0] != asked - 1):
            return []
        user = self._table.settings.commit_user
        if any(past.commit_user == user and past.decision >= asked for past in history.commits):
            return []
        there = known is None or any(past.ref == known for past in history.commits)
        # A snapshot before the oldest readable one has expired, which is normal.
        expired = known is not None and not history.whole and known.id < history.commits[-1].ref.id
        if there or expired or not history.commits:
            return []
        head = history.commits[0].ref
        orders = [StreamCommand(command="resume", decision=asked, head=head)]
        # The statement ends a pause, which another operator may have ordered for another reason.
        return [*orders, StreamCommand(command="pause")] if state.paused else orders


class _Further:
    """A further table in a repair, and its newest commit of the stream."""

    def __init__(
        self, stream: str, name: str, table: ReplayTable, known: KnownTable, history: Comparison
    ) -> None:
        self._stream = stream
        self.name = name
        self.table = table
        self.known = known
        """As the log has it at its end."""
        self.history = history
        self.last = history.newest if history.newest or not history.history.whole else 0
        """Id of the stream's last commit in it; 0 if there is none, None if unknown."""
        self.last_touch: int | None = None
        """The last decision that it has, or got, in this run; None: this run has met none."""

    def note(self, finding: Finding) -> None:
        """Note a decision that the table has, or gets now, and that has an outcome."""
        if finding.status is CommitStatus.UNKNOWN or finding.logged is None or finding.logged.outcome is None:
            return
        self.last_touch = finding.decision
        self.last = max(self.last or 0, finding.decision)

    def known_before(self, logged: LoggedDecision) -> KnownTable:
        """Return what the table must show when the decision is published there. Raises ReplayRefused."""
        number, name = logged.decision.id, self.name
        terms, before = self.terms(logged), logged.decision.tables[name].newest
        if self.last is None or self.last == before.decision:
            return KnownTable(terms=terms, newest=before)
        if self.last != self.last_touch:
            ends = f"decision {self.last}" if self.last else "no decision"
            raise ReplayRefused(
                f"decision {number} cannot be committed: the table {name} ends with {ends} of this stream, "
                f"and decision {before.decision} touched it before. Commit that first: sluicegate replay "
                f"repair --stream {self._stream} --table {name}. If the log does not have it any more, "
                "restore the table's snapshots"
            )
        return KnownTable(terms=terms, newest=TableVersion(decision=self.last))

    def terms(self, logged: LoggedDecision) -> FurtherTable:
        """Return the terms of the table as of the outcome, at the place where it is now."""
        then = logged.policy.tables.get(self.name)
        if then is None or then.identity != self.known.terms.identity:
            then = logged.decision.tables[self.name].terms
        return then.model_copy(update={"identifier": self.known.terms.identifier})


async def state_table(
    connected: Connected, stream: str, name: str, head: SnapshotRef | None
) -> StreamCommand:
    """Return the order that states that a further table is right at a snapshot. Raises ReplayRefused.

    The newest decision there is read from the table, and each of its decisions is compared with the log.
    `head` None, or one that does not fit: the refusal names the head of the table.
    """
    anchor, state = connected.table, connected.state
    known = state.tables.get(name)
    if known is None:
        raise ReplayRefused(
            f"the log has no further table {name!r} of this stream. It has: "
            f"{', '.join(sorted(state.tables)) or 'none'}"
        )
    await anchor.inspect()
    table = anchor.further(name, known.terms)
    newest = (await table.inspect()).newest_made
    history = (await table.comparison(known.terms)).history
    if not history.commits:
        raise ReplayRefused(f"{table.place} has no snapshot, so there is nothing to state")
    at = history.commits[0].ref
    shown = f"The head of the table is {at.id}:{at.identity}"
    place = next((each for each, past in enumerate(history.commits) if past.ref == head), None)
    if head is None or place is None:
        which = "name a snapshot with --head" if head is None else f"snapshot {head.id} is not in its history"
        raise ReplayRefused(f"{table.place}: {which}. {shown}")
    if newest is None:
        raise ReplayRefused(
            f"nothing shows the newest decision in {table.place}: its history has expired. Build a fresh "
            "table: sluicegate replay rebuild"
        )
    if newest > state.decided:
        raise ReplayRefused(
            f"{table.place} has decision {newest}, and the log ends with {state.decided}: another log "
            "commits to it as the same commit user. Let each deployment have a commit_user of its own"
        )
    user = table.settings.commit_user
    later = [past.decision for past in history.commits[:place] if past.commit_user == user and past.digest]
    if later:
        raise ReplayRefused(f"{table.place} has decision {later[0]} after snapshot {head.id}. {shown}")
    logged = await _digests(connected, stream)
    for past in history.commits:
        # Decisions before the log are those of an account, and known by their ids alone.
        ours = past.commit_user == user and past.digest and past.decision > connected.start.state.decided
        if ours and past.digest not in logged.get(past.decision, ()):
            raise ReplayRefused(
                f"{table.place}: snapshot {past.ref.id} has decision {past.decision}, and the log has none "
                "of that content as committed. It was given up (`sluicegate commit revert`), or is of "
                "another deployment with the same commit user. Roll the table back to the snapshot before "
                f"it, then state that one. See: sluicegate replay verify --stream {stream} --table {name}"
            )
    stated = TableVersion(decision=newest, snapshot=head)
    for problem in (await anchor.trouble({name: known.model_copy(update={"newest": stated})})).values():
        why = format_cause(problem.cause) if problem.cause is not None else problem.detail
        raise ReplayRefused(f"{table.place}: {why}")
    return StreamCommand(
        command="resume", table=name, decision=newest or None, head=head, known=known.newest.decision
    )


async def _digests(connected: Connected, stream: str) -> dict[int, tuple[str, ...]]:
    """Return, by decision, the digests that tables may have for it, as far as the log goes back."""
    found: dict[int, tuple[str, ...]] = {}

    async def note(logged: LoggedDecision) -> None:
        found[logged.decision.id] = logged.digests

    whole = Window(parse_mark("earliest"), parse_mark("latest"))
    end = await connected.log.end()
    await read_decisions(connected.log, stream, connected.start, end, whole, note)
    return found


def _wrong(finding: Finding, stream: str, table: str = "") -> str:
    at = ", ".join(str(each.id) for each in finding.snapshots)
    place = f"the table {table}" if table else "the table"
    if finding.status is not CommitStatus.OTHER:
        how = "more than once" if finding.status is CommitStatus.DOUBLED else "after a later one"
        return (
            f"decision {finding.decision} is in {place} {how} (snapshots {at}). See: sluicegate replay "
            f"verify --stream {stream}"
        )
    return (
        f"decision {finding.decision} is in {place} with other content (snapshot {at}, digest "
        f"{finding.digest}): another deployment commits as the same commit user, or this log was restored "
        "from an older copy and continued differently. To continue from the table, "
        + fill(ADOPT, {"stream": stream})
    )
