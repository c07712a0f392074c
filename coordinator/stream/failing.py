"""Failpoints around the effects of the core."""

from collections.abc import Awaitable, Callable
from typing import Final

from sluicegate.coordinator.core.effects import (
    Announce,
    AppendAbandoned,
    AppendDecision,
    AppendPolicy,
    AppendVoided,
    Ask,
    Carry,
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
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import InjectedFailure, reach
from sluicegate.lakes.port import OutcomeUnknown

AROUND: Final[dict[type[Effect], tuple[Failpoint, Failpoint]]] = {
    InspectTable: (Failpoint.INSPECT_TABLE_BEFORE, Failpoint.INSPECT_TABLE_AFTER),
    FetchEnd: (Failpoint.FETCH_END_BEFORE, Failpoint.FETCH_END_AFTER),
    CheckFiles: (Failpoint.CHECK_FILES_BEFORE, Failpoint.CHECK_FILES_AFTER),
    AppendPolicy: (Failpoint.APPEND_POLICY_BEFORE, Failpoint.APPEND_POLICY_AFTER),
    AppendDecision: (Failpoint.APPEND_DECISION_BEFORE, Failpoint.APPEND_DECISION_AFTER),
    AppendAbandoned: (Failpoint.APPEND_ABANDONED_BEFORE, Failpoint.APPEND_ABANDONED_AFTER),
    AppendVoided: (Failpoint.APPEND_VOIDED_BEFORE, Failpoint.APPEND_VOIDED_AFTER),
    Carry: (Failpoint.CARRY_BEFORE, Failpoint.CARRY_AFTER),
    Ask: (Failpoint.ASK_BEFORE, Failpoint.ASK_AFTER),
    Publish: (Failpoint.PUBLISH_BEFORE, Failpoint.PUBLISH_AFTER),
    WriteRecord: (Failpoint.WRITE_RECORD_BEFORE, Failpoint.WRITE_RECORD_AFTER),
    Announce: (Failpoint.ANNOUNCE_BEFORE, Failpoint.ANNOUNCE_AFTER),
    WriteView: (Failpoint.WRITE_VIEW_BEFORE, Failpoint.WRITE_VIEW_AFTER),
    ReleaseOffsets: (Failpoint.RELEASE_OFFSETS_BEFORE, Failpoint.RELEASE_OFFSETS_AFTER),
}


async def between_failpoints(effect: Effect, perform: Callable[[Effect], Awaitable[Result]]) -> Result:
    """Perform an effect between its two failpoints; an injected failure is an ordinary result."""
    before, after = AROUND[type(effect)]
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
