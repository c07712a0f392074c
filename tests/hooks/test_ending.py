"""Threads of the driver end when they are told, at whatever moment that is."""

import asyncio
import contextlib
import gc
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from sluicegate.cli.local.process import free_port
from sluicegate.kafka.topics import TopicNames, ensure_topics, topic_specs
from sluicegate.writer_hooks import publisher
from sluicegate.writer_hooks.commit_feed import Follower
from sluicegate.writer_hooks.publisher import LoopThread
from sluicegate.writer_hooks.region import KafkaSettings
from tests.integration.waiting import BACKSTOP, wait_until
from tests.tls import make_certificates

READING = "reading"
"""Name of the task that reads for a follower."""


def ends(stop: Callable[[], None]) -> bool:
    """Call it, and wait until it returns."""
    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    return wait_until(lambda: not stopping.is_alive(), what="the end of the thread")


async def miss_a_cancellation(arrived: threading.Event) -> None:
    """Wait for a cancellation and suppress it, as the Kafka client does while it closes."""
    with contextlib.suppress(asyncio.CancelledError):
        arrived.set()
        await asyncio.Event().wait()


@pytest.mark.slow
def test_a_task_that_misses_its_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "_CLOSING_PATIENCE", 0.1)
    arrived = threading.Event()

    async def goes_on() -> None:
        await miss_a_cancellation(arrived)
        await asyncio.Event().wait()

    thread = LoopThread("test")
    thread.start(goes_on())
    wait_until(arrived.is_set)
    assert ends(thread.stop)


async def cancel_the_reading(closed: threading.Event) -> None:
    """Cancel it in the very round in which the closing ends."""
    # The closing is a task of its own.
    (reading,) = (each for each in asyncio.all_tasks() if each.get_name() == READING)
    reading.cancel()
    closed.set()


@pytest.mark.slow
@pytest.mark.parametrize("when", [miss_a_cancellation, cancel_the_reading])
def test_reading_that_is_cancelled_while_a_lost_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch, when: Callable[[threading.Event], Coroutine[Any, Any, None]]
) -> None:
    there, close, read = threading.Event(), AIOKafkaConsumer.stop, Follower._read

    async def stop(consumer: AIOKafkaConsumer) -> None:
        await close(consumer)
        await when(there)

    async def named(follower: Follower) -> None:
        reading = asyncio.current_task()
        assert reading is not None
        reading.set_name(READING)
        await read(follower)

    monkeypatch.setattr(AIOKafkaConsumer, "stop", stop)
    monkeypatch.setattr(Follower, "_read", named)
    follower = Follower(KafkaSettings(bootstrap_servers=f"127.0.0.1:{free_port()}"), "commits", None)
    try:
        wait_until(there.is_set)
        if when is cancel_the_reading:
            assert futures.wait([follower._reading], BACKSTOP).done
    finally:
        # One that is left running after a failure disturbs other tests.
        assert ends(follower.stop)


@pytest.mark.kafka
def test_no_connection_is_left_wherever_a_follower_is_stopped(kafka_bootstrap: str, unique: str) -> None:
    asyncio.run(ensure_topics(kafka_bootstrap, topic_specs(TopicNames(unique), partitions=1)))
    topic, steps, reading = TopicNames(unique).commits, 0, False

    async def run(rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)

    while not reading:
        follower = Follower(KafkaSettings(bootstrap_servers=kafka_bootstrap), topic, None)
        follower._thread.call(run(steps), BACKSTOP)
        reading = bool(follower._positions)
        follower.stop()
        steps += 1 + steps // 5
        # A connection that was left open warns when it is collected, and a warning fails the test.
        gc.collect()


NAME = "a-loop-of-its-own"
Ending = Callable[[LoopThread], None]


def released(thread: LoopThread) -> None:
    """Release it, and see it end."""
    thread.release()
    for each in threading.enumerate():
        if each.name == NAME:
            each.join(BACKSTOP)


ENDINGS = pytest.mark.parametrize("end", [LoopThread.stop, released])


@ENDINGS
def test_a_connection_whose_client_could_not_be_closed_is_closed(end: Ending) -> None:
    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            writer.close()

    async def connect() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(*address)
        left.append(asyncio.create_task(read(reader, writer)))
        return writer

    left: list[asyncio.Task[None]] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        thread = LoopThread(NAME)
        writer = thread.call(connect(), BACKSTOP)
        end(thread)
    assert left[0].cancelled()
    assert writer.transport.get_extra_info("socket").fileno() == -1


@pytest.mark.slow
@ENDINGS
def test_a_closed_connection_does_not_wait_for_its_peer_to_say_farewell(end: Ending, tmp_path: Path) -> None:
    """TLS ends with a message of each side. A broker that refuses a client may be slow to send its own."""
    files = make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.server, files.server_key)
    greeted: list[ssl.SSLSocket] = []

    def greet(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        greeted.append(context.wrap_socket(connection, server_side=True))

    async def connect_and_close() -> Any:
        trusted = ssl.create_default_context(cafile=str(files.ca))
        _, writer = await asyncio.open_connection(*address, ssl=trusted)
        found = writer.get_extra_info("socket")
        writer.close()
        return found

    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        server = threading.Thread(target=greet, args=(listening,))
        server.start()
        thread = LoopThread(NAME)
        closed = thread.call(connect_and_close(), BACKSTOP)
        end(thread)
        server.join(BACKSTOP)
    with greeted[0]:
        assert closed.fileno() == -1


@ENDINGS
def test_what_begins_while_the_thread_ends_is_cancelled_too(end: Ending) -> None:
    begun: list[asyncio.Task[bool]] = []

    async def start_another() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        begun.append(asyncio.create_task(asyncio.Event().wait()))

    thread = LoopThread(NAME)
    future = thread.start(start_another())
    thread.call(asyncio.sleep(0), BACKSTOP)
    end(thread)
    assert future.done()
    assert begun[0].cancelled()
