"""Starting Kafka clients so that giving up in the middle leaves no connection open."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol

_PATIENCE: Final = 5.0
"""Seconds for a start that is given up to come to its end."""


class Startable(Protocol):
    """A client of aiokafka."""

    def start(self) -> Coroutine[Any, Any, None]:
        """Connect."""
        ...


async def start_client(client: Startable) -> None:
    """Start a client whole; raises what its start raises.

    aiokafka forgets its first connection when its start is cancelled between two of that one's answers, and
    nobody can close it then. So a cancellation waits for the end of the start, which a Kafka that answers
    reaches at once; one that does not is given up after 5 seconds. Whoever calls closes the client.
    """
    starting = asyncio.ensure_future(client.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait({starting}, timeout=_PATIENCE)
        raise
    finally:
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
        elif not starting.cancelled():
            # Seen here, or nobody does when the wait was cancelled.
            starting.exception()
