"""Effects of the core, and their results, as data.

Effects that are handed out together are independent. One that depends on a result is handed out after it. So
the order of a commit is: ask, publish, append the outcome, record, announce, view, offsets. After a crash,
each effect may be repeated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import ClassVar, Final, NamedTuple

from sluicegate.coordinator.core.state_record import Condition, Due, StateRecord
from sluicegate.events.envelope import EventType
from sluicegate.events.files import is_inside
from sluicegate.events.models import (
    Body,
    FurtherTable,
    KnownTable,
    Position,
    SingleRegionReason,
    SnapshotRef,
    StreamPolicy,
)
from sluicegate.events.problems import Cause, Code, Problem
from sluicegate.lakes.port import Answer, OutcomeUnknown, Publication, Refused, TableState

# Settings of the core; whoever runs it reads them. Times are in milliseconds.


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """Settings of one stream's machine."""

    policy: StreamPolicy
    """The policy to be logged; its number is ignored."""
    commit_interval: int = 0
    """Shortest time between two decisions, unless one of the maxima is reached; 0: decide at once."""
    commit_max_files: int | None = None
    """Number of sealed files at which a cut is due at once."""
    commit_max_bytes: int | None = None
    """Size of the sealed files at which a cut is due at once."""
    alignment_timeout: int = 10_000
    """Time that a due cut waits for lagging regions whose answer is not known."""
    alignment_timeouts: Mapping[str, int] = field(default_factory=dict)
    """The same for single regions."""
    silence: int = 60_000
    """Time without an event after which a driver is silent, unless its heartbeats are rarer."""
    record_interval: int = 3_600_000
    """Time after which a record is written although nothing was announced."""
    head_interval: int = 60_000
    """Time between two questions about the head of an idle table; at most a quarter of its retention."""
    freeze: int = 1_000
    """A longer time between two polls means that the process stood still."""
    first_pause: int = 50
    longest_pause: int = 10_000
    stall_pause: int = 15_000
    """Time between two checks of a stalled stream."""
    stall_after: int = 30_000
    """Time of failures of an effect that is a stall."""
    overdue_after: int = 10_000
    """Time after which a lack of a completed checkpoint is a stall of its region."""
    max_position_age: int = 3_600_000
    """Time for which a region falls back, after which that is a condition."""

    def policy_to_log(
        self,
        logged: StreamPolicy,
        single_region: SingleRegionReason | None,
        tables: Mapping[str, FurtherTable | str],
        known: Mapping[str, KnownTable],
    ) -> StreamPolicy | None:
        """Return the policy of these settings and of the tables, if the log has another one.

        `tables`: the further ones of the settings, as the catalog has them, or why one cannot be used. Of one
        that is unusable now, was made again, or is one of the others that are known, the log keeps what it
        has. `known`: the registry.
        """
        held = _logged_tables(logged, known)
        named = {
            name: held.get(name)
            if isinstance(found, str) or refused_name(name, found, logged, known) is not None
            else found
            for name, found in tables.items()
        }
        changes: dict[str, object] = {"number": logged.number + 1}
        changes["tables"] = {name: each for name, each in named.items() if each is not None}
        if single_region is not None:
            changes["single_region"] = single_region
        wanted = self.policy.model_copy(update=changes)
        same = wanted == logged.model_copy(update={"number": wanted.number})
        return None if same and logged.number else wanted


def _logged_tables(logged: StreamPolicy, known: Mapping[str, KnownTable]) -> Mapping[str, FurtherTable]:
    """Return the tables that the log names; before its first policy, those of an adopted account."""
    return logged.tables if logged.number else {name: own.terms for name, own in known.items()}


def refused_name(
    name: str, found: FurtherTable, logged: StreamPolicy, known: Mapping[str, KnownTable]
) -> str | None:
    """Return the name that stands against a further table of the settings; None if it may be logged.

    Its own: that was another table before. Another one: that is the same table, or has its folder.
    """
    held = _logged_tables(logged, known)
    if name in held and held[name].identity != found.identity:
        return name
    others = (each for each, own in known.items() if each != name and own.terms.identity == found.identity)
    beside = (
        each
        for each, own in held.items()
        if each != name
        and (is_inside(found.location, own.location) or is_inside(own.location, found.location))
    )
    return next(chain(others, beside), None)


