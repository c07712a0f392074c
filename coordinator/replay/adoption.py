"""Adoption: the state with which a stream continues from its table.

It is the way out after a loss of Kafka's topics or of their newest records, a copy of them that is older than
the table, a table that was built again, and one that lacks commits whose files are gone. The table is the
truth then. Its newest commit of the stream states the positions (`stream.account`), and so does the log
if it has that commit. All incarnations end, because what they have not committed does not count any more:
each driver begins a new one at the position of its region, and reads what follows again.

No adoption changes rows, and a needless one only costs work that is read again. It is refused where a
coordinator would continue by itself, and where the table lacks commits of the log, which a repair keeps.
"""

import hashlib
from collections.abc import Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sluicegate.coordinator.core.state import (
    MOST_ENDED,
    AssignmentState,
    Former,
    LogState,
    RegionPhase,
    RegionState,
)
from sluicegate.coordinator.core.state_record import Due, StateRecord
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.coordinator.core.undo import revert_digest
from sluicegate.coordinator.observe.messages import NEW_STREAM, fill, format_cause, format_problem
from sluicegate.coordinator.replay.decisions import Group, LogFold, ReplayRefused, Start, start_of
from sluicegate.coordinator.replay.log import StreamLog
from sluicegate.coordinator.replay.reading import way_out
from sluicegate.coordinator.replay.tables import ReplayTable
from sluicegate.coordinator.stream.account import (
    Account,
    UnreadableAccount,
    account_after,
    account_of,
    decode_account,
)
from sluicegate.coordinator.stream.continuity import Home, LogRange, last_events, obstacle
from sluicegate.coordinator.stream.records import Held
from sluicegate.events.codec import event_id, read_attributes
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import KnownTable, Position, SnapshotRef, TableVersion
from sluicegate.events.notifications import NotificationType, StreamAdopted
from sluicegate.events.problems import CauseCode, Code, Problem
from sluicegate.lakes.capabilities import KeepsAccounts
from sluicegate.lakes.history import PastSnapshot, TableHistory
from sluicegate.lakes.port import TableState


class Place(NamedTuple):
    """The part of a stream's log that is not to be read: it has no decision."""

    partition: int
    end: int
    """The first offset of the log of the adopted stream."""
    newest: str | None
    """Id of the event before it; None if there is none, or if it is no event."""


class Adopted(NamedTuple):
    """A stream as its table has it."""

    ref: SnapshotRef | None
    """The snapshot of its newest commit; None: it has none."""
    account: Account
    stated: bool
    """True if an operator has stated the positions."""
    doubted: frozenset[str] = frozenset()
    """Further tables that get nothing until they show their newest commit, or an operator states them."""

    def record(
        self, stream: str, commit_user: str, identity: str, logged: "Logged", former: StateRecord | None
    ) -> StateRecord:
        """Return the state record from which the coordinators continue.

        `former` is the record that it replaces. Its notifications are of outcomes, so they are still true,
        except those of decisions that are given up.
        """
        head, place = self.ref, logged.place
        state = state_of(self.account)
        # A driver that registered after the commit has an incarnation that the table does not name.
        state.ended = dict.fromkeys([*state.ended, *logged.lives][-MOST_ENDED:])
        state.withdrawn = max(state.withdrawn, logged.state.withdrawn)
        state.partition, state.table, state.snapshot = place.partition, identity, head
        # An expiry may hide what the comparison has seen.
        tables = {name: each.newest.decision for name, each in state.tables.items() if name in self.doubted}
        doubted = {name: newest for name, newest in tables.items() if newest}
        # Without a commit, the whole history is read once more.
        upto = -1 if head is None else state.decided
        name = hashlib.sha256(f"{stream}/adopted/{state.decided}/{place.end}".encode()).hexdigest()[:32]
        record = StateRecord(
            stream=stream,
            applied=place.end - 1,
            applied_id=place.newest,
            commit_user=commit_user,
            adoption=name,
            low_water=place.end,
            state=state,
            table=TableProgress(identity=identity, head=head, upto=upto, doubted=doubted),
        )
        # Whoever reads the commits topic later finds there which of the earlier outcomes are given up.
        body = StreamAdopted(decision=state.decided, snapshot=head)
        told = Due(id=name, type=NotificationType.ADOPTED, body=body)
        if former is None:
            return record.model_copy(update={"due": [told]})
        due = [each for each in former.due if getattr(each.body, "decision", 0) <= state.decided]
        kept = {"due": [*due, told], "announced": former.announced, "stalls": former.stalls}
        return record.model_copy(update=kept)


