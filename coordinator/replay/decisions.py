"""The decisions of a stream's log: read with their outcomes, and compared with a table's history.

Everything here is pure: records and histories come in, findings go out.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from sluicegate.coordinator.core.log import Applied
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import Decision, LogState, RegionState, reaches
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.core.undo import revert_digest
from sluicegate.coordinator.stream.account import Account, account_after, account_of
from sluicegate.events.codec import Flaw, Reading, read_record
from sluicegate.events.envelope import EventType, LogRecord, RawHeader
from sluicegate.events.files import stated_incarnation
from sluicegate.events.models import (
    CutCommitted,
    CutDecided,
    CutReverted,
    Position,
    SnapshotRef,
    StreamPolicy,
)
from sluicegate.events.problems import CauseCode, Code, Problem
from sluicegate.lakes.history import PastSnapshot, TableHistory
from sluicegate.texts import counted


class ReplayRefused(Exception):
    """The replay was refused; nothing changed except the steps already reported."""


# A decision of a stream's log with its outcome, as the fold of the log finds it.


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """A valid decision of the log."""

    decision: Decision
    time: int
    """Append time in milliseconds."""
    included: Mapping[str, tuple[int, ...]]
    """By region, the checkpoints that it includes."""
    policy: StreamPolicy
    """The policy at its outcome, or at the end of the log."""
    table: str | None
    """Identity of the stream's table; None if no outcome precedes it and it has none itself."""
    outcome: CutCommitted | CutReverted | None = None
    """None: the log has no outcome yet, which only the last decision of a log can lack."""
    account: Account | None = None
    """The positions after it, for the table; None: nobody has asked for them."""

    @property
    def reverted(self) -> bool:
        """True if an empty commit has taken its place in the table."""
        return isinstance(self.outcome, CutReverted)

    @property
    def undetermined(self) -> bool:
        """True if an order to revert is open: the coordinator chooses between the commit and the revert."""
        return self.outcome is None and self.decision.revert is not None

    @property
    def digests(self) -> tuple[str, ...]:
        """Return the digests that the table may have under its id, the expected one first."""
        if self.outcome is not None:
            return (self.outcome.digest,)
        revert = revert_digest(self.decision)
        return (self.decision.digest, revert) if revert is not None else (self.decision.digest,)

    def offsets_of(self, table: str = "") -> list[int]:
        """Return the offsets of its events for one table, in commit order; none if it is reverted.

        The anchor has the empty name.
        """
        made = self.decision
        if self.reverted:
            return []
        if table:
            return made.parts_of.get(table, [])
        further = {offset for offsets in made.parts_of.values() for offset in offsets}
        return [offset for offset in made.parts if offset not in further]

    def touches(self, table: str, identity: str) -> bool:
        """True if it belongs into a further table of this identity.

        A table that was made again has another one.
        """
        known = self.decision.tables.get(table)
        return not self.reverted and known is not None and known.terms.identity == identity

    def leaves_out(self, table: str) -> bool:
        """True if its outcome names a further table as left out: the policy did not name that any more."""
        return isinstance(self.outcome, CutCommitted) and table in self.outcome.left_out

    def includes(self, region: str, incarnation: str | None, checkpoint: int) -> bool:
        """True if the decision includes a checkpoint; `incarnation` None: of any incarnation."""
        to = self.decision.moves.get(region)
        if to is None or incarnation not in (None, to.incarnation):
            return False
        return checkpoint in self.included.get(region, ())


class Step(NamedTuple):
    """One record of the stream, and its effect."""

    record: LogRecord
    applied: Applied
    fresh: bool
    """False: the state before the first record includes it already."""
    settled: LoggedDecision | None
    """The decision that got its outcome."""


# Records of a log that a command refuses, and that may be true all the same.
#
# A command that lacks a key takes true decisions for forged. One that needs a signature refuses the
# decisions from before the signing. So it names them, and writes nothing.

