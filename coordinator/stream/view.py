"""View of a stream in the state store: made from its state record, and renewed if the store loses it."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType

import structlog
from aiokafka.errors import KafkaError

from sluicegate.coordinator.core.state import AssignmentState, RegionState
from sluicegate.coordinator.core.state_record import Condition, StateRecord
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.telemetry import overview
from sluicegate.coordinator.telemetry.messages import format_problem
from sluicegate.events.models import Position
from sluicegate.events.problems import Problem
from sluicegate.state_store import (
    AssignmentView,
    ConditionView,
    ListenerView,
    ProblemView,
    RegionView,
    SavepointView,
    StateStore,
    StateStoreUnavailable,
    StreamView,
    UnreadableView,
    WaitingView,
)

log = structlog.get_logger(__name__)


def view_of(
    record: StateRecord,
    settings: StreamSettings,
    listeners: Mapping[str, ListenerView] = MappingProxyType({}),
) -> StreamView:
    """Return the view of a stream for dashboards and other services."""
    state = record.state
    cut = {name: state.committed(name).position for name in overview.region_names(state)}
    return StreamView(
        stream=record.stream,
        revision=record.applied,
        updated_at=time.time_ns() // 1_000_000,
        commit_user=settings.commit_user,
        table=settings.table,
        owner=settings.owner or None,
        decided=state.decided,
        committed=overview.committed_decision(state),
        snapshot=state.snapshot,
        cut=_known(cut),
        decided_cut=state.cut,
        forced_by=tuple(overview.forced_by(state)),
        max_consecutive_fallbacks=state.policy.max_consecutive_fallbacks if state.policy else None,
        waiting={name: WaitingView(**each.model_dump()) for name, each in record.waiting.items()},
        single_region=overview.single_region_reason(record),
        savepoints=tuple(
            SavepointView(name=each.name, drain=each.drain, targets=each.targets) for each in state.savepoints
        ),
        watermark=overview.committed_watermark(state),
        assignment=_assignment(state.assignment) if state.assignment is not None else None,
        regions={name: _region(record, name) for name in overview.region_names(state)},
        listeners=dict(listeners),
        conditions=tuple(_condition(each, record.stream) for each in overview.distinct_conditions(record)),
        paused=state.paused,
    )


def _known(cut: dict[str, Position | None]) -> dict[str, Position]:
    return {name: at for name, at in cut.items() if at is not None}


def _assignment(assignment: AssignmentState) -> AssignmentView:
    return AssignmentView(number=assignment.number, regions=tuple(assignment.regions), after=assignment.after)


def _region(record: StateRecord, name: str) -> RegionView:
    region = record.state.regions.get(name, RegionState())
    before, refused = record.state.committed(name), record.refused.get(name)
    return RegionView(
        phase=region.phase.value,
        idle=region.idle,
        stalled=_problem(region.fault, record.stream) if region.fault else None,
        refused=_problem(refused, record.stream) if refused else None,
        incarnation=region.live_incarnation,
        source_offsets=before.source_offsets,
        watermark=before.watermark,
        consecutive_fallbacks=region.fallbacks,
        heard=record.heard.get(name),
        listeners=before.listeners,
    )


def _problem(problem: Problem, stream: str) -> ProblemView:
    return ProblemView(code=problem.code.value, message=format_problem(problem, stream))


def _condition(condition: Condition, stream: str) -> ConditionView:
    problem = condition.problem
    return ConditionView(
        kind=condition.kind,
        code=problem.code.value,
        region=problem.region,
        message=format_problem(problem, stream),
    )


async def write_view(store: StateStore, view: StreamView, end_of_log: Callable[[], Awaitable[int]]) -> bool:
    """Write the view of a stream. Return False if the store has a newer one of the same log.

    A revision at or after the end of the log is from another log: of topics that were deleted, or of another
    cluster. Such a view is replaced. Raises StateStoreUnavailable, and the errors of `end_of_log`.
    """
    if await store.write(view):
        return True
    stamp = await store.stamp(view.stream)
    # The end is read after the stamp: a log has all the events of its views.
    if stamp is None or stamp.revision < (end := await end_of_log()):
        return False
    replaced = await store.replace(view, stamp)
    if replaced:
        log.warning(
            "view of another log replaced", stream=view.stream, revision=stamp.revision, end_of_log=end
        )
    return replaced


LastView = tuple[StateRecord, StreamSettings, Mapping[str, ListenerView], Callable[[], Awaitable[int]]]
"""A record with its settings and listeners, and the function that reads the end of its log."""


async def renew_views(store: StateStore, last: Iterable[LastView]) -> None:
    """Write the last view of each stream again if the store has another one, or none.

    A newer one of the same log stays.
    """
    for record, settings, listeners, end_of_log in last:
        with suppress(StateStoreUnavailable, KafkaError, TimeoutError):
            if await _is_another(store, record):
                await write_view(store, view_of(record, settings, listeners), end_of_log)


async def _is_another(store: StateStore, record: StateRecord) -> bool:
    """True if the store has no view of the stream, one of another record, or an unreadable one."""
    try:
        view = await store.read(record.stream)
    except UnreadableView:
        return True
    return view is None or view.revision != record.applied