def state_of(account: Account) -> LogState:
    """Return the state of a log that ends with the commit of this account."""
    former = account.former
    if former is not None:
        former = Former(assignment=former.assignment, regions=_regions(former.regions, former.assignment))
    return LogState(
        assignment=account.assignment,
        former=former,
        withdrawn=account.withdrawn,
        regions=_regions(account.regions, account.assignment),
        ended=dict.fromkeys(account.ended),
        decided=account.decision,
        tables=dict(account.tables),
        watermark=account.watermark,
    )


def _regions(
    regions: Mapping[str, RegionState], assignment: AssignmentState | None
) -> dict[str, RegionState]:
    """Return copies of the regions; one with work after its position has to register again."""
    found = {name: each.model_copy(deep=True) for name, each in regions.items()}
    for name, each in found.items():
        if assignment is not None and name not in assignment.regions and not each.ends:
            each.phase = RegionPhase.LEFT
    return found


# --- the table ------------------------------------------------------------------------------------

_LOOK_BACK: Final = 20
"""Commits before the newest one in which an account is looked for, to compare a statement with it."""


class Commits(NamedTuple):
    """The commits of a stream, as its table has them."""

    seen: TableState
    newest: PastSnapshot | None
    """None: it has none, and never had one."""
    text: str = ""
    """The account of the newest one; empty if the table has none."""
    earlier: Account | None = None
    """The newest readable account of an earlier commit."""
    lacks: int = 0
    """Decisions from the first on that the whole history of the table lacks."""

    @property
    def decision(self) -> int:
        """Return the id of the newest commit; 0 if there is none."""
        return self.newest.decision if self.newest is not None else 0

    @property
    def digest(self) -> str:
        """Return the digest of the newest commit; empty if there is none."""
        return self.newest.digest if self.newest is not None else ""

    @property
    def ref(self) -> SnapshotRef | None:
        """Return the snapshot of the newest commit; None if there is none."""
        return self.newest.ref if self.newest is not None else None


async def read_commits(table: ReplayTable, stream: str) -> Commits:
    """Return the newest commit of a stream in its table. Raises ReplayRefused."""
    seen = await table.inspect()
    user, history, keeps = table.settings.commit_user, await table.history(), table.maintenance
    newest = _newest(stream, user, seen, history)
    ours = [past for past in history.commits if past.commit_user == user and past.digest]
    lacks = min(past.decision for past in ours) - 1 if ours and history.whole else 0
    if newest is None or not isinstance(keeps, KeepsAccounts):
        return Commits(seen, newest, lacks=lacks)

    async def account(past: PastSnapshot) -> str:
        return await table.call(lambda: keeps.account(user, past.ref))

    text = await account(newest)
    before = [past for past in ours if past.decision < newest.decision]
    for past in sorted(before, key=lambda each: -each.decision)[: 0 if text else _LOOK_BACK]:
        with suppress(UnreadableAccount):
            return Commits(seen, newest, text, decode_account(await account(past)), lacks)
    return Commits(seen, newest, text, lacks=lacks)


def choose(stream: str, commits: Commits, logged: "Logged", stated: "Stated | None") -> Adopted:
    """Return the stream as its table has it: by its account, else by the log, else by the operator.

    Raises ReplayRefused.
    """
    newest = commits.newest
    if newest is None:
        return Adopted(None, _nothing(stream, logged), stated=False)
    account, why = _account(stream, newest, commits.text)
    if not logged.may_be_stated_again or stated is None:
        account = account or logged.account
    if account is not None and stated is None:
        return Adopted(newest.ref, account, stated=False)
    if account is not None:
        raise ReplayRefused(
            f"commit {newest.decision} of stream {stream} states its positions itself. Leave --position out"
        )
    if stated is None:
        raise ReplayRefused(
            f"commit {newest.decision} of stream {stream} (snapshot {newest.ref.id}) does not state the "
            f"positions of the regions: {why}. State them with --position, once for each region. The last "
            "event `cut.decided` whose commit is in the table has them, in the events topic or in a copy of "
            "it. `sluicegate replay verify` tells which commits are in the table"
        )
    _compare(stated, commits.earlier)
    regions = {name: RegionState(position=at) for name, at in stated.positions.items()}
    return Adopted(
        newest.ref,
        Account(
            version=1,
            stream=stream,
            decision=newest.decision,
            digest=newest.digest,
            # Nothing proves that the positions are of one cut. So the first cut has to be full, and until
            # then a condition says so, and the assignment can be withdrawn.
            assignment=AssignmentState(number=stated.number, regions=[*regions], after=stated.after),
            former=Former(assignment=None, regions=regions),
            regions=regions,
            ended=sorted({at.incarnation for at in stated.positions.values() if at is not None}),
        ),
        stated=True,
    )


