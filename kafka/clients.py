"""Start and stop of Kafka clients. No connection stays open after an error or a cancellation."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from random import SystemRandom
from typing import Any, Final, Protocol, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError, KafkaError

from sluicegate.kafka.internals import (
    Client,
    abandon_client,
    keep_lost_connection,
    name_refused_logins,
    pace_metadata,
    refused_login,
)
from sluicegate.kafka.outages import quiet_clients

# Randomized pauses between attempts.
#
# Clients that failed at the same time must not retry at the same time.

_SPREAD: Final = 0.25
_random: Final = SystemRandom()


def spread(seconds: float) -> float:
    """Return a pause that is up to a quarter longer or shorter."""
    return seconds * _random.uniform(1 - _SPREAD, 1 + _SPREAD)


# Repetition of requests that a broker cannot answer yet.

REQUEST_PATIENCE: Final = 15.0
"""Seconds that a new cluster may need for its metadata, and to elect a coordinator for a group."""
_PAUSE: Final = 0.2

T = TypeVar("T")


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Call `ask` again after a retriable error, for example while the group's coordinator is being elected.

    Raises KafkaError if the error is not retriable, or after PATIENCE seconds.
    """
    deadline = time.monotonic() + REQUEST_PATIENCE
    while True:
        try:
            return await ask()
        except KafkaError as error:
            # The plain class is raised if no broker answers a request for metadata.
            passing = error.retriable or type(error) is KafkaError
            if not passing or time.monotonic() > deadline:
                raise
        await asyncio.sleep(spread(_PAUSE))


_log = logging.getLogger(__name__)

PATIENCE: Final = 5.0
"""Seconds that a client may take to deliver its messages, and to leave its group."""
_LAST_WORDS: Final = 1.0
"""Seconds for the same after a cancellation, and for the end of a task of the client."""
_ATTEMPTS: Final = 3
"""Cancellations of a client's task: aiokafka drops one that arrives while the task awaits a cancelled one."""

_METADATA_PAUSE: Final = 0.1
"""Seconds between two requests for metadata while a topic or its leader is missing."""

C = TypeVar("C", bound=Client)


class Startable(Protocol):
    """A client of aiokafka."""

    def start(self) -> Coroutine[Any, Any, None]:
        """Connect to the cluster."""
        ...


async def start_client(client: Startable) -> None:
    """Start a client; raises the errors of its start. The caller stops the client, also after an error.

    A client that the brokers do not let in raises LoginRefused. From then on, repeated lines of all clients
    of this process are few: see `quiet_clients`.
    """
    quiet_clients()
    name_refused_logins()
    refused_login()
    if isinstance(client, Client):
        pace_metadata(client, _METADATA_PAUSE)
    try:
        await client.start()
    except BaseException as error:
        keep_lost_connection(error)
        if isinstance(error, KafkaConnectionError) and (refused := refused_login()) is not None:
            raise refused from error
        raise


async def stop_client(client: Client, patience: float = PATIENCE) -> None:
    """Stop a client and close all its connections. Raises nothing but the cancellation of the caller.

    Messages of a producer are delivered, and a group is left, within `patience` seconds, or one second after
    a cancellation. A second cancellation ends that at once. Errors are logged, because a caller could do
    nothing about them. A request of another task finds no connection afterwards.
    """
    # A task of its own: a cancellation of the caller does not interrupt it, and one by aiokafka of its own
    # tasks does not look like a cancellation of the caller.
    stopping = asyncio.ensure_future(_stop(client))
    try:
        await _wait(stopping, patience)
    finally:
        if not stopping.done():
            stopping.cancel()
        await _abandon(client, stopping)


@asynccontextmanager
async def started(client: C) -> AsyncIterator[C]:
    """Start a client, and stop it at the end of the block. Raises the errors of `start_client`."""
    try:
        await start_client(client)
        yield client
    finally:
        await stop_client(client)


async def _stop(client: Client) -> None:
    if isinstance(client, AIOKafkaAdminClient):
        await client.close()
        return
    if isinstance(client, AIOKafkaProducer):
        # Apart from `stop`, which leaves a task without end if it is cancelled during the delivery.
        await client.flush()
    await client.stop()


async def _wait(stopping: "asyncio.Task[None]", patience: float) -> None:
    try:
        done, _ = await asyncio.wait({stopping}, timeout=patience)
    except asyncio.CancelledError:
        await asyncio.wait({stopping}, timeout=min(patience, _LAST_WORDS))
        raise
    if patience > 0 and not done:
        _log.warning("a Kafka client is closed without its brokers: they did not answer for %g s", patience)


async def _abandon(client: Client, stopping: "asyncio.Task[None]") -> None:
    """Close everything that a client has not closed, and wait for its tasks."""
    for _ in range(_ATTEMPTS):
        # Everything is closed before the first wait, which a further cancellation may end.
        open_ends = abandon_client(client) | {stopping}
        if not (running := {each for each in open_ends if not each.done()}):
            break
        await asyncio.wait(running, timeout=_LAST_WORDS)
    if stopping.done() and not stopping.cancelled() and (error := stopping.exception()) is not None:
        _log.warning("a Kafka client was closed after an error: %r", error)


# End offsets of partitions, requested on a separate connection.


class EndOffsets:
    """Client for end offsets, with a connection of its own.

    A broker answers the requests of one connection in order, and holds a fetch without new records for half a
    second. On the consumer's connection, each request for an end offset would wait for that fetch.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._client: AIOKafkaConsumer | None = None
        self._lock = asyncio.Lock()

    async def of(self, source: TopicPartition) -> int:
        """Return the offset after the last record of a partition. Raises KafkaError."""
        client = await self._connected()
        end: int = (await client.end_offsets([source]))[source]
        return end

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await stop_client(self._client)

    async def _connected(self) -> AIOKafkaConsumer:
        async with self._lock:
            if self._client is None:
                client = AIOKafkaConsumer(enable_auto_commit=False, **self._options)
                try:
                    await start_client(client)
                except BaseException:
                    await stop_client(client)
                    raise
                self._client = client
            return self._client
