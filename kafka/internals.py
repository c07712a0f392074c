"""Every use of a private attribute of aiokafka or asyncio, each with the reason that there is no public way.

`tests/kafka/test_internals.py` fails when a release of aiokafka changes one of them.
"""

import asyncio
from collections.abc import Collection
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import AIOKafkaConnection, BaseSaslAuthenticator, OAuthAuthenticator
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.record.default_records import _DefaultRecordBatchPy as RecordBatch
from aiokafka.structs import OffsetAndMetadata

from sluicegate.kafka.tokens import NoToken, TokenSource

__all__ = [
    "LOGIN_ERRORS",
    "Client",
    "EncodedRecords",
    "LoginRefused",
    "RecordBatch",
    "abandon_client",
    "abort_connections",
    "client_of",
    "encoded_records",
    "fetch_committed",
    "keep_lost_connection",
    "login_reason",
    "name_refused_logins",
    "pace_metadata",
    "positions",
    "refused_login",
    "send_admin_request",
    "sender_ended",
]
"""`RecordBatch` is the batch in Python: the compiled one does not give its bytes away."""


Client: TypeAlias = AIOKafkaConsumer | AIOKafkaProducer | AIOKafkaAdminClient


class EncodedRecords(NamedTuple):
    """The records of a batch, uncompressed and not decoded."""

    buffer: bytearray
    start: int
    number: int


def client_of(client: AIOKafkaConsumer | AIOKafkaAdminClient) -> AIOKafkaClient:
    """Return the connections of a client. A producer has them in public, as `client`."""
    return client._client