def _nothing(stream: str, logged: "Logged") -> Account:
    """Return the account of a table without a commit of the stream."""
    current = logged.state.assignment
    if current is not None and current.after:
        # Its jobs begin after a cut of which the table has nothing.
        current = None
    if current is not None:
        current = current.model_copy(update={"provisional": True})
    regions = {name: RegionState() for name in (current.regions if current is not None else ())}
    return Account(version=1, stream=stream, decision=0, digest="", assignment=current, regions=regions)


class Stated(NamedTuple):
    """Statement of an operator about the newest commit."""

    positions: Mapping[str, Position | None]
    """By region of the assignment; None: nothing of the region is committed."""
    number: int = 0
    """Number of the assignment in force."""
    after: int = 0
    """The decision that it follows."""


def _compare(stated: Stated, earlier: Account | None) -> None:
    """Refuse a statement that an earlier commit of the table contradicts. Raises ReplayRefused."""
    for name, each in (earlier.regions if earlier is not None else {}).items():
        at, known = stated.positions.get(name), each.position
        if earlier is None or known is None:
            continue
        if at is None:
            raise ReplayRefused(
                f"commit {earlier.decision} of the table has checkpoint {known.checkpoint} of region {name}, "
                f"and no position is stated for it. State one, of that commit or later: --position {name}=..."
            )
        if at.incarnation == known.incarnation and (
            at.checkpoint < known.checkpoint or (at.checkpoint == known.checkpoint and at != known)
        ):
            raise ReplayRefused(
                f"region {name} is stated at checkpoint {at.checkpoint} (digest {at.digest}), and commit "
                f"{earlier.decision} of the table has it at {known.checkpoint} ({known.digest}) already. "
                "State the position of the newest commit"
            )


def _newest(stream: str, user: str, seen: TableState, history: TableHistory) -> PastSnapshot | None:
    """Return the newest commit of a stream in its table; None if it never had one. Raises ReplayRefused."""
    ours = [past for past in history.commits if past.commit_user == user]
    made = [past for past in ours if past.digest]
    if not ours and history.whole and not seen.newest_made:
        return None
    newest = max(made, key=lambda past: past.decision, default=None)
    if newest is None or newest.decision != seen.newest_made:
        there = newest.decision if newest is not None else "none"
        known = seen.newest_made if seen.newest_made is not None else "another one"
        raise ReplayRefused(
            f"the newest commit of stream {stream} in the history of the table is {there}, but {known} was "
            "made: its snapshot has expired. Put the snapshot back from a copy of the metadata. Without one, "
            "continue as a new stream with its own commit_user, empty checkpoint locations, and sources that "
            "begin right after the committed rows. Find those in the table itself: `sluicegate status` may "
            "show an older position"
        )
    if any(past.decision > newest.decision for past in ours):
        raise ReplayRefused(
            f"another product has committed to the table as the commit user {user}, with an id above "
            f"{newest.decision}. Continue as a new stream with its own commit_user"
        )
    return newest


def _account(stream: str, newest: PastSnapshot, text: str) -> tuple[Account | None, str]:
    """Return the account of a commit, or the reason for which it has none. Raises ReplayRefused."""
    if not text:
        return None, "its regions are too many, or another program made it"
    try:
        account = decode_account(text)
    except UnreadableAccount as error:
        return None, str(error)
    if account.decision > newest.decision:
        return None, f"the table was rolled back, and its properties are those of commit {account.decision}"
    if (account.decision, account.digest) != (newest.decision, newest.digest):
        return None, f"the properties of the table are those of commit {account.decision}"
    if account.stream != stream:
        raise ReplayRefused(
            f"commit {newest.decision} was made by the stream {account.stream}. If this is its former name, "
            f"add --from-stream {account.stream}"
        )
    return account, ""