_WHY: Final = {
    CauseCode.KEY_UNKNOWN: "which is not in kafka.signing.key_files of this command",
    CauseCode.SIGNATURE_WRONG: "and that key has another content in the settings of this command",
}
UNSIGNED: Final = "unsigned"
"""Word of an operator for all records without a signature, in place of the id of a key."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


class Group(NamedTuple):
    """Records that name one key, or none."""

    key: str
    """`UNSIGNED` if they have no signature."""
    records: int
    first: int
    """Offset of the first one."""
    last: int
    """Offset of the last one."""
    time: int
    """Newest append time, in milliseconds since the Unix epoch."""
    why: CauseCode

    def __str__(self) -> str:
        some, one = counted(self.records, "record"), self.records == 1
        if self.why is CauseCode.UNSIGNED:
            return (
                f"{some} {'has' if one else 'have'} no signature, and kafka.signing of this command needs "
                f"one: offset {self.first} to {self.last}"
            )
        signed = f"{some} {'is' if one else 'are'} signed with the key {self.key}"
        return f"{signed}, {_WHY[self.why]}; the first at offset {self.first}"


class Unverified:
    """Records of one stream that are refused and may be true, by key."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._found: dict[tuple[str, CauseCode], Group] = {}

    def note(self, offset: int, time: int, flaw: Flaw | None) -> None:
        """Note a record that cannot be used, if its key is the reason, or that it has no signature.

        No key has a malformed id. `time` is its append time, in milliseconds since the Unix epoch.
        """
        if flaw is None or flaw.stream != self._stream or flaw.problem.code is not Code.SIGNATURE:
            return
        cause = flaw.problem.cause
        if cause is None:
            return
        unsigned = cause.code is CauseCode.UNSIGNED
        name = UNSIGNED if unsigned else next(iter(cause.names), "")
        if not (unsigned or (cause.code in _WHY and _ID.fullmatch(name))):
            return
        held = self._found.get((name, cause.code), Group(name, 0, offset, offset, time, cause.code))
        self._found[name, cause.code] = held._replace(
            records=held.records + 1, last=offset, time=max(held.time, time)
        )

    def besides(self, forged: Collection[str]) -> tuple[Group, ...]:
        """Return the records of all keys but those whose unverified records an operator calls forged."""
        return tuple(each for each in self._found.values() if each.key not in forged)

    @property
    def unsigned(self) -> Group | None:
        """The records without a signature; None if no such record is refused."""
        return self._found.get((UNSIGNED, CauseCode.UNSIGNED))


# The state with which the reading of a stream's log begins.


class Start(NamedTuple):
    """State before the first record that is read."""

    begin: int
    """The first offset to read."""
    state: LogState
    applied: int
    """Every record at or before this offset is in `state`; -1: none is."""

    @property
    def resolved(self) -> int:
        """Return the id of the newest decision whose outcome is in `state`; 0: there is none."""
        return resolved(self.state)


def start_of(stream: str, begin: int, bases: Mapping[int, StateRecord]) -> Start:
    """Return the state to begin with, for a log whose first offset is `begin`. Raises ReplayRefused.

    `bases` are the stream's base records by the offset up to which the log was deleted for each. A log with a
    greater first offset lacks events that the record needs. An adopted stream has one for offset 0.
    """
    if begin == 0 and 0 not in bases:
        return Start(0, LogState(), -1)
    usable = [offset for offset, record in bases.items() if begin <= offset <= record.low_water]
    if not usable:
        raise ReplayRefused(
            f"the log of stream {stream} cannot be replayed: it begins at offset {begin}, and no base record "
            "has the state before that. The events were deleted by a retention of the topic, not by the "
            "coordinators. From now on, set retention.ms of the events topic to -1. To move the table, copy "
            "its whole folder"
        )
    # The largest one needs the least reading, and it cannot need deleted events.
    first = max(usable)
    return Start(first, bases[first].state, bases[first].applied)


# The decisions of a stream's log, in order, with their outcomes.
#
# Pure: records of the log in, decisions out. `Replica` has the rules, which are those of every coordinator.
# A table is not needed: the log alone determines the content of each commit.

