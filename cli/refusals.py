"""Refused lineages of a region, from the answers to its openings."""

import asyncio
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.cli.kafka import POLL_MS, partition_count
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.codec import read_event
from sluicegate.events.envelope import EventType
from sluicegate.events.models import Event, OpeningAnswered
from sluicegate.events.partitioning import partition_of
from sluicegate.events.codec import read_envelope
from sluicegate.events.envelope import Poison
from sluicegate.kafka.starting import start_client

PATIENCE: Final = 30.0
"""Timeout of the read, in seconds."""
_FIRST_WINDOW: Final = 1_000


class Refusals(NamedTuple):
    """Refused lineages of a region."""

    lineages: list[str]
    """The lineages, the newest refusal first."""
    whole: bool
    """True if every kept answer was read, or the wanted lineage was found."""


async def refused_lineages(settings: Settings, stream: str, region: str, wanted: str) -> Refusals:
    """Return the refused lineages of a region, back to the wanted one. Raises KafkaError, UserError.

    After PATIENCE seconds the result has the lineages found so far.
    """
    topic = settings.kafka.topic_names().commits
    source = TopicPartition(topic, partition_of(stream, await partition_count(settings, topic)))
    consumer = AIOKafkaConsumer(
        **settings.kafka.client_options(),
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
    )
    found: list[str] = []
    try:
        await start_client(consumer)
        begin = (await consumer.beginning_offsets([source]))[source]
        end = (await consumer.end_offsets([source]))[source]
        consumer.assign([source])
        window = _FIRST_WINDOW
        async with asyncio.timeout(PATIENCE):
            # Read backwards in growing windows: the refusal is usually minutes old, and days of commits
            # precede it.
            while end > begin and wanted not in found:
                start = max(begin, end - window)
                older = await _refused_between(consumer, source, (start, end), (stream, region))
                found += [each for each in older if each not in found]
                end, window = start, 4 * window
    except TimeoutError:
        return Refusals(found, whole=False)
    finally:
        await consumer.stop()
    return Refusals(found, whole=True)


async def _refused_between(
    consumer: AIOKafkaConsumer, source: TopicPartition, span: tuple[int, int], of: tuple[str, str]
) -> list[str]:
    """Return the lineages that were refused between two offsets, the second excluded; the newest first."""
    start, end = span
    consumer.seek(source, start)
    found: list[str] = []
    while await consumer.position(source) < end:
        for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
            found += [lineage for each in records if each.offset < end and (lineage := _refused(each, of))]
    return list(dict.fromkeys(reversed(found)))


def _refused(record: Any, of: tuple[str, str]) -> str | None:
    envelope = read_envelope(record.headers)
    if isinstance(envelope, Poison) or envelope.type is not EventType.OPENING_ANSWERED:
        return None
    if (envelope.stream, envelope.region) != of:
        return None
    event = read_event(record.headers, record.value)
    refused = isinstance(event, Event) and isinstance(event.body, OpeningAnswered) and not event.body.accepted
    return envelope.lineage if refused else None
