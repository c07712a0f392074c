"""The view of a stream for people and programs: `sluicegate status`, `/status`, the page, and Redis.

It is derived from a state record, and its figures from the log as one coordinator has it. Nothing is decided
from it.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sluicegate.coordinator.core.activity import HEARTBEATS, is_silent
from sluicegate.coordinator.core.log import Checkpoint, Log
from sluicegate.coordinator.core.savepoints import unreached
from sluicegate.coordinator.core.state import Decline, LogState, RegionState
from sluicegate.coordinator.core.state_record import Condition, StateRecord
from sluicegate.coordinator.observe.messages import Message, duration, fill, format_problem, iso_time
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.events.models import SLOW_CODES
from sluicegate.events.problems import Code, Problem
from sluicegate.state_store import (
    AssignmentView,
    ConditionView,
    FurtherTableView,
    ListenerView,
    PendingView,
    ProblemView,
    RegionView,
    SavepointView,
    StreamView,
    WaitingView,
)
from sluicegate.texts import counted

# Figures about the pending work of one stream.


def pending_files(log: Log) -> int:
    """Return the number of files that are in no decision."""
    return sum(entry.files for _, entry in _checkpoints(log))


def pending_bytes(log: Log) -> int:
    """Return the size of the files that are in no decision, by the events' own counts."""
    return sum(part.bytes for _, entry in _checkpoints(log) for part in entry.parts.values())


def oldest_unsealed(log: Log) -> int | None:
    """Return the append time of the first event of the oldest checkpoint that is not sealed."""
    sealed = {(name, each.position.checkpoint) for name in log.pending for each in log.sealed(name)}
    times = (
        entry.first_time
        for name, found in log.pending.items()
        for number, entry in found.checkpoints.items()
        if (name, number) not in sealed
    )
    return min(times, default=None)


def oldest_sealed(log: Log) -> int | None:
    """Return the time since when the oldest sealed checkpoint is in no decision."""
    return min((each.time for name in log.pending for each in log.sealed(name)), default=None)


def oldest_completed(log: Log) -> int | None:
    """Return the append time of the newest event of the oldest completed checkpoint in no decision."""
    times = (entry.last_time for _, entry in _checkpoints(log) if entry.body is not None)
    return min(times, default=None)


def is_single_region(log: Log) -> bool:
    """True if all writers of the stream are one failure domain."""
    return log.state.policy.single_region is not None


def _checkpoints(log: Log) -> Iterator[tuple[str, Checkpoint]]:
    for name, found in log.pending.items():
        for entry in found.checkpoints.values():
            yield name, entry


# The view of a stream, derived from its state record alone.
#
# A coordinator makes the record from its current state. Without a coordinator, the last written one is
# used. The record's conditions are the one answer to the question why a stream does not progress.

NOT_READ: Final = frozenset(
    {
        *(Code.EVENTS_LIMITED, Code.RECORD_UNREADABLE, Code.SKIPPED_LATE, Code.LOG_DISCONTINUOUS),
        *(Code.STATE_RECORD_NEWER, Code.STATE_RECORD_MALFORMED),
        *(Code.OTHER_PARTITION, Code.OTHER_COMMIT_USER),
    }
)
"""Conditions of a stream whose newest events are not read yet: nothing is known of its drivers."""