Decoder = Callable[[int, int, Sequence[RawHeader], bytes | None], Reading]
"""Reads a record of the log by offset, append time, headers and value, as `read_record` does."""


class LogFold:
    """The log of one stream, folded up to an offset."""

    def __init__(
        self,
        stream: str,
        partition: int,
        start: Start,
        decode: Decoder = read_record,
        accounted: Callable[[int], bool] = lambda decision: False,
    ) -> None:
        """Begin a fold; `decode` is that of the coordinators of the stream, which also checks signatures.

        `accounted`: True for each decision whose account is wanted.
        """
        self.stream = stream
        self.start = start
        self._decode = decode
        self._accounted = accounted
        self.replica = Replica(stream, partition, start.state, start.applied)
        self.problem: Problem | None = None
        """Reason for which later records are not applied; None if all were."""
        self.unverified = Unverified(stream)
        """Later records that are refused for their signature, and may be true."""
        self._open: LoggedDecision | None = None
        """The decision without an outcome."""
        self._time = 0
        """Append time of that decision, if it is in the state before the first record."""
        self._refilled = False

    def read(self, offset: int, time: int, headers: Sequence[RawHeader], value: bytes | None) -> Step | None:
        """Apply one record of the partition; None if it has no event of the stream that can be applied."""
        record, flaw = self._decode(offset, time, headers, value)
        fresh = offset > self.start.applied
        if fresh and flaw is not None and flaw.stalls and flaw.stream == self.stream:
            self.problem = self.problem or flaw.problem
        if fresh:
            self.unverified.note(offset, time, flaw)
        if record is None or record.envelope.stream != self.stream:
            return None
        # The files of a skipped record are nobody's: they are neither committed nor orphans.
        step = self.apply(record)
        return None if record.skipped else step

    def apply(self, record: LogRecord) -> Step | None:
        """Apply one record of the stream; None if no later record can be applied."""
        fresh = record.offset > self.start.applied
        if fresh:
            self._finish_refill()
        return None if self.problem is not None else self._step(record, fresh=fresh)

    def finish(self) -> LoggedDecision | None:
        """Return the decision without an outcome, after the last record; None if there is none."""
        self._finish_refill()
        made, state = self._open, self.replica.state
        if made is None:
            return None
        wanted = self._accounted(made.decision.id)
        account = account_of(self.stream, state, made.decision.digest) if wanted else None
        return replace(made, policy=state.policy, account=account)

    def _step(self, record: LogRecord, *, fresh: bool) -> Step:
        state, body = self.replica.state, record.body
        if state.unresolved is not None and record.offset == state.unresolved.offset:
            self._time = record.time
        applied = self.replica.step(record)
        if applied.ignored is not None and applied.ignored.code is Code.SKIPPED_LATE:
            self.problem = applied.ignored
        settled = None
        if applied.resolved is not None and self._open is not None:
            outcome = body if isinstance(body, CutCommitted | CutReverted) else None
            # The order to revert it, if there is one, came after the decision.
            settled = replace(self._open, policy=state.policy, table=state.table, outcome=outcome)
            if outcome is not None and self._accounted(outcome.decision):
                settled = replace(settled, account=account_after(self.stream, state, outcome.digest))
            self._open = None
        elif fresh and isinstance(body, CutDecided) and applied.ignored is None:
            self._open = self._opened(record.time)
        return Step(record, applied, fresh, settled)

    def _finish_refill(self) -> None:
        """Collect the content of the decision that the state before the first record has open."""
        if self._refilled:
            return
        self._refilled = True
        self.replica.finish_refill()
        if self.replica.lost_content:
            self.problem = Problem(code=Code.LOG_DISCONTINUOUS, number=self.start.begin)
        self._open = self._opened(self._time)

    def _opened(self, time: int) -> LoggedDecision | None:
        log = self.replica.log
        if log.state.unresolved is None:
            return None
        included = {
            name: tuple(each.position.checkpoint for each in checkpoints)
            for name, checkpoints in log.taken_checkpoints.items()
        }
        return LoggedDecision(log.state.unresolved, time, included, log.state.policy, log.state.table)


