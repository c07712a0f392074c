"""Repetition of requests that a broker cannot answer yet."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aiokafka.errors import KafkaError

from sluicegate.kafka.pauses import spread

PATIENCE: Final = 15.0
"""Seconds that a new cluster may need for its metadata, and to elect a coordinator for a group."""
_PAUSE: Final = 0.2

T = TypeVar("T")


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Call `ask` again after a retriable error, for example while the group's coordinator is being elected.

    Raises KafkaError if the error is not retriable, or after PATIENCE seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await ask()
        except KafkaError as error:
            # The plain class is raised if no broker answers a request for metadata.
            passing = error.retriable or type(error) is KafkaError
            if not passing or time.monotonic() > deadline:
                raise
        await asyncio.sleep(spread(_PAUSE))