def view_of(
    record: StateRecord,
    settings: StreamSettings | None,
    as_of: int,
    listeners: Mapping[str, ListenerView] = MappingProxyType({}),
) -> StreamView:
    """Return the view of a stream; `as_of` is the time of the record in Unix milliseconds.

    `settings` None: those at hand do not have the stream.
    """
    state, stream, policy = record.state, record.stream, record.state.policy
    names = sorted({*state.regions, *(state.assignment.regions if state.assignment else ())})
    seconds = settings.silence if settings else StreamSettings.model_fields["silence"].default
    cut = {name: state.committed(name).position for name in names}
    silent = silent_regions(
        state, record.heard, record.intervals, record.conditions, as_of, round(seconds * 1000)
    )
    absent = _absent(state, silent)
    return StreamView(
        stream=stream,
        revision=record.applied,
        updated_at=as_of,
        low_water=record.low_water,
        commit_user=settings.commit_user if settings else record.commit_user,
        table=settings.table if settings else None,
        table_identity=record.table.identity or state.table,
        table_head=record.table.head,
        owner=(settings.owner or None) if settings else None,
        decided=state.decided,
        committed=committed_decision(state),
        pending=_pending(state),
        snapshot=state.snapshot,
        tables=further_tables(state),
        cut={name: at for name, at in cut.items() if at is not None},
        decided_cut=state.cut,
        partial=policy.partial if policy.number else None,
        # The attempt is abandoned at once for a region that is absent.
        forced_by=() if absent else tuple(_forced_by(state)),
        absent=absent,
        max_consecutive_fallbacks=policy.max_consecutive_fallbacks if policy.number else None,
        waiting={name: WaitingView(**each.model_dump()) for name, each in record.waiting.items()},
        single_region=policy.single_region or record.table.single_region,
        savepoints=tuple(
            SavepointView(
                name=each.name,
                drain=each.drain,
                targets=each.targets,
                unreached=tuple(unreached(state, each)),
            )
            for each in state.savepoints
        ),
        watermark=committed_watermark(state),
        assignment=AssignmentView(**state.assignment.model_dump()) if state.assignment else None,
        next_assignment_after=_next_after(state),
        regions={name: _region(record, name) for name in names},
        silent=silent,
        strangers={
            name: _problem(why, stream) for name, why in sorted(record.refused.items()) if name not in names
        },
        listeners=dict(listeners),
        conditions=tuple(_condition(each, stream) for each in _distinct(record.conditions)),
        paused=state.paused,
    )


def further_tables(state: LogState) -> dict[str, FurtherTableView]:
    """Return the further tables of the policy, as of the newest outcome."""
    known = {name: state.tables[name] for name in sorted(state.policy.tables)}
    return {
        name: FurtherTableView(
            identifier=each.terms.identifier,
            identity=each.terms.identity,
            location=each.terms.location,
            decision=each.newest.decision,
            snapshot=each.newest.snapshot,
        )
        for name, each in known.items()
    }


def committed_decision(state: LogState) -> int:
    """Return the newest decision that has an outcome; 0: none has."""
    return state.decided if state.unresolved is None else state.unresolved.id - 1


def committed_watermark(state: LogState) -> int | None:
    """Return the stream's watermark without the decision that has no outcome yet."""
    return state.watermark if state.unresolved is None else state.unresolved.before.watermark


def silent_regions(
    state: LogState,
    heard: Mapping[str, int],
    intervals: Mapping[str, int],
    conditions: Iterable[Condition],
    as_of: int,
    silence: int,
) -> tuple[str, ...]:
    """Return the silent regions, sorted; `silence` as of `is_silent`, in milliseconds."""
    # The newest events of such a stream are not read, so its drivers may be alive.
    if any(each.problem.code in NOT_READ for each in conditions):
        return ()
    return tuple(
        name
        for name, region in sorted(state.regions.items())
        if name in heard
        and not region.has_ended
        and is_silent(region, intervals.get(name), as_of - heard[name], silence)
    )


def _distinct(conditions: Iterable[Condition]) -> Iterable[Condition]:
    """Return the conditions; a problem that several have is listed once.

    A stall also refuses registrations, for the same problem.
    """
    found: dict[str, Condition] = {}
    for each in conditions:
        found.setdefault(each.problem.identity, each)
    return found.values()


def _next_after(state: LogState) -> int | None:
    """Return the value for `assignment.after` of the next assignment; None while the current one lasts."""
    lasts = state.assignment is None or state.unresolved is not None or any(True for _ in state.active())
    return None if lasts else state.decided


