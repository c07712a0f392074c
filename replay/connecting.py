"""Connections of a replay: the log, the state to begin with, and the table."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import NamedTuple

from sluicegate.coordinator.settings.model import Settings
from sluicegate.lakes.port import TableRefused
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.log import StreamLog, open_log, stream_records
from sluicegate.replay.start import Start
from sluicegate.replay.tables import ReplayTable


class Connected(NamedTuple):
    """A stream's log from its start, and its table."""

    log: StreamLog
    start: Start
    table: ReplayTable
    threads: ThreadPoolExecutor


@asynccontextmanager
async def connect(settings: Settings, stream: str) -> AsyncIterator[Connected]:
    """Connect to the log and the table of a stream. Raises ReplayRefused, KafkaError, TimeoutError."""
    records = await stream_records(settings, stream)
    with ThreadPoolExecutor(1) as threads:
        try:
            table = ReplayTable(settings.streams[stream], threads, stream)
        except TableRefused as error:
            raise ReplayRefused(str(error)) from error
        async with open_log(settings, stream) as log:
            yield Connected(log, await log.start(records), table, threads)
        table.close()
