"""Publication of events to Kafka from blocking code.

`publish` returns after all in-sync replicas have acknowledged the events.
"""

import asyncio
import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    KafkaError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.metadata import MetadataRequest

from sluicegate.events.codec import Flaw, read_attributes, read_files
from sluicegate.events.encoding import TRACEPARENT, Message, encode_event, parse_traceparent
from sluicegate.events.envelope import EventType, partition_of
from sluicegate.events.files import HEADROOM
from sluicegate.events.models import CheckpointCompleted
from sluicegate.events.problems import Problem
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import arm_from, hit
from sluicegate.kafka.clients import spread, start_client, stop_client
from sluicegate.kafka.internals import LoginRefused, abort_connections
from sluicegate.kafka.outages import KAFKA, quiet_clients
from sluicegate.kafka.permissions import grant_of_job
from sluicegate.writer_hooks.errors import EventTooLarge, PublishFailed, TopicMissing
from sluicegate.writer_hooks.region import Event, KafkaSettings, Region

# --- trace context of the running job -----------------------------------------------------------------

TRACEPARENT_VARIABLE: Final = "TRACEPARENT"
"""Variable of the environment for jobs that are started by a traced program."""
TRACED: Final = EventType.CHECKPOINT_COMPLETED
"""Events that carry the context: one for each checkpoint, and the commit knows which it includes."""


def current_traceparent() -> str | None:
    """Return the context of the current span of OpenTelemetry, else of the environment; None without one.

    A job that does not use OpenTelemetry does not load it.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is not None:
        context = api.get_current_span().get_span_context()
        if context.is_valid:
            return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    return parse_traceparent(os.environ.get(TRACEPARENT_VARIABLE))


# --- event loop for blocking callers ------------------------------------------------------------------

_CLOSING_PATIENCE: Final = 10.0
"""Seconds that cancelled tasks get to close their connections."""

T = TypeVar("T")


class LoopThread:
    """Event loop for blocking callers. Its thread is a daemon, so it never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.SelectorEventLoop()
        self._called: set[asyncio.Task[Any] | None] = set()
        """Tasks of `call` and `start`; all others belong to their clients."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            # A client whose own tasks are cancelled under it can lose a connection, which then stays open.
            # Therefore the callers' tasks end first, and close their clients.
            self._loop.run_until_complete(_cancel(lambda: self._called))
            self._loop.run_until_complete(_cancel(asyncio.all_tasks))
            abort_connections(self._loop)
            # Transports that were closed last release their sockets in these additional iterations of the
            # loop.
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
        """Run a coroutine to its end and return its result. Raises TimeoutError after `timeout` seconds."""

        async def bounded() -> T:
            async with asyncio.timeout(max(timeout, 0.001)):
                return await coroutine

        return self.start(bounded()).result()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the background."""

        async def run() -> T:
            task = asyncio.current_task()
            self._called.add(task)
            try:
                return await coroutine
            finally:
                self._called.discard(task)

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    def stop(self) -> None:
        """Cancel all remaining tasks, end the thread, and wait for it, unless it calls this itself."""
        self.release()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def release(self) -> None:
        """Cancel all remaining tasks, and end the thread without waiting for it."""
        with contextlib.suppress(RuntimeError):  # the loop has already ended
            self._loop.call_soon_threadsafe(self._loop.stop)


async def _cancel(tasks: Callable[[], set[Any]]) -> None:
    """Cancel all these tasks, also new ones, and those of clients that were not closed in time."""
    while others := tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        done, _ = await asyncio.wait(others, timeout=_CLOSING_PATIENCE)
        await asyncio.gather(*done, return_exceptions=True)


# --- publication --------------------------------------------------------------------------------------

_LARGEST_REQUEST: Final = 64 * 1024 * 1024  # before compression; the broker's own limit decides
_BATCH: Final = 512 * 1024
"""Bytes of events, before compression, in one message batch of Kafka. Batches go one after the other."""
_PAUSE: Final = 0.2  # seconds between attempts
_TOPIC_GRACE: Final = 3.0  # seconds in which a broker may not have the metadata of a new topic yet
_STOP_TIMEOUT: Final = 5.0
_AT_ONCE: Final = 1_000
"""Events that are published in one call, each with its own timeout."""