def _forced_by(state: LogState) -> list[str]:
    """Return the regions that may not fall back again, so that the next commit is full."""
    policy = state.policy
    if policy.partial == "never":
        return []
    most = policy.max_consecutive_fallbacks
    return [name for name in state.active() if state.region(name).fallbacks >= most]


def _absent(state: LogState, silent: Container[str]) -> tuple[str, ...]:
    """Return the regions for which no commit waits although it could move them; all commits may be full."""
    policy, assignment = state.policy, state.assignment
    if policy.partial == "never" or policy.single_region is not None:
        return ()
    if assignment is None or assignment.provisional:
        return ()
    regions = {name: state.region(name) for name in state.active()}
    return tuple(
        name for name, region in regions.items() if not region.idle and (name in silent or region.is_absent)
    )


def _pending(state: LogState) -> PendingView | None:
    made = state.unresolved
    if made is None:
        return None
    return PendingView(
        decision=made.id,
        files=made.files,
        regions=tuple(sorted(made.moves)),
        fallbacks=tuple(sorted(made.fallbacks)),
        revert_of=made.revert.region if made.revert else None,
    )


def _condition(condition: Condition, stream: str) -> ConditionView:
    problem = condition.problem
    return ConditionView(
        kind=condition.kind,
        region=problem.region,
        table=problem.table,
        retry_in=condition.retry_in,
        **_problem(problem, stream).model_dump(),
    )


def _problem(problem: Problem, stream: str) -> ProblemView:
    return ProblemView(
        code=problem.code.value,
        message=format_problem(problem, stream),
        arguments=problem.model_dump(mode="json", exclude={"code", "region"}, exclude_defaults=True),
    )


def _failed(declined: Decline | None) -> int | None:
    """Return the time of a decline with an error; None: there is none, or the checkpoint is only slow."""
    return None if declined is None or declined.code in SLOW_CODES else declined.at


def _region(record: StateRecord, name: str) -> RegionView:
    state = record.state
    region, before = state.regions.get(name, RegionState()), state.committed(name)
    refused = record.refused.get(name)
    return RegionView(
        phase=region.phase.value,
        assigned=state.assignment is not None and name in state.assignment.regions,
        ended=region.has_ended and state.unresolved_of(name) is None,
        idle=region.idle,
        stalled=_problem(region.fault, record.stream) if region.fault else None,
        failed=_failed(region.declined),
        refused=_problem(refused, record.stream) if refused else None,
        incarnation=region.live_incarnation,
        base=region.incarnation.base if region.incarnation else None,
        final=region.final,
        source_offsets=before.source_offsets,
        watermark=before.watermark,
        consecutive_fallbacks=0 if region.ends else region.fallbacks,
        moved=region.moved_at,
        heard=record.heard.get(name),
        heartbeat_interval=record.intervals.get(name),
        listeners=before.listeners,
    )


# Reasons why a stream does not progress, for the live page and for `sluicegate status`: one for each cause,
# in one order. A driver that has failed is also silent, and commits wait for it: that is one cause.

RANKS: Final[Mapping[str, int]] = {
    "stall": 0,
    "refusal": 1,
    "failed": 2,
    "silent": 3,
    "late": 4,
    "retry": 5,
    "letter": 6,
    "pause": 7,
    "wait": 8,
}
"""Kinds of reasons; the gravest has rank 0."""

SILENT: Final = Message(
    "Region {region} of stream {stream} is silent",
    "its last event is of {heard}, and a heartbeat is due every {interval}. Its driver has ended, or its "
    "host does not reach Kafka[. It left checkpoint {checkpoint} unfinished: {events} published, no "
    "completion][. The commits of {waits} wait for the region]",
    "Start its driver again. If that is refused, its log has the way out[. If the region has ended for good: "
    "`sluicegate region remove --stream {stream} --region {ended}`]",
)
FAILED: Final = Message(
    "Region {region} of stream {stream} has failed",
    "its driver has given up checkpoint {checkpoint} ({code})[: {detail}][. Its last event is of {heard}]"
    "[. The commits of {waits} wait for the region]",
    "Remove the cause, and start its driver again[. If the region has ended for good: `sluicegate region "
    "remove --stream {stream} --region {ended}`]",
)
LONG_SILENCE: Final = 10
"""Multiple of the silence after which a region counts as silent. Before, no reason advises to remove it."""


