"""Streams that no coordinator serves although some run: members of a group with different settings."""

import asyncio
import time
from typing import Any, Final

from aiokafka.errors import KafkaError

from sluicegate.cli.errors import UserError
from sluicegate.cli.finding import Finding, warning
from sluicegate.cli.kafka import count_members, partition_count, read_dated_records
from sluicegate.cli.live import ask_member
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.envelope import partition_of

PATIENCE: Final = 10.0
"""Seconds in which coordinators that have just started join their group and write the first state records."""
_AGAIN: Final = 0.5
"""Seconds between two looks."""


async def check_served(settings: Settings) -> list[Finding]:
    """Warn of each stream that no coordinator serves, after PATIENCE for coordinators that have just started.

    Other checks report problems of Kafka and of the topics.
    """
    deadline = time.monotonic() + PATIENCE
    try:
        while found := await _find_unserved(settings):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_AGAIN)
    except (KafkaError, UserError, TimeoutError, OSError):
        return []
    return [warning(f"stream {stream}", format_unserved(stream, settings.kafka.group_id)) for stream in found]


async def _find_unserved(settings: Settings) -> list[str]:
    """Return the streams of the settings that nobody serves. Raises KafkaError, UserError, TimeoutError."""
    if not await count_members(settings):
        return []
    count = await partition_count(settings, settings.kafka.topic_names().events)
    records, member = await read_dated_records(settings), await ask_member(settings)
    return [
        stream
        for stream in settings.streams
        if is_unserved(stream, partition_of(stream, count), member, recorded=stream in records)
    ]


def is_unserved(stream: str, partition: int, member: dict[str, Any] | None, *, recorded: bool) -> bool:
    """Return True if the running coordinators are known not to serve a stream.

    `member` is the answer of one of them; None if it does not answer. Its `partitions` are those whose
    streams it has started. `recorded` is True if the stream has a state record. The first owner writes one
    at once.
    """
    if member is not None:
        if stream in member["streams"]:
            return False
        if str(partition) in member["partitions"]:
            return True
    return not recorded


def format_unserved(stream: str, group: str) -> str:
    """Format the message for a stream that nobody serves."""
    return (
        f"coordinators run in group {group}, but none of them serves stream {stream}. Give all members of "
        "the group the same settings, and send them SIGHUP or restart them. If one has just started, look "
        "again in some seconds"
    )
