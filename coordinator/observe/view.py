"""State of a stream for people and programs: `sluicegate status`, `/status`, the page, and the view in Redis.

It is derived from a state record and from the log as one coordinator has it. Nothing is decided from it.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from sluicegate.coordinator.core.log import Checkpoint, Log
from sluicegate.coordinator.core.savepoints import unreached
from sluicegate.coordinator.core.state import AssignmentState, LogState, RegionPhase, RegionState, Savepoint
from sluicegate.coordinator.core.state_record import Condition, StateRecord
from sluicegate.coordinator.observe.messages import Message, duration, fill, format_problem, iso_time
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.events.models import Position, SnapshotRef
from sluicegate.events.problems import Code, Problem
from sluicegate.state_store import (
    AssignmentView,
    ConditionView,
    ListenerView,
    ProblemView,
    RegionView,
    SavepointView,
    StreamView,
    WaitingView,
)

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
    return log.state.policy is not None and log.state.policy.single_region is not None


def _checkpoints(log: Log) -> Iterator[tuple[str, Checkpoint]]:
    for name, found in log.pending.items():
        for entry in found.checkpoints.values():
            yield name, entry


# State of a stream for `sluicegate status`, /status and the view: derived from its state record alone.
#
# A coordinator makes the record from its current state. Without a coordinator, the last written one is
# used. The record's conditions are the one answer to the question why a stream does not progress.

MISSED: Final = 3
"""Number of missing heartbeats in a row before a region counts as silent."""
NOT_READ: Final = frozenset(
    {
        *(
            Code.EVENTS_LIMITED,
            Code.RECORD_UNREADABLE,
            Code.SKIPPED_LATE,
            Code.LOG_DISCONTINUOUS,
            Code.OLDER_RELEASE,
        ),
        *(Code.STATE_RECORD_NEWER, Code.STATE_RECORD_OLDER, Code.STATE_RECORD_MALFORMED),
        *(Code.OTHER_PARTITION, Code.OTHER_COMMIT_USER),
    }
)
"""Conditions of a stream whose newest events are not read yet: nothing is known of its drivers."""


def overview(record: StateRecord, as_of: int) -> dict[str, Any]:
    """Return a stream as JSON values; `as_of` is the time of the record in Unix milliseconds.

    Ages and durations are in seconds, as of that time.
    """
    state, stream = record.state, record.stream
    names = region_names(state)
    return {
        "as_of": as_of,
        "conditions": [_condition(each, stream) for each in distinct_conditions(record)],
        "paused": state.paused,
        "applied_offset": record.applied,
        "low_water": record.low_water,
        "assignment": state.assignment.model_dump() if state.assignment else None,
        "next_assignment_after": next_after(state),
        "partial": state.policy.partial if state.policy else None,
        "single_region": single_region_reason(record),
        "forced_by": forced_by(state),
        "decided": state.decided,
        "committed": committed_decision(state),
        "pending": _pending(state),
        "savepoints": [_savepoint(state, each) for each in state.savepoints],
        "watermark": committed_watermark(state),
        "snapshot": _ref(state.snapshot),
        "table": {"identity": record.table.identity or state.table, "head": _ref(record.table.head)},
        "waiting": _waiting_in_all(record, as_of),
        "regions": {name: _region(record, name, as_of) for name in names},
        "strangers": {name: _problem(why, stream) for name, why in strangers(record).items()},
    }


# --- the stream -----------------------------------------------------------------------------------


def region_names(state: LogState) -> list[str]:
    """Return the regions that have a state, and those of the assignment, sorted."""
    return sorted({*state.regions, *(state.assignment.regions if state.assignment else ())})


def distinct_conditions(record: StateRecord) -> list[Condition]:
    """Return the conditions, the gravest first; a problem that several have is listed once.

    A stall also refuses registrations, for the same problem.
    """
    found: dict[str, Condition] = {}
    for each in record.conditions:
        found.setdefault(each.problem.identity, each)
    return list(found.values())


def committed_decision(state: LogState) -> int:
    """Return the newest decision that has an outcome; 0: none has."""
    return state.decided if state.pending is None else state.pending.id - 1


def committed_watermark(state: LogState) -> int | None:
    """Return the stream's watermark without the decision that has no outcome yet."""
    return state.watermark if state.pending is None else state.pending.before.watermark


def next_after(state: LogState) -> int | None:
    """Return the value for `assignment.after` of the next assignment; None while the current one lasts."""
    lasts = state.assignment is None or state.pending is not None or any(True for _ in state.active())
    return None if lasts else state.decided


def single_region_reason(record: StateRecord) -> str | None:
    """Return the reason why all regions are one failure domain, so that every commit is full."""
    state = record.state
    logged = state.policy.single_region if state.policy is not None else None
    return logged or record.table.single_region


def forced_by(state: LogState) -> list[str]:
    """Return the regions that may not fall back again, so that the next commit is full."""
    policy = state.policy
    if policy is None or policy.partial == "never":
        return []
    most, regions = policy.max_consecutive_fallbacks, state.regions
    return [name for name in state.active() if name in regions and regions[name].fallbacks >= most]