LETTERS: Final = Message(
    "Stream {stream} has {count} that could not be used",
    "the newest is at {source}. {reason}",
    "Look at it with `sluicegate dead-letters show --offset {offset}`. Correct the program that sent it. If "
    "the message can be used then, send it again with `sluicegate dead-letters retry --offset {offset}`; "
    "else give it up with `sluicegate dead-letters drop --offset {offset}`",
)


class Reason(NamedTuple):
    """One reason."""

    kind: str
    code: str
    message: str
    region: str | None = None
    """None: it concerns the whole stream."""
    since: int | None = None
    """Time of its beginning in Unix milliseconds; None: not known."""


class Unfinished(NamedTuple):
    """The newest checkpoint of a region whose files are published, and that nobody has completed."""

    checkpoint: int
    events: int


def in_order(reasons: Iterable[Reason]) -> list[Reason]:
    """Return the reasons, the gravest first; those of one kind keep their order."""
    return sorted(reasons, key=lambda each: RANKS.get(each.kind, RANKS["retry"]))


class Patience(NamedTuple):
    """Milliseconds after which a wait, or a silence, is a reason."""

    silence: int
    """Silence after which a region counts as silent, without regard to its heartbeats."""
    waits: Callable[[str], int]
    """The wait of a commit for a lagging region."""


def patience_of(settings: StreamSettings | None) -> Patience:
    """Return the limits of a stream; `settings` None: those at hand do not have it, and no wait is hidden."""
    if settings is None:
        return Patience(round(StreamSettings.model_fields["silence"].default * 1000), lambda _: 0)
    of_regions, usual = settings.alignment_timeouts, settings.alignment_timeout
    return Patience(round(settings.silence * 1000), lambda name: round(of_regions.get(name, usual) * 1000))


def reasons_of(
    view: StreamView,
    as_of: int,
    settings: StreamSettings | None,
    waits_since: int | None = None,
    left: Mapping[str, Unfinished] = MappingProxyType({}),
) -> list[Reason]:
    """Return why a stream does not progress, one reason for each cause, the gravest first.

    `as_of` is a time in Unix milliseconds, `settings` as of `patience_of`. `waits_since` is the time since
    when sealed work waits, if it is known; `left` has the unfinished checkpoints of silent regions.
    """
    patience = patience_of(settings)
    declined = {each.region: each for each in view.conditions if each.code == Code.DECLINED}
    waiting = next((each for each in view.conditions if each.code == Code.WAITS_FOR_REGIONS), None)
    lagging = waiting.arguments.get("names", ()) if waiting is not None else ()
    held = {name for name in lagging if name not in view.absent}
    found = [
        _silence(view, name, as_of, patience, declined.get(name), left.get(name), held=name in held)
        for name in view.silent
    ]
    failing = set[str]()
    for each in view.conditions:
        if each.code == Code.DECLINED and each.region is not None:
            word = _decline(view, each, each.region, held=each.region in held)
            found += [] if each.region in view.silent else [word]
        elif each.code != Code.WAITS_FOR_REGIONS:
            cause = str(each.arguments.get("detail", "")) if each.code == Code.RETRYING else ""
            if cause and cause in failing:
                # Several steps may fail for one cause.
                continue
            failing.add(cause)
            found.append(Reason(each.kind, each.code, each.message, each.region))
    explained = {each.region for each in found if each.region and each.kind in ("stall", "failed", "silent")}
    found = [each for each in found if each.kind != "wait" or each.region not in explained]
    if waiting is not None:
        found += _waits(view, waiting, as_of, patience, explained, waits_since)
    elif not found and settings is not None:
        found += _standstill(view, as_of, settings)
    return in_order(found)


