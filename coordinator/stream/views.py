"""Views of streams in the state store: written after a commit, and again after an outage of the store."""

from collections.abc import Awaitable, Callable

import structlog

from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.state_store import StateStore, StreamView, UnreadableView

log = structlog.get_logger(__name__)


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


async def is_another(store: StateStore, record: StateRecord) -> bool:
    """True if the store has no view of the stream, one of another record, or an unreadable one."""
    try:
        view = await store.read(record.stream)
    except UnreadableView:
        return True
    return view is None or view.revision != record.applied