class Effect:
    """A request to the shell, as data."""

    kind: ClassVar[str]
    """One word, as logs, metrics and status name it."""


@dataclass(frozen=True, slots=True)
class InspectTable(Effect):
    """Check that the table is in scope, and read its state. Result: TableState, TableUnfit or Failed."""

    kind = "inspect"


@dataclass(frozen=True, slots=True)
class FetchEnd(Effect):
    """Fetch the end offset of the partition. Result: EndOffset or Failed."""

    kind = "fetch_end"


@dataclass(frozen=True, slots=True)
class CheckFiles(Effect):
    """Check that the table would take the files of these events.

    Result: FilesChecked, TableReplaced or Failed.
    """

    kind = "check"
    parts: Mapping[str, tuple[int, ...]]
    """By region, offsets of the events with files that a cut would take."""
    allowed_locations: tuple[str, ...]
    table: str
    names_checked: bool
    tables: Mapping[str, KnownTable] = field(default_factory=dict)
    """The further tables that the cut would touch."""
    touched: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By region, the names of those that its part of the cut would touch."""
    moves: Mapping[str, Position] = field(default_factory=dict)
    """By region, how far the cut would move it, with events that were checked before."""


@dataclass(frozen=True, slots=True)
class Append(Effect):
    """Append an event of the coordinator to the log. Result: Appended or Failed (it may be in the log)."""

    kind = "append"
    type: EventType
    body: Body
    region: str = ""
    incarnation: str = ""


NO_DIGEST: Final = ""
"""In place of a digest, in a question about the next decision: it is expected to be absent."""


@dataclass(frozen=True, slots=True)
class Ask(Effect):
    """Ask the table whether it has a decision. Result: an Answer of the port, or Failed."""

    kind = "ask"
    decision: int
    digest: str
    table: str
    known: SnapshotRef | None
    """A head that no commit of this decision precedes; None: the table was empty."""
    tables: Mapping[str, KnownTable] = field(default_factory=dict)
    """Further tables that the decision touches. They are asked once the anchor has it."""
    left_out: frozenset[str] = frozenset()
    """Those that the newest policy leaves out: one that cannot be asked is no obstacle."""
    undo: bool = False
    """True: an order gives it up. They are asked even if the anchor lacks it, and none has to answer."""


@dataclass(frozen=True, slots=True)
class Publish(Effect):
    """Commit on exactly the head that was asked. Result: a Publication of the port.

    Published is also the result if this very commit, made by another process, follows that head already.
    """

    kind = "publish"
    decision: int
    digest: str
    head: SnapshotRef | None
    watermark: int | None
    offsets: tuple[int, ...]
    allowed_locations: tuple[str, ...]
    names_checked: bool
    tables: Mapping[str, KnownTable] = field(default_factory=dict)
    """The further tables of the stream, as of the decision before."""
    offsets_of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By name, which of the offsets are for those that get files. With `apart`, only those that lack it."""
    apart: bool = False
    """True: the anchor has the decision, and is not changed."""
    left_out: frozenset[str] = frozenset()
    """Those that the newest policy leaves out: one that is not there is passed over."""


@dataclass(frozen=True, slots=True)
class WriteRecord(Effect):
    """Write the state record. Result: Done or Failed."""

    kind = "record"
    record: StateRecord


@dataclass(frozen=True, slots=True)
class Announce(Effect):
    """Append a notification to the commits topic. Result: Done or Failed."""

    kind = "announce"
    due: Due


@dataclass(frozen=True, slots=True)
class WriteView(Effect):
    """Write the stream's view to the state store, atomically. Result: Done or Failed."""

    kind = "view"
    record: StateRecord


@dataclass(frozen=True, slots=True)
class ReleaseOffsets(Effect):
    """Set the group's offset to the smallest one that the partition still needs. Result: Done or Failed."""

    kind = "offsets"


@dataclass(frozen=True, slots=True)
class Done:
    """The effect is durable."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The effect was not seen to succeed; it may have."""

    reason: str = ""
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class TableUnfit:
    """The table is out of scope, or unusable until somebody changes it."""

    reason: str