_NOTHING: Final = (
    "the regions {regions} have completed nothing since their committed positions, and their drivers are "
    "alive: the last event is of {heard}"
)
_LOOK: Final = "If that is longer than their checkpoints take, look at them: a writer hangs, or cannot write"
_WAITS: Final = "The next commit of stream {stream} waits"

WORKING: Final = Message(_WAITS, _NOTHING, _LOOK)
STANDSTILL: Final = Message("Stream {stream} has committed nothing for {age}", _NOTHING, _LOOK)
UNSTARTED: Final = Message(
    _WAITS,
    "no driver of the regions {regions} has registered",
    "Start them. For a region of batch jobs in Python, call `prepare_jobs` with their options[. To go back "
    "to the former regions: `sluicegate assignment withdraw --stream {former}`][. To stop waiting for one "
    "for good: `sluicegate region remove --stream {stream} --region {ended}`]",
)
STANDS: Final = 5
"""Multiple of the silence after which a wait is late, and a stream with nothing to commit stands still."""


def _waits(
    view: StreamView,
    condition: ConditionView,
    as_of: int,
    patience: Patience,
    explained: Container[str | None],
    since: int | None,
) -> Iterator[Reason]:
    """Yield the reasons of a commit that waits for regions of which nothing else is known.

    A wait of less than `alignment_timeout` is normal.
    """
    lagging = condition.arguments.get("names", ())
    names = [name for name in lagging if name not in explained]
    if since is None:
        since = min((each.since for name, each in view.waiting.items() if name not in lagging), default=None)
    age = None if since is None else as_of - since
    if not names or (age is not None and age < max(map(patience.waits, names))):
        return
    ended = age is not None and age > LONG_SILENCE * max(patience.silence, *map(patience.waits, names))
    alive = [
        name for name in names if (heard := view.regions[name].heard) and as_of - heard < patience.silence
    ]
    unstarted = [name for name in names if view.regions[name].incarnation is None and name not in alive]
    others = tuple(name for name in names if name not in alive and name not in unstarted)
    late = age is not None and age > STANDS * max(patience.silence, *map(patience.waits, names))
    kind, code = "late" if late else condition.kind, condition.code
    if unstarted:
        arguments = {"stream": view.stream, "regions": ", ".join(unstarted)}
        if view.assignment is not None and view.assignment.provisional:
            arguments["former"] = view.stream
        if ended:
            arguments["ended"] = unstarted[0]
        yield Reason(kind, code, _sentences(UNSTARTED, arguments), since=since)
    if alive:
        yield Reason(kind, code, _sentences(WORKING, _alive(view, alive)), since=since)
    if others:
        text = format_problem(Problem(code=Code.WAITS_FOR_REGIONS, names=others), view.stream)
        yield Reason(kind, code, text, since=since)


def _standstill(view: StreamView, as_of: int, settings: StreamSettings) -> Iterator[Reason]:
    """Yield the reason of a stream that has nothing to commit, although drivers without rest are alive."""
    longest = STANDS * settings.silence + settings.commit_interval
    limit = as_of - round(longest * 1000)
    silence = round(settings.silence * 1000)
    times = {name: _moved(view, name) for name, each in view.regions.items() if _works(each, as_of, silence)}
    names = sorted(name for name, moved in times.items() if moved is not None and moved < limit)
    if names and len(names) == len(times):
        since = max(moved for moved in times.values() if moved is not None)
        arguments = {**_alive(view, names), "age": duration((as_of - since) / 1000)}
        yield Reason("late", Code.WAITS_FOR_REGIONS, _sentences(STANDSTILL, arguments), since=since)


def _works(region: RegionView, as_of: int, silence: int) -> bool:
    """True if the driver of a region is alive, and does not say that it has nothing to do."""
    alive = region.heard is not None and as_of - region.heard < silence
    return alive and region.assigned and region.phase == "live" and not region.idle and not region.ended


