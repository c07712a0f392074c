"""Offsets of Kafka sources, in the notation of Spark, and the partitions of their topics."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sluicegate.kafka.clients import started
from sluicegate.writer_hooks.errors import BadOption, PublishFailed
from sluicegate.writer_hooks.publisher import LoopThread, shared_publisher
from sluicegate.writer_hooks.region import KAFKA_PREFIX, KafkaSettings
from sluicegate.writer_hooks.registration import Stopped, running
from sluicegate.writer_hooks.spark.regions.division import DivisionRefused, Source

Offsets = dict[str, dict[int, int]]
"""By topic and partition, the next offset to read; -2: the earliest one."""

EARLIEST: Final = -2
LATEST: Final = -1


def parse_offsets(text: str) -> Offsets:
    """Parse offsets in Spark's notation, `{"topic": {"0": 23}}`. Raises BadOption."""
    try:
        found = json.loads(text)
        return {
            str(topic): {int(partition): int(offset) for partition, offset in own.items()}
            for topic, own in found.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise BadOption(
            f"offsets of a Kafka source are no JSON of topics and partitions: {text[:200]}; write them as "
            '{"topic": {"0": 23}}, or earliest or latest'
        ) from error


def to_text(offsets: Mapping[str, Mapping[int, int]]) -> str:
    """Return offsets in Spark's notation."""
    return json.dumps(
        {topic: {str(each): own[each] for each in sorted(own)} for topic, own in sorted(offsets.items())}
    )


def union(regions: Iterable[tuple[str, Offsets]]) -> Offsets:
    """Return the offsets of all regions together; each partition must have one offset.

    Raises DivisionRefused if two regions are at different offsets of one partition: rows between them are
    written in one region, and not in the other.
    """
    found: Offsets = {}
    holders: dict[tuple[str, int], str] = {}
    for region, offsets in regions:
        for topic, own in offsets.items():
            for partition, offset in own.items():
                known = found.setdefault(topic, {}).setdefault(partition, offset)
                holder = holders.setdefault((topic, partition), region)
                if known != offset:
                    raise DivisionRefused(
                        f"the regions {holder} and {region} have read the partition {partition} of the topic "
                        f"{topic} up to different offsets ({known} and {offset}), so no other division "
                        "continues them. Run the old division with the trigger availableNow while nothing "
                        "is produced, and repeat the change"
                    )
    return found


def starts(known: Offsets, assigned: Mapping[str, Iterable[int]]) -> Offsets:
    """Return where the partitions of a region start. An unknown partition is new: it is read whole."""
    return {
        topic: {each: known.get(topic, {}).get(each, EARLIEST) for each in partitions}
        for topic, partitions in assigned.items()
    }


# --- partitions of the topics, and where they begin ---------------------------------------------------

_TIMEOUT: Final = 60.0  # seconds
_TRY: Final = 10.0  # seconds, after which a stop is noticed


def connection_of(source: Source, sink: Mapping[str, str]) -> KafkaSettings:
    """Return the connection to the source's Kafka. Raises BadOption."""
    given = source.connection
    if given is None:
        given = {name: value for name, value in sink.items() if name.lower().startswith(KAFKA_PREFIX)}
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