# --- further tables -------------------------------------------------------------------------------


async def compare_tables(
    table: ReplayTable, commits: Commits, adopted: Adopted, left_out: Collection[str]
) -> Adopted:
    """Compare the further tables of the settings with the account, and refuse those that differ.

    `left_out`: names that are not compared. Nothing is published to one that differs until an operator states
    that it is right. Return the adopted stream, with the snapshots of its newest commit in these tables.
    Positions that an operator states name no commits of further tables, so each table with some is refused.
    Raises ReplayRefused.
    """
    account, wanted = adopted.account, table.settings.tables
    if unknown := sorted({*left_out} - wanted.keys() - account.tables.keys()):
        raise ReplayRefused(f"neither the settings nor the newest commit name a table {unknown[0]}")
    wrong: dict[str, str] = {}
    known: dict[str, KnownTable] = {}
    for name in sorted(wanted.keys() - {*left_out}):
        found, held = commits.seen.tables[name], account.tables.get(name)
        if isinstance(found, str):
            wrong[name] = found
        elif held is not None and held.terms.identity != found.identity:
            wrong[name] = (
                f"it is another table now: {found.identity}, and the stream has {held.terms.identity}"
            )
        else:
            # It may have another identifier now. The stream has no commit in one that the account lacks.
            newest = held.newest if held is not None else TableVersion()
            known[name] = KnownTable(terms=found, newest=newest)
    for name, problem in (await table.trouble(known)).items():
        wrong[name] = format_cause(problem.cause) if problem.cause is not None else problem.detail
        if adopted.stated and problem.cause is not None and problem.cause.code is CauseCode.OTHER_NEWEST:
            wrong[name] = f"it has decision {problem.cause.number}"
    if wrong:
        differ = f"differ from commit {account.decision} of the stream"
        back = "Put them back as they were. To continue without them, repeat"
        if adopted.stated:
            differ, back = "are not in the positions that you state", "Repeat"
        told = "; ".join(f"{name}: {why}" for name, why in sorted(wrong.items()))
        options = " ".join(f"--leave-out {name}" for name in sorted(wrong))
        raise ReplayRefused(
            f"further tables {differ}: {told}. {back} this command with {options}: they get no commits until "
            "you state that they are right, with sluicegate stream resume --table"
        )
    adopted = adopted._replace(doubted=frozenset(left_out))
    return await _with_snapshots(table, commits, adopted, known)


async def _with_snapshots(
    table: ReplayTable, commits: Commits, adopted: Adopted, known: Mapping[str, KnownTable]
) -> Adopted:
    """Add the snapshots of the newest commit: its account was written with it, and lacks them."""
    account = adopted.account
    bare = TableVersion(decision=account.decision)
    touched = {name: each for name, each in known.items() if each.newest == bare}
    if not touched or commits.ref is None:
        return adopted
    newest = commits.decision, commits.digest, commits.ref
    there = await table.snapshots(newest, commits.seen.identity, touched)
    tables = {
        name: each.model_copy(update={"newest": bare.model_copy(update={"snapshot": there.get(name)})})
        if name in touched
        else each
        for name, each in account.tables.items()
    }
    return adopted._replace(account=account.model_copy(update={"tables": tables}))


# --- the log --------------------------------------------------------------------------------------


@dataclass
class Logged:
    """Everything that the log has of an adopted stream."""

    place: Place
    state: LogState
    """Its fold, as far as a coordinator can read it."""
    events: int = 0
    """Events of the stream."""
    lives: list[str] = field(default_factory=list)
    """Incarnations of all registrations, accepted or not."""
    digest: str | None = None
    """Digest of the table's newest commit by this log; None if it does not have that, or not any more."""
    account: Account | None = None
    """Positions after the table's newest commit."""
    table: str | None = None
    """Identity of the table that the log or the record knows."""
    problem: Problem | None = None
    """Reason for which no coordinator continues from its record in this log."""
    unreadable: Problem | None = None
    """A record that this release cannot read."""
    unverified: tuple[Group, ...] = ()
    """Records that may be true, and that this command refuses."""

    recorded: int = 0
    """The newest decision with an outcome in the state record."""

    @property
    def may_be_stated_again(self) -> bool:
        """True while the log has positions that an operator stated, and no decision after them."""
        return self.state.stated_regions is not None and self.state.unresolved is None

    @property
    def committed(self) -> int:
        """Return the newest decision with an outcome in this log, also if only the state record shows it."""
        return max(self.recorded, self.state.decided - (self.state.unresolved is not None))


