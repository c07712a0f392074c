"""Renewal of views that the state store has lost."""

from collections.abc import Iterable
from contextlib import suppress

from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.stream.links import Links
from sluicegate.coordinator.stream.runner import StreamRunner
from sluicegate.coordinator.stream.view import view_of
from sluicegate.state_store import StateStore, StateStoreUnavailable, UnreadableView


async def renew_views(links: Links, streams: Iterable[StreamRunner]) -> None:
    """Write the last view of each stream again if the store has an older one, or none."""
    if links.store is None:
        return
    for stream in streams:
        record = stream.last_view
        if record is None:
            continue
        with suppress(StateStoreUnavailable):
            if await _is_older(links.store, record):
                await links.store.write(view_of(record, stream.settings.commit_user))


async def _is_older(store: StateStore, record: StateRecord) -> bool:
    """True if the store has no view of the stream, an older one, or an unreadable one."""
    try:
        view = await store.read(record.stream)
    except UnreadableView:
        return True
    return view is None or view.revision < record.applied