# Comparison of a log's decisions with a table's history, by ids and digests, never by file paths.
#
# Compaction rewrites files, and expiry removes snapshots. Neither changes the commit properties of a
# snapshot that still exists.


class CommitStatus(StrEnum):
    """State of a decision in the table."""

    THERE = "there"
    EXPIRED = "expired"
    """The oldest readable commit of the stream is a later one. Commits are ordered, so this one was there.

    Its digest cannot be checked any more, nor that it was committed only once.
    """
    UNKNOWN = "unknown"
    """No commit of the stream is readable, and the history has expired: nothing can be proven."""
    MISSING = "missing"
    """The log has its outcome, and it is absent: the history is complete, or has an earlier commit.

    A repair proves it again.
    """
    UNRESOLVED = "unresolved"
    """Absent, and the log has no outcome of it either: the coordinator publishes it."""
    LEFT_OUT = "left out"
    """Absent from a further table that its outcome names as left out."""
    OTHER = "other content"
    """Its id is in the table with another digest."""
    DOUBLED = "doubled"
    MISPLACED = "out of order"
    """The table has it after a later one."""


WRONG: Final = frozenset(
    {CommitStatus.MISSING, CommitStatus.OTHER, CommitStatus.DOUBLED, CommitStatus.MISPLACED}
)


class Finding(NamedTuple):
    """One decision, and its state in the table."""

    decision: int
    status: CommitStatus
    snapshots: tuple[SnapshotRef, ...]
    digest: str
    logged: LoggedDecision | None = None
    """None: the log begins after it."""


class Foreign(NamedTuple):
    """A commit under the stream's commit user that is no decision of its log."""

    decision: int
    snapshot: SnapshotRef
    digest: str


class Comparison:
    """One reading of a table's history, queried decision by decision."""

    def __init__(self, history: TableHistory, commit_user: str, table: str = "") -> None:
        """`table`: the name of a further table; empty for the anchor."""
        self.history = history
        self.table = table
        self._ours: dict[int, list[PastSnapshot]] = defaultdict(list)
        self._others: dict[str, list[PastSnapshot]] = defaultdict(list)
        for past in reversed(history.commits):
            if past.commit_user == commit_user:
                self._ours[past.decision].append(past)
            elif past.digest:
                self._others[past.digest].append(past)
        # Decisions begin with 1. A commit with a lower id is foreign, and orders nothing.
        ours = {number: held for number, held in self._ours.items() if number > 0}
        made = [number for number, held in ours.items() if any(past.digest for past in held)]
        # A commit without a digest was made by another job, so its id proves nothing.
        self.oldest = min(made, default=None)
        self.newest = max(ours, default=None)
        self._asked: set[int] = set()
        self._misplaced = _misplaced(ours)

    def concerns(self, logged: LoggedDecision) -> bool:
        """True if a decision belongs into this table, or is in it since it was built again from the log."""
        if not self.table or logged.touches(self.table, self.history.identity):
            return True
        held = self._ours.get(logged.decision.id, ())
        return self.table in logged.decision.tables and any(each.digest in logged.digests for each in held)

    def has(self, decision: int) -> bool:
        """True if the readable history has a commit of this id under the stream's commit user."""
        return decision in self._ours

    def snapshot_of(self, decision: int) -> SnapshotRef | None:
        """Return the newest snapshot of a decision; None if the readable history has none."""
        held = self._ours.get(decision)
        return held[-1].ref if held else None

    def judge(self, logged: LoggedDecision) -> Finding:
        """Find the state of a decision in the table."""
        number, digests = logged.decision.id, logged.digests
        self._asked.add(number)
        held = self._ours.get(number, [])
        matching = [past for past in held if past.digest in digests]
        elsewhere = [past for digest in digests for past in self._others.get(digest, [])]
        found = tuple(past.ref for past in (*held, *elsewhere))
        if len(matching) < len(held):
            other = next(past.digest for past in held if past.digest not in digests)
            return Finding(number, CommitStatus.OTHER, found, other, logged)
        if len(found) > 1:
            return Finding(number, CommitStatus.DOUBLED, found, digests[0], logged)
        if found:
            status = CommitStatus.MISPLACED if number in self._misplaced else CommitStatus.THERE
            return Finding(number, status, found, digests[0], logged)
        if logged.outcome is None:
            return Finding(number, CommitStatus.UNRESOLVED, (), digests[0], logged)
        if logged.leaves_out(self.table):
            return Finding(number, CommitStatus.LEFT_OUT, (), digests[0], logged)
        return Finding(number, self._absent(number), (), digests[0], logged)

    def _absent(self, number: int) -> CommitStatus:
        # The history has no gap, and ids of one commit user only rise along it.
        if self.history.whole or (self.oldest is not None and self.oldest < number):
            return CommitStatus.MISSING
        return CommitStatus.UNKNOWN if self.oldest is None else CommitStatus.EXPIRED

    def lost(self, decisions: Iterable[int]) -> list[Finding]:
        """Return those decisions that are provably absent, although only their ids are known."""
        return [
            Finding(number, CommitStatus.MISSING, (), "")
            for number in decisions
            if number not in self._ours and self._absent(number) is CommitStatus.MISSING
        ]

    def foreign(self, first: int, last: int | None) -> list[Foreign]:
        """Return commits under the stream's commit user that were never judged, from `first` to `last`.

        An id below 1 is of no decision, so it is in every range.
        `last` None: up to the newest commit.
        """
        return [
            Foreign(number, past.ref, past.digest)
            for number, held in sorted(self._ours.items())
            if number not in self._asked
            and (number >= first or number < 1)
            and (last is None or number <= last)
            for past in held
        ]