async def read_logged(
    log: StreamLog, stream: str, held: Held, user: str, commits: Commits, forged: Collection[str]
) -> Logged:
    """Read the log of a stream. Raises KafkaError, TimeoutError, BodyUnavailable."""
    within, home = LogRange(await log.begin(), await log.end()), Home(log.partition, user)
    usable = held.usable(within.begin)
    record = usable if isinstance(usable, StateRecord) else None
    known = [*held.bases.values(), *([record] if record is not None else [])]
    events = await last_events(log.fetcher, log.partition, known, within)
    # Records of a log that was longer are no records of this one.
    bases = {at: each for at, each in held.bases.items() if obstacle(each, home, within, events) is None}
    found = Logged(Place(log.partition, within.end, None), LogState())
    if record is not None:
        found.problem = obstacle(record, home, within, events)
        found.recorded = record.state.decided - (record.state.unresolved is not None)
    start = Start(within.begin, LogState(), -1)
    if record is not None and found.problem is None:
        start = Start(record.low_water, record.state, record.applied)
    try:
        # The whole log shows the digest of each decision.
        whole = start_of(stream, within.begin, bases)
        start = whole if _leads(whole, bases, record, found.recorded) else start
    except ReplayRefused:
        # `stream recover` needs the whole log.
        found.problem = usable if isinstance(usable, Problem) else found.problem
    fold = LogFold(stream, log.partition, start, log.decode, lambda decision: decision == commits.decision)
    if start.resolved == commits.decision and start.state.snapshot == commits.ref:
        found.account = account_after(stream, start.state, commits.digest)
    async with aclosing(log.read(within.begin, within.end)) as batches:
        async for batch in batches:
            for each in batch:
                envelope = read_attributes(each.headers)
                event = envelope if isinstance(envelope, Envelope) else None
                if each.offset == within.end - 1:
                    found.place = found.place._replace(newest=event_id(each.headers))
                if event is not None and event.stream == stream:
                    found.events += 1
                    if event.type is EventType.REGION_REGISTERED:
                        found.lives.append(event.incarnation)
                if each.offset < start.begin:
                    continue
                step = fold.read(each.offset, each.timestamp, each.headers, each.value)
                if step is not None and step.settled is not None and step.settled.account is not None:
                    found.account = step.settled.account
                    found.digest = step.settled.account.digest
    _finish(found, fold, commits, forged)
    found.table = found.state.table or (record.table.identity if record is not None else None)
    return found


def _leads(whole: Start, bases: Mapping[int, StateRecord], record: StateRecord | None, recorded: int) -> bool:
    """True if the log that is read from this start on leads to the newest record.

    A base record ahead of it is of an interrupted adoption: no coordinator begins with that one. The stream
    may have gone on without it.
    """
    if record is None:
        return True
    left = any(each.applied < record.applied and not each.is_of_course(record) for each in bases.values())
    return whole.resolved <= recorded and not left


def _finish(found: Logged, fold: LogFold, commits: Commits, forged: Collection[str]) -> None:
    """Add the state at the end of the log, and the decision without an outcome."""
    fold.finish()
    found.state = state = fold.replica.state
    if (made := state.unresolved) is not None and made.id == commits.decision:
        found.digest = made.digest
        if commits.digest in (made.digest, revert_digest(made)):
            found.digest, found.account = commits.digest, account_of(fold.stream, state, commits.digest)
    if found.digest not in (None, commits.digest):
        found.account = None
    found.unverified = fold.unverified.besides(forged)
    if (problem := fold.problem) is not None and problem.code is Code.LOG_DISCONTINUOUS:
        found.problem = found.problem or problem
    else:
        found.unreadable = problem


