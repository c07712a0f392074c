"""Partitions of the topics of a Kafka source, and where they begin."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.kafka.clients import started
from sluicegate.writer_hooks.errors import BadOption, PublishFailed
from sluicegate.writer_hooks.kafka import PREFIX, KafkaSettings
from sluicegate.writer_hooks.loop_thread import LoopThread
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.registration import Stopped, running
from sluicegate.writer_hooks.spark.regions.offsets import EARLIEST, LATEST, Offsets, parse_offsets
from sluicegate.writer_hooks.spark.regions.source import Source

_TIMEOUT: Final = 60.0  # seconds
_TRY: Final = 10.0  # seconds, after which a stop is noticed


def connection_of(source: Source, sink: Mapping[str, str]) -> KafkaSettings:
    """Return the connection to the source's Kafka. Raises BadOption."""
    given = source.connection
    if given is None:
        given = {name: value for name, value in sink.items() if name.lower().startswith(PREFIX)}
        servers = source.option("kafka.bootstrap.servers")
        if servers is not None:
            given = {**given, "kafka.bootstrap.servers": servers}
    return KafkaSettings.from_options(given)


def partitions_of(kafka: KafkaSettings, topics: Sequence[str], stopped: Stopped = running) -> dict[str, int]:
    """Return the number of partitions of each topic, or fail early when `stopped` returns True.

    Raises TopicMissing and PublishFailed.
    """
    publisher, deadline = shared_publisher(kafka), time.monotonic() + _TIMEOUT

    def count(topic: str) -> int:
        while True:
            try:
                return publisher.partitions(topic, _TRY)
            except PublishFailed:
                if stopped() or time.monotonic() >= deadline:
                    raise

    return {topic: count(topic) for topic in topics}


def first_offsets(kafka: KafkaSettings, source: Source, topics: Mapping[str, int]) -> Offsets:
    """Return where a source begins that no region has read, from its option startingOffsets.

    The latest offsets are looked up, so that every later start of the plan uses the same ones. Raises
    BadOption and PublishFailed.
    """
    text = source.option("startingOffsets") or "latest"
    places = {topic: range(count) for topic, count in topics.items()}
    if text.lower() in ("earliest", "latest"):
        offset = EARLIEST if text.lower() == "earliest" else LATEST
        found = {topic: dict.fromkeys(own, offset) for topic, own in places.items()}
    else:
        found = parse_offsets(text)
        known = {topic: set(own) for topic, own in found.items()}
        if known != {topic: set(own) for topic, own in places.items()}:
            raise BadOption(
                f"the option startingOffsets of the source must have each partition of its topics "
                f"({', '.join(f'{topic}: {count}' for topic, count in topics.items())}), and no other: {text}"
            )
    return _resolved(kafka, found)


def _resolved(kafka: KafkaSettings, offsets: Offsets) -> Offsets:
    latest = [
        TopicPartition(topic, each) for topic, own in offsets.items() for each in own if own[each] == LATEST
    ]
    if not latest:
        return offsets
    thread = LoopThread("sluicegate-listing")
    try:
        ends = thread.call(_ends(kafka, latest), _TIMEOUT)
    except (KafkaError, TimeoutError) as error:
        raise PublishFailed(
            f"the ends of the source's topics on {kafka.bootstrap_servers} cannot be read ({error!r}); "
            "starting again is safe"
        ) from error
    finally:
        thread.stop()
    return {
        topic: {each: ends.get(TopicPartition(topic, each), offset) for each, offset in own.items()}
        for topic, own in offsets.items()
    }


async def _ends(kafka: KafkaSettings, places: list[TopicPartition]) -> dict[TopicPartition, int]:
    consumer = AIOKafkaConsumer(**kafka.client_options(), enable_auto_commit=False)
    async with started(consumer):
        return dict(await consumer.end_offsets(places))