def _misplaced(ours: Mapping[int, Sequence[PastSnapshot]]) -> frozenset[int]:
    """Return the decisions that a history has after a later one. `ours`: their commits, by id."""
    found, highest = set[int](), 0
    made = sorted((past.ref.id, number) for number, held in ours.items() for past in held if past.digest)
    for _, number in made:
        if number < highest:
            found.add(number)
        highest = max(highest, number)
    return frozenset(found)


# Orphan events: events of a stream whose files no commit will ever include, by the log. They are
# `files.written`, and completions that carry files.
#
# Pure. There are two kinds, and no later record can change either. A *loser* is an attempt of a checkpoint
# at or before the committed position, which the commit does not name. A *discarded* event is of an
# incarnation that has ended for good.


class Arrival(NamedTuple):
    """One event of the log that has files."""

    offset: int
    time: int
    event: str
    region: str
    incarnation: str
    checkpoint: int
    writer: str
    table: str = ""
    """Name of the further table that its files are for; empty: the anchor."""


class Orphan(NamedTuple):
    """An event that no commit will ever include."""

    arrival: Arrival
    reason: str
    since: int
    """Append time in milliseconds of the record that settled it, or of the event itself if that is later."""


_MAY_END = frozenset(
    {
        EventType.REGION_REGISTERED,
        EventType.STREAM_COMMAND,
        EventType.CUT_DECIDED,
        EventType.CUT_REVERTED,
    }
)
"""Events that end incarnations, or bring one back."""


class Verdict(NamedTuple):
    """Verdict on a file that no event names: may its checkpoint still be committed?"""

    reason: str
    since: int | None
    """Append time in milliseconds of the record that settled it; None: the file may not be deleted."""


_HOUR: Final = 3_600_000
"""Milliseconds. Commits of one hour count as the last of them, so that a long log needs little memory."""