def _moved(view: StreamView, name: str) -> int | None:
    """Return the time since when the region has completed nothing, as far as it is known."""
    waiting = view.waiting.get(name)
    return waiting.since if waiting is not None else view.regions[name].moved


def _alive(view: StreamView, names: Iterable[str]) -> dict[str, str]:
    heard = max(view.regions[name].heard or 0 for name in names)
    time = iso_time(heard - heard % 1000) or f"{heard} ms"
    return {"stream": view.stream, "regions": ", ".join(names), "heard": time}


def _silence(
    view: StreamView,
    name: str,
    as_of: int,
    patience: Patience,
    declined: ConditionView | None,
    left: Unfinished | None,
    *,
    held: bool,
) -> Reason:
    """Return the reason of a silent region: the last word of its driver, if it has said one."""
    region = view.regions[name]
    heard, interval = region.heard or 0, region.heartbeat_interval or 0
    long = as_of - heard > LONG_SILENCE * max(patience.silence, HEARTBEATS * interval)
    if declined is not None and _code_of(declined) not in SLOW_CODES:
        return _decline(view, declined, name, heard=heard, ended=long, held=held)
    return silence(view.stream, name, heard, interval, left, ended=long, held=held)


def _code_of(declined: ConditionView) -> str:
    """Return the code that the driver has given with its decline."""
    return next(iter(declined.arguments.get("names", ())), "")


def _decline(
    view: StreamView,
    declined: ConditionView,
    region: str,
    heard: int | None = None,
    *,
    held: bool,
    ended: bool = False,
) -> Reason:
    """Return the reason of a region whose driver has declined its work, with the error that it has given.

    `heard` is the time of the newest event of a silent region. `held`: commits wait for the region.
    """
    code, told = _code_of(declined), declined.arguments
    if code in SLOW_CODES:
        return Reason(declined.kind, declined.code, declined.message, region)
    arguments = {
        "stream": view.stream,
        "region": region,
        "checkpoint": str(told.get("checkpoint", 0)),
        "code": code,
        "detail": str(told.get("detail", "")).rstrip(". "),
    }
    if heard is not None:
        arguments["heard"] = iso_time(heard - heard % 1000) or f"{heard} ms"
    if held:
        arguments["waits"] = view.stream
    if ended:
        arguments["ended"] = region
    return Reason("failed", declined.code, _sentences(FAILED, arguments), region, view.regions[region].failed)


def silence(
    stream: str,
    region: str,
    heard: int,
    interval: int,
    left: Unfinished | None = None,
    *,
    ended: bool = False,
    held: bool = False,
) -> Reason:
    """Return the reason of a region whose heartbeats are missing; times in Unix milliseconds.

    `left` is a checkpoint that its driver has not completed. `ended`: it is silent for so long that it has
    perhaps ended for good. `held`: commits wait for it.
    """
    arguments = {
        "stream": stream,
        "region": region,
        "heard": iso_time(heard - heard % 1000) or f"{heard} ms",
        "interval": duration(interval / 1000),
    }
    if left is not None:
        events = counted(left.events, "event")
        arguments |= {"checkpoint": str(left.checkpoint), "events": events}
    if held:
        arguments["waits"] = stream
    if ended:
        arguments["ended"] = region
    return Reason("silent", "silent", _sentences(SILENT, arguments), region, heard)


def letters(stream: str, count: int, newest: Mapping[str, Any]) -> Reason:
    """Return the reason of dead letters that nobody has dealt with; `newest` has the facts of one."""
    arguments = {
        "stream": stream,
        "count": counted(count, "message"),
        "source": str(newest["source"]),
        "offset": str(newest["offset"]),
        # Its remedy is for its sender, and would be there twice.
        "reason": str(newest["reason"]).partition(". ")[0].rstrip("."),
    }
    return Reason("letter", str(newest["code"]), _sentences(LETTERS, arguments), since=newest["time"])


def _sentences(message: Message, arguments: Mapping[str, str]) -> str:
    what, why, remedy = (fill(part, arguments) for part in message)
    return f"{what}: {why}. {remedy}."