class Publisher:
    """One idempotent producer, kept open between calls, with its event loop in a background thread.

    It may be used from several threads, but not after a fork (see `shared_publisher`).
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._producer: AIOKafkaProducer | None = None

    def publish(
        self,
        topic: str,
        events: Sequence[Event],
        timeout: float,
        option: str = "",
        *,
        first: Sequence[Message] = (),
    ) -> None:
        """Append events to their streams' partitions, and wait until all in-sync replicas have them.

        The log has no event without those of `first`, which are of the same stream: they are in one batch of
        Kafka, which it appends whole, or they are acknowledged before. After a transient failure, a new
        producer sends the same events again, for `timeout` seconds in total, which `option` sets. The log may
        then contain an event twice, with the same id. Raises PublishFailed (outcome unknown), TopicMissing or
        EventTooLarge.
        """
        parts = [part for part in (first, encoded(events)) if part]
        if parts:
            sending = _Sending(topic, parts)
            self._insist(topic, timeout, option, sending.send)

    def partitions(self, topic: str, timeout: float, option: str = "") -> int:
        """Return the number of partitions of the topic. Raises the errors of `publish`."""
        return self._insist(topic, timeout, option, lambda producer: _partitions(producer, topic))

    def _insist(
        self,
        topic: str,
        timeout: float,
        option: str,
        work: Callable[[AIOKafkaProducer], Coroutine[Any, Any, T]],
    ) -> T:
        started = time.monotonic()
        refused: LoginRefused | None = None
        # One call at a time: a failed call discards the producer that the others would use.
        with self._lock:
            while True:
                try:
                    return self._attempt(work, started + timeout - time.monotonic())
                except TimeoutError as error:
                    self._discard()
                    # An attempt that the limit ends says less than the one before.
                    raise self._failed(topic, timeout, option, refused or error) from error
                except KafkaError as error:
                    self._discard()
                    refused = error if isinstance(error, LoginRefused) else None
                    waited = time.monotonic() - started
                    self._judge(error, topic, waited)
                    pause = spread(_PAUSE)
                    if waited + pause >= timeout:
                        raise self._failed(topic, timeout, option, error) from error
                    time.sleep(pause)

    def _attempt(self, work: Callable[[AIOKafkaProducer], Coroutine[Any, Any, T]], timeout: float) -> T:
        if self._thread is None:
            self._thread = LoopThread("sluicegate-publisher")

        async def open_and_work() -> T:
            return await work(await self._open())

        found = self._thread.call(open_and_work(), timeout)
        KAFKA.answered()
        return found

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        with self._lock:
            self._discard()

    async def _open(self) -> AIOKafkaProducer:
        if self._producer is None:
            compression = self._settings.compression_type
            producer = AIOKafkaProducer(
                **self._settings.client_options(),
                acks="all",
                enable_idempotence=True,
                compression_type=None if compression == "none" else compression,
                max_request_size=_LARGEST_REQUEST,
                max_batch_size=_BATCH,
            )
            try:
                await start_client(producer)
            except BaseException:
                await stop_client(producer, 0)
                raise
            self._producer = producer
        return self._producer

    def _discard(self) -> None:
        """Drop the producer with its unsent messages. They are sent again with the same ids, or given up."""
        thread, producer = self._thread, self._producer
        self._thread = self._producer = None
        if thread is None:
            return
        if producer is not None:
            with contextlib.suppress(TimeoutError, KafkaError):
                # Without a flush, which would wait for a broker that does not respond.
                thread.call(stop_client(producer, 0), _STOP_TIMEOUT)
        thread.stop()

    def _judge(self, error: KafkaError, topic: str, waited: float) -> None:
        """Raise the error that a retry cannot resolve, if this is one."""
        if isinstance(error, MessageSizeTooLargeError):
            raise EventTooLarge(
                f"an event exceeds the broker's message limit for the topic {topic} even when compressed; "
                "raise the topic's max.message.bytes (or lower the option message.max.bytes if it exceeds it)"
            ) from error
        if isinstance(error, UnknownTopicOrPartitionError):
            if waited < _TOPIC_GRACE:
                return
            raise TopicMissing(
                f"the topic {topic} does not exist on {self._settings.bootstrap_servers}; correct the option "
                "topic.prefix, or, if the coordinator's is the same, create it with: sluicegate topics create"
            ) from error
        if isinstance(error, ClusterAuthorizationFailedError):
            # The broker gives no idempotent producer to a client that may write to no topic at all.
            events = f"{topic.rpartition('.')[0]}.events"
            raise TopicMissing(f"this job may not write. Grant it WRITE on the topic {events}") from error
        if isinstance(error, BrokerResponseError) and "AUTHORIZATION" in error.message:
            raise TopicMissing(
                f"this job may not use the topic {topic} ({error.message}). Grant it {grant_of_job(topic)} "
                f"on the topic {topic}"
            ) from error

    def _failed(self, topic: str, timeout: float, option: str, error: Exception) -> PublishFailed:
        if isinstance(error, LoginRefused):
            return PublishFailed(
                f"Kafka at {self._settings.bootstrap_servers} refuses the login of this job: {error}. "
                "Nothing was deleted, and trying again is safe. Check the options kafka.security.protocol "
                "and kafka.sasl.*"
            )
        limit = f"{timeout:g} s ({option})" if option else f"{timeout:g} s"
        return PublishFailed(
            f"Kafka at {self._settings.bootstrap_servers} did not acknowledge events for the topic {topic} "
            f"within {limit}: {error!r}; nothing was deleted, and trying again is safe. Check that the "
            "brokers run, and the option kafka.bootstrap.servers"
        )


class _Sending:
    """Messages on their way to a topic."""

    def __init__(self, topic: str, parts: Sequence[Sequence[Message]]) -> None:
        """`parts`: the messages of a part may be in the log only with all messages of the part before."""
        self._topic = topic
        self._parts = parts
        self._is_single = False
        """True after Kafka has refused several messages together: each is a part of its own."""

    async def send(self, producer: AIOKafkaProducer) -> None:
        """Append the messages, and wait for the acknowledgements. Raises KafkaError."""
        partitions = await _partitions(producer, self._topic)
        try:
            await self._append_parts(producer, partitions)
        except MessageSizeTooLargeError as error:
            if self._is_single:
                raise
            # The limit is that of a batch, so each message may fit alone. What was refused leaves a gap in
            # the producer's sequence numbers, so another one continues.
            self._parts = [[message] for part in self._parts for message in part]
            self._is_single = True
            raise _BatchTooLarge(str(error)) from error

    async def _append_parts(self, producer: AIOKafkaProducer, partitions: int) -> None:
        if len(self._parts) > 1 and not self._is_single:
            batch = self._whole(producer)
            if batch is not None:
                place = partition_of(self._parts[0][0].stream, partitions)
                await (await producer.send_batch(batch, self._topic, partition=place))
                return
        for part in self._parts:
            await self._append(producer, part, partitions)

    def _whole(self, producer: AIOKafkaProducer) -> BatchBuilder | None:
        """Return all messages as one batch, None if they do not fit into one."""
        batch = producer.create_batch()
        for part in self._parts:
            for key, value, headers in part:
                if batch.append(timestamp=None, key=key, value=value, headers=headers) is None:
                    return None
        return batch

    async def _append(self, producer: AIOKafkaProducer, messages: Sequence[Message], partitions: int) -> None:
        acknowledgements = [
            await producer.send(
                self._topic,
                message.value,
                key=message.key,
                partition=partition_of(message.stream, partitions),
                headers=message.headers,
            )
            for message in messages
        ]
        for outcome in await asyncio.gather(*acknowledgements, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome


class _BatchTooLarge(KafkaError):  # type: ignore[misc]
    """The messages are too large for one batch. Alone each may fit."""


async def _partitions(producer: AIOKafkaProducer, topic: str) -> int:
    """Return the number of partitions of a topic, without creating it.

    On some brokers, a plain metadata request would create a missing topic.
    """
    client = producer.client
    if topic not in client.cluster.topics():
        request = MetadataRequest([topic], allow_auto_topic_creation=False)
        response = await client.send(client.get_random_node(), request)
        code = response.topics[0][0]
        if code:
            raise for_code(code)()
    return len(await producer.partitions_for(topic))


class _Shared:
    """Publishers of this process, by their settings."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._publishers: dict[KafkaSettings, Publisher] = {}
        self._inherited: list[Publisher] = []

    def get(self, settings: KafkaSettings) -> Publisher:
        quiet_clients()
        arm_from(os.environ)
        with self._guard:
            publisher = self._publishers.get(settings)
            if publisher is None:
                publisher = self._publishers[settings] = Publisher(settings)
            return publisher

    def after_fork(self) -> None:
        """Drop the inherited publishers in a forked child.

        A child must not use its parent's sockets. The objects are kept, because their finalizers would close
        them.
        """
        self._guard = threading.Lock()
        self._inherited.extend(self._publishers.values())
        self._publishers = {}

    def close(self) -> None:
        for publisher in list(self._publishers.values()):
            publisher.close()