class OrphanEvents:
    """The events of a log that no commit has included so far, and verdicts on files without an event."""

    def __init__(self, start: LogState) -> None:
        """Make them for a log that is read from a state on."""
        self._start = start
        self._open: dict[tuple[str, str], dict[int, list[Arrival]]] = defaultdict(dict)
        """By region and incarnation, then by checkpoint: events that are neither winners nor known losers."""
        self._losers: list[Orphan] = []
        self._ended: dict[str, int] = {}
        """By incarnation, the append time of the record that ended it, in milliseconds."""
        self._lives: dict[str, dict[str, str]] = defaultdict(dict)
        """By the part of their ids that file names state, the regions of all incarnations."""
        self._commits: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """By incarnation, its committed positions, each with the append time of its outcome."""
        self._outcomes: list[tuple[int, int]] = []
        """Decisions with an outcome, each with the append time of it."""
        self._begun = False
        """True once a record was read that the state at the start does not include."""

    def note(self, step: Step, state: LogState) -> None:
        """Apply the effect of one record; `state` is the state after it."""
        record, envelope = step.record, step.record.envelope
        if step.fresh and not self._begun:
            self._begun = True
            self._note_ended(self._start, record.time)
            self._note_start(record.time)
        if envelope.writer and (step.fresh or self._is_pending(step)):
            checkpoints = self._open[envelope.region, envelope.incarnation]
            arrival = Arrival(
                record.offset,
                record.time,
                envelope.id,
                envelope.region,
                envelope.incarnation,
                envelope.checkpoint,
                envelope.writer,
                envelope.table,
            )
            checkpoints.setdefault(envelope.checkpoint, []).append(arrival)
        elif envelope.type in _MAY_END and step.fresh:
            self._note_ended(state, record.time)
            if (life := state.regions.get(envelope.region, RegionState()).incarnation) is not None:
                self._lives[stated_incarnation(life.id)][life.id] = envelope.region
        if step.settled is not None:
            _add_hourly(self._outcomes, step.settled.decision.id, record.time)
            if isinstance(step.settled.outcome, CutCommitted):
                self._commit(step.settled, record.time)

    def _note_ended(self, state: LogState, time: int) -> None:
        """Note the incarnations that have ended. The state forgets them; their events stay orphans."""
        for each in state.ended:
            self._ended.setdefault(each, time)
        for each in state.former.suspended if state.former is not None else ():
            # A revert has brought it back.
            self._ended.pop(each, None)

    def _note_start(self, time: int) -> None:
        """Note the incarnations of the state before the first record."""
        for life, region in self._start.ended.items():
            self._lives[stated_incarnation(life)][life] = region or ""
        self._outcomes.append((resolved(self._start), time))
        former = self._start.former.regions if self._start.former is not None else {}
        for name, each in (*former.items(), *self._start.regions.items()):
            if each.incarnation is not None:
                self._lives[stated_incarnation(each.incarnation.id)][each.incarnation.id] = name

    def judge(self, stated: str, checkpoint: int, state: LogState) -> Verdict:
        """Return whether a file that no event names may be deleted, by all that its name states.

        `stated` is the part of an incarnation that the name has; several incarnations may begin alike.
        `state` is the state as far as the log has been read.
        """
        found = Verdict(f"the log has no incarnation that begins with {stated}", None)
        ended = _ended_for_good([*self._ended, *state.ended], state)
        for life, name in self._lives.get(stated, {}).items():
            # The event of a winner may be deleted, and a tag of the catalog or a clone may have the file.
            if life in self._start.ended:
                return Verdict(f"the log begins after incarnation {life} has ended", None)
            if reaches(_committed(self._start, name), life, checkpoint):
                return Verdict(
                    f"the log begins after checkpoint {checkpoint} of region {name} was committed", None
                )
            # An id that was forgotten may live again.
            live = state.regions.get(name, RegionState()).live_incarnation == life
            if life in ended and not live and not _may_be_included(state, name, life, checkpoint):
                each = Verdict(f"incarnation {life} of region {name} has ended", self._ended.get(life))
            elif reaches(_committed(state, name), life, checkpoint):
                each = Verdict(
                    f"checkpoint {checkpoint} of region {name} was committed without it",
                    self._committed_since(life, checkpoint),
                )
            else:
                return Verdict(f"checkpoint {checkpoint} of region {name} may still be committed", None)
            if each.since is None:
                return each
            found = max(found, each, key=lambda verdict: verdict.since or 0)
        return found

    def judge_draft(self, decision: int) -> Verdict:
        """Return whether a draft of a decision may be deleted, as far as the log has been read.

        An attempt that was abandoned has no decision id. So each id in the log gets its outcome.
        """
        since = _since(self._outcomes, decision)
        return Verdict(
            f"decision {decision} has {'no' if since is None else 'its'} outcome in the log", since
        )

    def _committed_since(self, life: str, checkpoint: int) -> int | None:
        """Return the append time of an outcome with a position at or after a checkpoint of an incarnation."""
        return _since(self._commits.get(life, ()), checkpoint)

    def orphans(self, state: LogState) -> Iterator[Orphan]:
        """Yield the orphans, as far as the log has been read; `state` is the state there."""
        yield from self._losers
        ended = _ended_for_good([*self._ended, *state.ended], state)
        for (name, incarnation), checkpoints in self._open.items():
            for number, arrivals in checkpoints.items():
                reason, since = None, 0
                if reaches(_committed(state, name), incarnation, number):
                    # It arrived after the decision, which named others.
                    reason = f"checkpoint {number} of region {name} was committed without it"
                elif incarnation in ended and not _may_be_included(state, name, incarnation, number):
                    reason = f"incarnation {incarnation} of region {name} has ended"
                    since = self._ended.get(incarnation, 0)
                for arrival in arrivals if reason is not None else ():
                    yield Orphan(arrival, reason or "", max(since, arrival.time))

    def _is_pending(self, step: Step) -> bool:
        """True if an event that the state before the first record includes was in no decision then."""
        envelope, state = step.record.envelope, self._start
        if envelope.incarnation in state.ended:
            return False
        return not reaches(_committed(state, envelope.region), envelope.incarnation, envelope.checkpoint)

    def _commit(self, settled: LoggedDecision, time: int) -> None:
        """Split the events of a commit's checkpoints into winners, which are dropped here, and losers."""
        winners, number = frozenset(settled.decision.parts), settled.decision.id
        for name, to in settled.decision.moves.items():
            _add_hourly(self._commits[to.incarnation], to.checkpoint, time)
            checkpoints = self._open.get((name, to.incarnation), {})
            for checkpoint in [each for each in checkpoints if each <= to.checkpoint]:
                reason = f"decision {number} committed checkpoint {checkpoint} of region {name} without it"
                for arrival in checkpoints.pop(checkpoint):
                    if arrival.offset not in winners:
                        self._losers.append(Orphan(arrival, reason, max(time, arrival.time)))