def strangers(record: StateRecord) -> dict[str, Problem]:
    """Return the refused registrations of regions that the stream does not have."""
    names = region_names(record.state)
    return {name: problem for name, problem in sorted(record.refused.items()) if name not in names}


def _pending(state: LogState) -> dict[str, Any] | None:
    """Return the decision without an outcome."""
    made = state.pending
    if made is None:
        return None
    return {
        "decision": made.id,
        "files": made.files,
        "regions": sorted(made.moves),
        "fallbacks": sorted(made.fallbacks),
        "revert_of": made.revert.region if made.revert else None,
    }


def _savepoint(state: LogState, savepoint: Savepoint) -> dict[str, Any]:
    return {**savepoint.model_dump(), "unreached": unreached(state, savepoint)}


def _waiting_in_all(record: StateRecord, as_of: int) -> dict[str, Any]:
    """Return the totals over all regions of written data that is in no decision."""
    every = record.waiting.values()
    return {
        "files": sum(each.files for each in every),
        "rows": sum(each.rows for each in every),
        "age": max((age(each.since, as_of) for each in every), default=None),
    }


def _condition(condition: Condition, stream: str) -> dict[str, Any]:
    retry_in = None if condition.retry_in is None else condition.retry_in / 1000
    return {"kind": condition.kind, **_problem(condition.problem, stream), "retry_in": retry_in}


def _problem(problem: Problem, stream: str) -> dict[str, Any]:
    return {
        "code": str(problem.code),
        "region": problem.region,
        "message": format_problem(problem, stream),
        "arguments": problem.model_dump(mode="json", exclude={"code", "region"}, exclude_defaults=True),
    }


# --- regions --------------------------------------------------------------------------------------


def incarnation_of(region: RegionState) -> str | None:
    """Return the id of the newest incarnation, live or ended."""
    return region.incarnation.id if region.incarnation is not None else None


def _region(record: StateRecord, name: str, as_of: int) -> dict[str, Any]:
    state = record.state
    region, before = state.regions.get(name, RegionState()), state.committed(name)
    heard, interval = record.heard.get(name), record.intervals.get(name)
    waits, refused = record.waiting.get(name), record.refused.get(name)
    return {
        "phase": str(region.phase),
        "assigned": state.assignment is not None and name in state.assignment.regions,
        "gone": region.has_ended and state.unresolved(name) is None,
        "idle": region.idle,
        "stalled": _problem(region.fault, record.stream) if region.fault else None,
        "incarnation": incarnation_of(region),
        "live_incarnation": region.live_incarnation,
        "base": _dump(region.incarnation.base) if region.incarnation else None,
        "committed": _dump(before.position),
        "source_offsets": before.source_offsets,
        "decided": _dump(region.position) if region.position != before.position else None,
        "final": region.final,
        "watermark": before.watermark,
        "consecutive_fallbacks": region.fallbacks,
        "listeners": before.listeners,
        "refused": _problem(refused, record.stream) if refused else None,
        "heard": heard,
        "heard_age": None if heard is None else age(heard, as_of),
        "heartbeat_interval": None if interval is None else interval / 1000,
        "silent": _silent(region, heard, interval, as_of) if is_read(record.conditions) else None,
        "waiting_files": waits.files if waits else 0,
        "waiting_rows": waits.rows if waits else 0,
        "waiting_age": age(waits.since, as_of) if waits else None,
    }


def is_read(conditions: Iterable[Condition]) -> bool:
    """Return False if the newest events of a stream are not read, so that its drivers may be alive."""
    return not any(each.problem.code in NOT_READ for each in conditions)


def _silent(region: RegionState, heard: int | None, interval: int | None, as_of: int) -> float | None:
    """Return the seconds of silence; None before MISSED heartbeats are missing, or if none is expected."""
    if heard is None or interval is None or region.phase is not RegionPhase.LIVE:
        return None
    silence = as_of - heard
    return silence / 1000 if silence > MISSED * interval else None


def silent_regions(
    state: LogState, heard: Mapping[str, int], intervals: Mapping[str, int], as_of: int
) -> list[str]:
    """Return the regions whose heartbeats are missing, sorted; times and intervals in milliseconds."""
    return sorted(
        name
        for name, region in state.regions.items()
        if _silent(region, heard.get(name), intervals.get(name), as_of) is not None
    )


def age(since: int, as_of: int) -> float:
    """Return an age in seconds; never negative, because the brokers' clocks may be ahead of this host's."""
    return max(0.0, (as_of - since) / 1000)


def _ref(ref: SnapshotRef | None) -> dict[str, Any] | None:
    return None if ref is None else asdict(ref)


def _dump(model: BaseModel | None) -> dict[str, Any] | None:
    return None if model is None else dict(model.model_dump(mode="json"))


# Reasons why a stream does not progress, in the one order of the live page and of `sluicegate status`.