def positions(consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
    """Return the known positions of the assigned partitions. The public `position` waits for unknown ones."""
    subscription = consumer._subscription.subscription
    assignment = subscription.assignment if subscription is not None else None
    if assignment is None:
        return {}
    states = {source: assignment.state_value(source) for source in assignment.tps}
    return {source: state.position for source, state in states.items() if state and state.has_valid_position}


async def fetch_committed(consumer: AIOKafkaConsumer, source: TopicPartition) -> OffsetAndMetadata | None:
    """Fetch the group's offset with its metadata, which the public `committed` drops. Raises KafkaError.

    Without a commit the result is None, or has an offset below 0.
    """
    return (await consumer._coordinator.fetch_committed_offsets([source])).get(source)


def sender_ended(producer: AIOKafkaProducer) -> bool:
    """Return True if the sending task has ended. Every later message fails, without any other sign."""
    return bool(producer._sender.sender_task.done())


class _ClosedConnections(dict[Any, AIOKafkaConnection]):
    """Connections of a closed client. One that a request still opens is closed when it is added."""

    def __setitem__(self, key: Any, connection: AIOKafkaConnection) -> None:
        connection.close()
        super().__setitem__(key, connection)


def abandon_client(client: Client) -> set["asyncio.Future[Any]"]:
    """Close a client's connections, also those opened later, and cancel its tasks. Return unfinished ones.

    It delivers no message and leaves no group. The public `stop` ends early if one of the client's tasks was
    cancelled or has failed. Then it leaves connections open, and a second call has no effect.
    """
    client._closed = True
    connections: AIOKafkaClient = client.client if isinstance(client, AIOKafkaProducer) else client._client
    tasks = {each for each in _tasks(client, connections) if each is not None}
    for task in tasks:
        task.cancel()
        task.add_done_callback(_retrieve)
    ends = {each.close() for each in connections._conns.values()}
    connections._conns = _ClosedConnections(connections._conns)
    return {each for each in (tasks | ends) if each is not None and not each.done()}


def _tasks(client: Client, connections: AIOKafkaClient) -> list[asyncio.Task[Any] | None]:
    """Return the tasks of a client that were started; some of them may have ended."""
    tasks = [connections._sync_task]
    if isinstance(client, AIOKafkaProducer):
        tasks.append(client._sender.sender_task)
    if isinstance(client, AIOKafkaConsumer):
        if client._fetcher is not None:
            tasks += [client._fetcher._fetch_task, *client._fetcher._pending_tasks]
        # The coordinator of a consumer without a group has one of these tasks, that of a group the others.
        names = ("_reset_committed_task", "_coordination_task", "_heartbeat_task", "_commit_refresh_task")
        tasks += [getattr(client._coordinator, name, None) for name in names]
    return tasks


def _retrieve(ended: "asyncio.Future[Any]") -> None:
    """Mark the error of a task as retrieved, or asyncio would report it when the task is collected."""
    if not ended.cancelled():
        ended.exception()


def abort_connections(loop: asyncio.SelectorEventLoop) -> None:
    """Close the connections of a loop that is about to end; its next turns release their sockets.

    A connection by TLS that was closed waits for the last message of its peer, up to 30 seconds. One that was
    cancelled before its handshake is known to nobody but the loop.
    """
    for transport in list(loop._transports.values()):  # type: ignore[attr-defined]
        transport.abort()


def keep_lost_connection(error: BaseException) -> None:
    """Give a client the first connection back of its start, which ended with this error.

    A start that is cancelled before the first metadata arrive has no other reference to that connection.
    """
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is AIOKafkaClient.bootstrap.__code__:
            found = trace.tb_frame.f_locals
            if (lost := found.get("bootstrap_conn")) is not None:
                found["self"]._conns["lost"] = lost
        trace = trace.tb_next


LOGIN_ERRORS: Final = (
    NoToken,
    IllegalSaslStateError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
"""Errors of a connection that the brokers did not let in, or that had no token to show."""
_refused: ContextVar[BaseException | None] = ContextVar("refused", default=None)
_connect = AIOKafkaConnection.connect
_authenticator_oauth = AIOKafkaConnection.authenticator_oauth


class LoginRefused(KafkaConnectionError):  # type: ignore[misc]
    """The brokers do not let this client in. It may be tried again: a token or a user may come."""

    def __str__(self) -> str:
        return str(self.args[0])


class _Answering(OAuthAuthenticator):  # type: ignore[misc]
    """Answers the challenge of a broker that refuses a token, as RFC 7628 demands.

    The library takes the challenge for success. The broker then closes the connection without a reason.
    """

    answered = False

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        if not (self._token_sent and payload) or self.answered:
            step: tuple[bytes, bool] | None = await super().step(payload)
            return step
        self.answered = True
        self._sasl_oauth_token_provider.refused()
        return b"\x01", True


def name_refused_logins() -> None:
    """Have connections of this process name the reason of a refused login. May be called again."""
    AIOKafkaConnection.authenticator_oauth = _choose_authenticator
    AIOKafkaConnection.connect = _connect_noting


def _choose_authenticator(connection: AIOKafkaConnection) -> BaseSaslAuthenticator:
    source = connection._sasl_oauth_token_provider
    if isinstance(source, TokenSource):
        return _Answering(sasl_oauth_token_provider=source)
    return _authenticator_oauth(connection)


async def _connect_noting(connection: AIOKafkaConnection) -> Any:
    try:
        return await _connect(connection)
    except LOGIN_ERRORS as error:
        _refused.set(error)
        raise


def refused_login() -> LoginRefused | None:
    """Return the refused login that ended a start of a client in this task, once; None if another reason did.

    The error of the start itself is only that no broker was reached.
    """
    error = _refused.get()
    _refused.set(None)
    return None if error is None else LoginRefused(login_reason(error))


def login_reason(error: BaseException) -> str:
    """Return the text of one of LOGIN_ERRORS, without the name of its class."""
    return str(error.args[0] if error.args and error.args[0] else type(error).__name__)


def pace_metadata(client: Client, pause: float) -> None:
    """Have a client wait `pause` seconds before it asks again for metadata without a leader of its topics.

    A fetcher or a sender that misses a leader asks at once after each answer: more than a thousand requests
    a second if a topic was deleted. Call this before the start of the client.
    """
    connections: AIOKafkaClient = client.client if isinstance(client, AIOKafkaProducer) else client._client
    update = connections._metadata_update

    async def paced(metadata: ClusterMetadata, topics: Collection[str] | None) -> bool:
        is_updated: bool = await update(metadata, topics)
        if not is_updated or any(_lacks_leader(metadata, topic) for topic in topics or ()):
            await asyncio.sleep(pause)
        return is_updated

    connections._metadata_update = paced


def _lacks_leader(metadata: ClusterMetadata, topic: str) -> bool:
    partitions = metadata.partitions_for_topic(topic)
    return not partitions or partitions != metadata.available_partitions_for_topic(topic)


async def send_admin_request(admin: AIOKafkaAdminClient, request: Any, node: int) -> Any:
    """Send a request that the admin client has no method for. Raises KafkaError."""
    return await admin._send_request(request, node)


def encoded_records(batch: RecordBatch) -> EncodedRecords:
    """Uncompress a batch. Its public iterator decodes the names of headers, and fails for the whole batch."""
    batch._maybe_uncompress()
    return EncodedRecords(batch._buffer, batch._pos, batch._num_records)