def _add_hourly(times: list[tuple[int, int]], number: int, time: int) -> None:
    """Add a number that rises, with its time. It replaces one of the same hour."""
    if times and times[-1][1] // _HOUR == time // _HOUR:
        times.pop()
    times.append((number, time))


def _since(times: Iterable[tuple[int, int]], number: int) -> int | None:
    """Return the time of the first number at or after another one; None if there is none."""
    return next((time for each, time in times if each >= number), None)


def resolved(state: LogState) -> int:
    """Return the id of the newest decision with an outcome; 0 if there is none."""
    return state.decided - (state.unresolved is not None)


def _committed(state: LogState, name: str) -> Position | None:
    """Return the region's committed position: a revert may take the one of the open decision back."""
    regions = state.unresolved.before.regions if state.unresolved is not None else state.regions
    region = regions.get(name)
    return region.position if region is not None else None


def _ended_for_good(ended: Iterable[str], state: LogState) -> set[str]:
    """Return those of the ended incarnations that neither a withdrawal nor a revert can bring back."""
    former = [state.former, state.unresolved.before.former if state.unresolved is not None else None]
    return {*ended}.difference(*(each.suspended for each in former if each is not None))


def _may_be_included(state: LogState, name: str, incarnation: str, number: int) -> bool:
    """True if a checkpoint of an ended incarnation is in the open decision, or may enter a later one."""
    made, region = state.unresolved, state.regions.get(name)
    if made is not None and reaches(made.moves.get(name), incarnation, number):
        return True
    # Sealed checkpoints of a removed region are still committed, up to its final one.
    if region is None or region.incarnation is None or region.incarnation.id != incarnation:
        return False
    return region.removed and region.final is not None and number <= region.final
