"""Failpoints around the effects of the core."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from sluicegate.coordinator.core.effects import (
    Announce,
    Append,
    Ask,
    CheckFiles,
    Effect,
    Failed,
    FetchEnd,
    InspectTable,
    Publish,
    ReleaseOffsets,
    Result,
    WriteRecord,
    WriteView,
)
from sluicegate.events.envelope import EventType
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import InjectedFailure, reach
from sluicegate.lakes.port import OutcomeUnknown

Around = tuple[Failpoint, Failpoint]
"""The failpoints before and after an effect."""

APPENDS: Final[dict[EventType, Around]] = {
    EventType.STREAM_POLICY: (Failpoint.APPEND_POLICY_BEFORE, Failpoint.APPEND_POLICY_AFTER),
    EventType.REGION_HEARTBEAT: (Failpoint.APPEND_HEARTBEAT_BEFORE, Failpoint.APPEND_HEARTBEAT_AFTER),
    EventType.CUT_DECIDED: (Failpoint.APPEND_DECISION_BEFORE, Failpoint.APPEND_DECISION_AFTER),
    EventType.CUT_COMMITTED: (Failpoint.APPEND_COMMITTED_BEFORE, Failpoint.APPEND_COMMITTED_AFTER),
    EventType.CUT_REVERTED: (Failpoint.APPEND_REVERTED_BEFORE, Failpoint.APPEND_REVERTED_AFTER),
    EventType.CUT_ABANDONED: (Failpoint.APPEND_ABANDONED_BEFORE, Failpoint.APPEND_ABANDONED_AFTER),
}
"""By type of the event that is appended."""
AROUND: Final[dict[type[Effect], Around]] = {
    InspectTable: (Failpoint.INSPECT_TABLE_BEFORE, Failpoint.INSPECT_TABLE_AFTER),
    FetchEnd: (Failpoint.FETCH_END_BEFORE, Failpoint.FETCH_END_AFTER),
    CheckFiles: (Failpoint.CHECK_FILES_BEFORE, Failpoint.CHECK_FILES_AFTER),
    Ask: (Failpoint.ASK_BEFORE, Failpoint.ASK_AFTER),
    Publish: (Failpoint.PUBLISH_BEFORE, Failpoint.PUBLISH_AFTER),
    WriteRecord: (Failpoint.WRITE_RECORD_BEFORE, Failpoint.WRITE_RECORD_AFTER),
    Announce: (Failpoint.ANNOUNCE_BEFORE, Failpoint.ANNOUNCE_AFTER),
    WriteView: (Failpoint.WRITE_VIEW_BEFORE, Failpoint.WRITE_VIEW_AFTER),
    ReleaseOffsets: (Failpoint.RELEASE_OFFSETS_BEFORE, Failpoint.RELEASE_OFFSETS_AFTER),
}


async def between_failpoints(effect: Effect, perform: Callable[[Effect], Awaitable[Result]]) -> Result:
    """Perform an effect between its two failpoints; an injected failure is an ordinary result."""
    before, after = APPENDS[effect.type] if isinstance(effect, Append) else AROUND[type(effect)]
    try:
        await reach(before)
    except InjectedFailure as error:
        return Failed(str(error))
    result = await perform(effect)
    try:
        await reach(after)
    except InjectedFailure as error:
        # A publication before an injected failure may have succeeded, so its outcome is unknown.
        return OutcomeUnknown(str(error)) if isinstance(effect, Publish) else Failed(str(error))
    return result


@asynccontextmanager
async def around_last_record() -> AsyncIterator[None]:
    """Write the last state record of a stream between its two failpoints. Raises InjectedFailure."""
    await reach(Failpoint.LAST_RECORD_BEFORE)
    yield
    await reach(Failpoint.LAST_RECORD_AFTER)