RANKS: Final[Mapping[str, int]] = {
    "stall": 0,
    "refusal": 1,
    "silent": 2,
    "retry": 3,
    "letter": 4,
    "pause": 5,
    "wait": 6,
}
"""Kinds of reasons; the gravest has rank 0."""

SILENT: Final = Message(
    "Region {region} of stream {stream} is silent",
    "its last event is of {heard}, and a heartbeat is due every {interval}. Its query has ended, or its host "
    "does not reach Kafka[. It left checkpoint {checkpoint} unfinished: {events} published, no completion]",
    "Start its query again. To stop waiting for it: `sluicegate region remove --stream {stream} --region "
    "{region}`",
)
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


def silence(stream: str, region: str, heard: int, interval: int, left: Unfinished | None = None) -> Reason:
    """Return the reason of a region whose heartbeats are missing; times in Unix milliseconds.

    `left` is a checkpoint that its driver has not completed.
    """
    arguments = {
        "stream": stream,
        "region": region,
        "heard": iso_time(heard - heard % 1000) or f"{heard} ms",
        "interval": duration(interval / 1000),
    }
    if left is not None:
        events = f"{left.events} {'event' if left.events == 1 else 'events'}"
        arguments |= {"checkpoint": str(left.checkpoint), "events": events}
    return Reason("silent", "silent", _sentences(SILENT, arguments), region, heard)


def letters(stream: str, count: int, newest: Mapping[str, Any]) -> Reason:
    """Return the reason of dead letters that nobody has dealt with; `newest` has the facts of one."""
    arguments = {
        "stream": stream,
        "count": f"{count} {'message' if count == 1 else 'messages'}",
        "source": str(newest["source"]),
        "offset": str(newest["offset"]),
        # Its remedy is for its sender, and would be there twice.
        "reason": str(newest["reason"]).partition(". ")[0].rstrip("."),
    }
    return Reason("letter", str(newest["code"]), _sentences(LETTERS, arguments), since=newest["time"])


def _sentences(message: Message, arguments: Mapping[str, str]) -> str:
    what, why, remedy = (fill(part, arguments) for part in message)
    return f"{what}: {why}. {remedy}."


# View of a stream in the state store: made from its state record, and renewed if the store loses it.


def view_of(
    record: StateRecord,
    settings: StreamSettings,
    listeners: Mapping[str, ListenerView] = MappingProxyType({}),
) -> StreamView:
    """Return the view of a stream for dashboards and other services."""
    state = record.state
    cut = {name: state.committed(name).position for name in region_names(state)}
    return StreamView(
        stream=record.stream,
        revision=record.applied,
        updated_at=time.time_ns() // 1_000_000,
        commit_user=settings.commit_user,
        table=settings.table,
        owner=settings.owner or None,
        decided=state.decided,
        committed=committed_decision(state),
        snapshot=state.snapshot,
        cut=_known(cut),
        decided_cut=state.cut,
        forced_by=tuple(forced_by(state)),
        max_consecutive_fallbacks=state.policy.max_consecutive_fallbacks if state.policy else None,
        waiting={name: WaitingView(**each.model_dump()) for name, each in record.waiting.items()},
        single_region=single_region_reason(record),
        savepoints=tuple(
            SavepointView(name=each.name, drain=each.drain, targets=each.targets) for each in state.savepoints
        ),
        watermark=committed_watermark(state),
        assignment=_assignment(state.assignment) if state.assignment is not None else None,
        regions={name: _region_view(record, name) for name in region_names(state)},
        listeners=dict(listeners),
        conditions=tuple(_condition_view(each, record.stream) for each in distinct_conditions(record)),
        paused=state.paused,
    )


def _known(cut: dict[str, Position | None]) -> dict[str, Position]:
    return {name: at for name, at in cut.items() if at is not None}


def _assignment(assignment: AssignmentState) -> AssignmentView:
    return AssignmentView(number=assignment.number, regions=tuple(assignment.regions), after=assignment.after)


def _region_view(record: StateRecord, name: str) -> RegionView:
    region = record.state.regions.get(name, RegionState())
    before, refused = record.state.committed(name), record.refused.get(name)
    return RegionView(
        phase=region.phase.value,
        idle=region.idle,
        stalled=_problem_view(region.fault, record.stream) if region.fault else None,
        refused=_problem_view(refused, record.stream) if refused else None,
        incarnation=region.live_incarnation,
        source_offsets=before.source_offsets,
        watermark=before.watermark,
        consecutive_fallbacks=region.fallbacks,
        heard=record.heard.get(name),
        listeners=before.listeners,
    )


def _problem_view(problem: Problem, stream: str) -> ProblemView:
    return ProblemView(code=problem.code.value, message=format_problem(problem, stream))


def _condition_view(condition: Condition, stream: str) -> ConditionView:
    problem = condition.problem
    return ConditionView(
        kind=condition.kind,
        code=problem.code.value,
        region=problem.region,
        message=format_problem(problem, stream),
    )
