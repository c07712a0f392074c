"""Views of streams in Redis, for the commands that end what the views show."""

from sluicegate.coordinator.service.startup import make_store
from sluicegate.coordinator.settings.model import Settings
from sluicegate.state_store import StateStoreUnavailable


async def has_view(settings: Settings, stream: str) -> bool:
    """Return True if Redis has a view of the stream; False without Redis. Raises StateStoreUnavailable."""
    store = make_store(settings)
    if store is None:
        return False
    try:
        return stream in await store.streams()
    finally:
        await store.close()


async def remove_view(settings: Settings, stream: str) -> str | None:
    """Remove the view of a stream from Redis. Return the reason if that is not known to be done."""
    store = make_store(settings)
    if store is None:
        return None
    try:
        await store.remove(stream)
    except StateStoreUnavailable as error:
        return str(error)
    finally:
        await store.close()
    return None