@dataclass(frozen=True, slots=True)
class EndOffset:
    """The offset after the last record of the partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The event is in the log at this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class FilesChecked:
    """Regions whose files cannot be committed now, or not all of them; empty if all can."""

    problems: dict[str, Problem]
    """By region, the reason."""
    upto: Mapping[str, Position] = field(default_factory=dict)
    """By region, the last checkpoint that fits into the commit."""
    left: frozenset[int] = frozenset()
    """Offsets that were not checked, because they do not fit."""


Result = Done | Failed | TableState | TableUnfit | EndOffset | Appended | FilesChecked | Answer | Publication


def failure_of(result: Result) -> Failed | OutcomeUnknown | Refused | None:
    """Return a result after which the effect is tried again; None for others."""
    if isinstance(result, Failed | OutcomeUnknown) or (isinstance(result, Refused) and result.again):
        return result
    return None


# Retries: slots for effects in flight, and the failures that count as a stall after a while.

OPTIONAL: Final = frozenset({"view", "offsets"})
"""Nothing depends on these, so their failures never stall a stream."""
_STEPS: Final = 1024


class RetrySlot:
    """At most one effect in flight, with growing pauses after failures."""

    def __init__(self, name: str, first_pause: int, longest_pause: int) -> None:
        self._name = name
        self._first = first_pause
        self._longest = longest_pause
        self._pauses = self._failures = 0
        self.running: Effect | None = None
        self.resume_at = 0
        """Nothing starts before this time, in milliseconds."""

    def is_free(self, now: int) -> bool:
        """True if an effect may start."""
        return self.running is None and now >= self.resume_at

    def succeeded(self) -> None:
        """Note that the effect in flight has ended."""
        self.running, self._failures = None, 0

    def failed(self, now: int) -> None:
        """Note that the effect in flight failed; pause twice as long as the time before."""
        self.running = None
        self.pause(now, min(self._first * 2 ** min(self._failures, 16), self._longest))
        self._failures += 1

    def pause(self, now: int, length: int) -> None:
        """Start nothing for that many milliseconds, or up to a quarter less.

        Streams that share a store would otherwise all return to it at the same moment. The core has no
        randomness, so the spread follows from the name.
        """
        self._pauses += 1
        drawn = blake2b(f"{self._name}/{self._pauses}".encode(), digest_size=2).digest()
        spread = int.from_bytes(drawn, "big") % _STEPS
        self.resume_at = now + length - length * spread // (4 * _STEPS)


class _Retry(NamedTuple):
    """Failures of one kind of effect since its last success."""

    problem: Problem
    since: int
    failures: int
    stalls: bool = False


class Retries:
    """Effects that failed and are tried again, by kind."""

    def __init__(self, stall_after: int) -> None:
        """`stall_after`: milliseconds of failures that count as a stall."""
        self._stall_after = stall_after
        self._open: dict[str, _Retry] = {}

    def finished(self, effect: Effect, result: Result, now: int) -> None:
        """Note a result."""
        kind, failure = effect.kind, failure_of(result)
        if failure is None:
            self.ended(kind)
            return
        problem = Problem(code=Code.RETRYING, names=(kind,), cause=failure.cause, detail=failure.reason)
        known = self._open.get(kind, _Retry(problem, now, 0))
        lasts = now - known.since >= self._stall_after and kind not in OPTIONAL
        self._open[kind] = _Retry(problem, known.since, known.failures + 1, lasts)

    def ended(self, *kinds: str) -> None:
        """Note that these succeeded, or are not needed any more."""
        for kind in kinds:
            self._open.pop(kind, None)

    @property
    def stall(self) -> Problem | None:
        """Return the stall of the effect that has failed for longest; None if none stalls the stream."""
        return next((each.problem for each in self.conditions() if each.kind == "stall"), None)

    def conditions(self) -> list[Condition]:
        """Return one condition for each kind that failed more than once, the oldest first."""
        return [
            Condition(kind="stall" if each.stalls else "retry", problem=each.problem, retry_in=0)
            for each in self._open.values()
            if each.failures > 1
        ]
