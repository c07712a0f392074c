"""Starting Kafka clients so that giving up in the middle leaves no connection open."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol

_PATIENCE: Final = 1.0
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
    reaches at once; one that does not is given up after a second. Whoever calls closes the client.
    """
    starting = asyncio.ensure_future(client.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait({starting}, timeout=_PATIENCE)
        raise
    finally:
        starting.add_done_callback(_see)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting}, timeout=_PATIENCE)


def _see(starting: "asyncio.Future[None]") -> None:
    """What a start that was given up has come to is of no more interest."""
    if not starting.cancelled():
        starting.exception()
