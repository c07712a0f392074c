"""A search for orphans with its own connections, and one whole sweep of a stream."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from sluicegate.coordinator.settings.model import Settings
from sluicegate.lakes.port import FileStatus
from sluicegate.replay.connecting import connect
from sluicegate.replay.orphans import Search
from sluicegate.replay.reading import Print


class Swept(NamedTuple):
    """Result of a sweep."""

    deleted: int
    bytes: int
    left: int
    """Deletable files that were not deleted: something refers to them now, or they do not exist any more."""
    young: int


@asynccontextmanager
async def open_search(settings: Settings, stream: str, grace: int, show: Print) -> AsyncIterator[Search]:
    """Connect a search; `grace` in milliseconds. Raises ReplayRefused, KafkaError, TimeoutError."""
    async with connect(settings, stream) as (log, start, table, _):
        yield Search(stream, log, start, table, grace, show)


async def sweep(settings: Settings, stream: str) -> Swept:
    """Find a stream's orphans and delete them. Raises ReplayRefused, KafkaError, TimeoutError."""
    grace = round(settings.streams[stream].janitor.grace * 1000)
    now = time.time_ns() // 1_000_000
    deleted = size = 0
    async with open_search(settings, stream, grace, lambda _: None) as search:
        found = await search.find(now)
        async for file, status in search.delete(found.files, now):
            if status is FileStatus.DELETED:
                deleted, size = deleted + 1, size + file.size
    return Swept(deleted, size, len(found.files) - deleted, found.young)
