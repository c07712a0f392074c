"""A listener of one stream as its host opens it, and the outcome of a commit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from sluicegate.events.notifications import Notification, NotificationType
from sluicegate.lakes.registry import adapter
from sluicegate.listeners.port import Outcome, Result, Services, Stream
from tests.events.examples import notification_of


def outcome(kind: NotificationType = NotificationType.COMMITTED) -> Outcome:
    found: Any = notification_of(kind)
    return Outcome(found.id, found.type, found.stream, 1_234_567_890_042, found.body)


def stream() -> Stream:
    table = adapter("paimon").parse_table("/lake/db.db/flights", {})
    return Stream("flights", "paimon", table, adapter("paimon"), "sluicegate-flights", partial=True)


async def nothing(_: Notification) -> None:
    raise AssertionError("this listener publishes nothing on the commits topic")


@asynccontextmanager
async def opened(kind: Any, options: Any) -> AsyncIterator[Any]:
    async with aiohttp.ClientSession() as http:
        services = Services(http=http, publish=nothing, in_thread=asyncio.to_thread)
        kind.check(options, stream())
        yield kind.open(options, stream(), services)


async def send(listener: Any, found: Outcome) -> list[Result]:
    """Send what an outcome makes."""
    step = listener.apply(found, listener.initial())
    assert step == listener.apply(found, listener.initial()), "a repetition is the same"
    return [await listener.run(action) for action in step.actions]