_shared = _Shared()
os.register_at_fork(after_in_child=_shared.after_fork)
atexit.register(_shared.close)


def shared_publisher(settings: KafkaSettings) -> Publisher:
    """Return the process's publisher for these settings: opened once, shared by all tasks of the process."""
    return _shared.get(settings)


def encoded(events: Sequence[Event]) -> list[Message]:
    """Return events as messages of the present time."""
    now = int(time.time() * 1000)
    messages = [encode_event(envelope, body, now) for envelope, body in events]
    if (context := current_traceparent()) is not None:
        for (envelope, _), message in zip(events, messages, strict=True):
            if envelope.type is TRACED:
                message.headers.append((TRACEPARENT, context.encode()))
    return messages


def publish(region: Region, events: Sequence[Event], timeout: float | None = None) -> None:
    """Publish events of a region in this order; on return, Kafka has acknowledged them.

    `timeout` is in seconds, and by default the option publish.timeout. Raises as `Publisher.publish` does.
    """
    limit = (region.publish_timeout, "publish.timeout") if timeout is None else (timeout,)
    shared_publisher(region.kafka).publish(region.events_topic, events, *limit)


def publish_files(region: Region, events: Sequence[Event], most_held: float = 0) -> tuple[Message, ...]:
    """Publish the events of one attempt; on return, Kafka has acknowledged them. Raises as `publish` does.

    If their bodies have at most `most_held` bytes, they are returned instead, for a driver that publishes
    them.
    """
    if not events:
        return ()
    hit(Failpoint.HOOK_FILES_WRITTEN_BEFORE)
    messages = tuple(encoded(events))
    is_held = sum(len(message.value) for message in messages) <= most_held
    if not is_held:
        publisher = shared_publisher(region.kafka)
        publisher.publish(region.events_topic, (), region.publish_timeout, "publish.timeout", first=messages)
    hit(Failpoint.HOOK_FILES_WRITTEN_AFTER)
    return messages if is_held else ()


