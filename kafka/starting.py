"""Start of Kafka clients without connection leaks on cancellation."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol

_PATIENCE: Final = 1.0
"""Seconds that a cancelled start may take to finish."""


class Startable(Protocol):
    """A client of aiokafka."""

    def start(self) -> Coroutine[Any, Any, None]:
        """Connect to the cluster."""
        ...


async def start_client(client: Startable) -> None:
    """Start a client; raises the errors of its start. The caller closes the client, also after an error.

    If the start is cancelled between two responses of its first connection, aiokafka loses the reference to
    that connection, and it stays open. Therefore a cancellation waits until the start ends. With a Kafka that
    responds this takes a moment; otherwise the start is cancelled after a second.
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
    """Mark the exception of an abandoned start as retrieved, so that asyncio does not log it as unhandled."""
    if not starting.cancelled():
        starting.exception()