def refuse_needless(
    stream: str, commits: Commits, logged: Logged, give_up: int | None, stated: Stated | None = None
) -> None:
    """Refuse an adoption of a stream that continues by itself, or that would lose commits of its log.

    `give_up`: the operator's statement that the commits up to this decision cannot be made again. `stated`:
    positions, with which a statement of before may be corrected. Raises ReplayRefused.
    """
    state, other = logged.state, logged.table not in (None, commits.seen.identity)
    if logged.unverified:
        told = "; ".join(map(str, logged.unverified))
        raise ReplayRefused(
            f"the log of stream {stream} cannot be verified, so it may have what the table has: {told}. "
            f"{way_out(logged.unverified)}"
        )
    if logged.unreadable is not None:
        raise ReplayRefused(format_problem(logged.unreadable, stream))
    if logged.committed > commits.decision:
        _refuse_loss(stream, commits.decision, logged.committed, give_up, other=other)
        return
    if commits.lacks and give_up != commits.lacks:
        raise ReplayRefused(_without_beginning(stream, commits.lacks))
    if give_up is not None and not commits.lacks:
        raise ReplayRefused(
            f"the log of stream {stream} ends with the committed decision {logged.committed}, and its table "
            f"with decision {commits.decision}, so nothing is to be given up. Leave --give-up out"
        )
    _refuse_other_course(stream, commits, logged)
    if logged.problem is not None or other or logged.digest not in (None, commits.digest):
        return
    if TableProgress().mismatch(state, commits.seen) is not None:
        return
    if commits.newest is None:
        raise ReplayRefused(
            f"the table of stream {stream} has no commit of its commit user, and the log has none, so "
            "nothing is to be adopted. Start a coordinator, and the jobs with empty checkpoint locations"
        )
    if logged.may_be_stated_again and stated is not None:
        return
    correction = (
        ". If a position that was stated is wrong, repeat this command with --position for each region, "
        "before the next commit"
        if logged.may_be_stated_again
        else ""
    )
    raise ReplayRefused(
        f"the topics have stream {stream} up to decision {state.decided}, so it continues by itself. Start "
        f"the coordinators{correction}"
    )


def _without_beginning(stream: str, lacks: int) -> str:
    """Return the refusal of a table that was built of a log without its beginning."""
    lacking = "decision 1" if lacks == 1 else f"decisions 1 to {lacks}"
    return (
        f"the table of stream {stream} lacks {lacking}: it was built of a log without its beginning. The "
        "rows of these commits are not in it, and no driver reads them again. If the sources still have all "
        f"rows, set streams.{stream}.table to an empty table, and repeat this command: it tells how the "
        f"drivers read all of them again. To do without these rows, repeat it with --give-up {lacks}"
    )


def _refuse_other_course(stream: str, commits: Commits, logged: Logged) -> None:
    """Refuse a table whose newest commit leaves out what the log has as committed. Raises ReplayRefused.

    Positions never step back from one commit to the next.
    """
    try:
        account = decode_account(commits.text)
    except UnreadableAccount:
        return
    before = logged.state.unresolved.before if logged.state.unresolved is not None else logged.state
    for name, region in before.regions.items():
        at = region.position
        there = account.regions[name].position if name in account.regions else None
        if at is None or (there is not None and there.incarnation != at.incarnation):
            continue
        if there is None or there.checkpoint < at.checkpoint:
            raise ReplayRefused(
                f"commit {commits.decision} of the table leaves out checkpoint {at.checkpoint} of region "
                f"{name}, which the log of stream {stream} has as committed: another deployment commits as "
                "the same commit user. Let each deployment have a commit_user of its own: for this one, "
                + fill(NEW_STREAM, {})
            )


def _refuse_loss(stream: str, newest: int, committed: int, give_up: int | None, *, other: bool) -> None:
    """Refuse to leave commits out that the table lacks, unless exactly those are given up.

    `other`: the log knows another table, so this one was built again, or is a wrong one.
    """
    if give_up == committed:
        return
    lacking = f"decision {committed}" if committed == newest + 1 else f"decisions {newest + 1} to {committed}"
    stated = f". --give-up names {give_up}" if give_up is not None else ""
    way = (
        f"Set streams.{stream}.table to the former table, and complete this one: sluicegate replay rebuild "
        f"--stream {stream} --into TABLE"
        if other
        else f"Commit them again: sluicegate replay repair --stream {stream}"
    )
    raise ReplayRefused(
        f"the log of stream {stream} has {lacking} as committed, and its table ends with decision {newest}: "
        f"it was rolled back, restored from an older copy, or not built completely{stated}. {way}. If that "
        "is refused, as after a loss of their files, and the sources still have the rows, repeat this "
        f"command with --give-up {committed}: the drivers read these rows again"
    )