def publish_completion(
    region: Region, closing: Sequence[Event], files: Sequence[Message], message_max_bytes: int
) -> None:
    """Publish a completion, with the events that follow it. Raises as `publish` does.

    `files` are the events that it names, as far as nobody has published them. It is never in the log without
    them: the first completion of a checkpoint counts, and another one could not name other events. If it
    names nothing else than one of them, and both fit into one message, it carries these files itself.
    """
    publisher, topic = shared_publisher(region.kafka), region.events_topic
    limit = region.publish_timeout, "publish.timeout"
    if len(files) == 1 and (carrying := _carrying(closing[0], files[0], message_max_bytes)) is not None:
        closing, files = [carrying, *closing[1:]], ()
    hit(Failpoint.HOOK_COMPLETION_BEFORE)
    while len(files) > _AT_ONCE:
        publisher.publish(topic, (), *limit, first=files[:_AT_ONCE])
        files = files[_AT_ONCE:]
    publisher.publish(topic, closing, *limit, first=files)
    hit(Failpoint.HOOK_COMPLETION_AFTER)


def _carrying(completion: Event, written: Message, message_max_bytes: int) -> Event | None:
    """Return a completion with the files of the only event that it names; None if it cannot carry them.

    It takes the id of that event. So a repetition is the same event, and its source digest stays right, which
    depends on the ids of what it includes.
    """
    envelope, body = read_attributes(written.headers), completion.body
    if isinstance(envelope, Flaw) or not isinstance(body, CheckpointCompleted):
        return None
    size = len(written.value) + len(body.model_dump_json()) + HEADROOM
    if body.events != (envelope.id,) or size > message_max_bytes:
        return None
    files = read_files(envelope, written.value)
    if isinstance(files, Problem):
        return None
    carrying = body.model_copy(update={"events": (), "files": files})
    return Event(envelope._replace(type=EventType.CHECKPOINT_COMPLETED), carrying)
