"""A client whose start is given up leaves nothing behind."""

import asyncio
import contextlib
import gc
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError

from sluicegate.kafka import starting
from sluicegate.kafka.starting import start_client


async def _close(client: Any) -> None:
    await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


@pytest.mark.kafka
@pytest.mark.parametrize("make", [AIOKafkaConsumer, AIOKafkaProducer, AIOKafkaAdminClient])
async def test_no_connection_is_left_wherever_a_start_is_cancelled(
    make: Callable[..., Any], kafka_bootstrap: str
) -> None:
    steps, started = 0, False
    while not started:
        client = make(bootstrap_servers=kafka_bootstrap)
        task = asyncio.create_task(start_client(client))
        for _ in range(steps):
            await asyncio.sleep(0)
        started = task.done()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await _close(client)
        steps += 1 + steps // 25
    assert steps > 10, "a start takes some steps"
    # What was left open warns when it is collected, and a warning fails the test.
    gc.collect()


async def test_a_start_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_PATIENCE", 0.01)
    ended = asyncio.Event()

    class Hanging:
        async def start(self) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    task = asyncio.create_task(start_client(Hanging()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_second_cancellation_gives_a_start_up_at_once() -> None:
    ended = asyncio.Event()
    begun = asyncio.Event()

    class Hanging:
        async def start(self) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    task = asyncio.create_task(start_client(Hanging()))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_what_a_start_raises_is_raised() -> None:
    client = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1"):
        await start_client(client)
    await client.stop()
