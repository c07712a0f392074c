"""What runs in a loop of its own has ended, with its connections, when its thread has."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable

import pytest

from sluicegate.writer_hooks.publisher import LoopThread
from tests.integration.waiting import BACKSTOP

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
