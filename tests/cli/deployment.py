"""A deployment of each test's own: topics, settings, and the command line on it."""

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from click.testing import CliRunner, Result

from sluicegate.cli import main
from sluicegate.coordinator.settings.model import Settings, load
from sluicegate.events.codec import Poison, read_event
from sluicegate.events.encoding import encode
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import CheckpointCompleted, Event, OpeningAnswered, RegionClosed
from sluicegate.events.partitioning import partition_of
from sluicegate.kafka.topics import ensure_topics

PARTITIONS = 3
Record = tuple[bytes, bytes | None]
"""Key and value."""


@dataclass
class Deployment:
    """Settings in a file, and what the tests do with them."""

    config: Path
    env: dict[str, str]

    @property
    def settings(self) -> Settings:
        return load(self.config, self.env)

    def run(self, *arguments: str, **env: str) -> Result:
        """Run a command with this deployment's settings."""
        variables = {**self.env, **env, "SLUICEGATE_CONFIG": str(self.config)}
        return CliRunner().invoke(main, arguments, env=variables)

    def create_topics(self) -> None:
        kafka = self.settings.kafka
        asyncio.run(ensure_topics(kafka.bootstrap_servers, kafka.topic_specs()))

    def write_state(self, *records: Record, transaction: str | None = None) -> None:
        """Append to the state topic, each record to the partition of its stream."""
        asyncio.run(self._write_state(records, transaction))

    async def _write_state(self, records: tuple[Record, ...], transaction: str | None) -> None:
        kafka = self.settings.kafka
        producer = AIOKafkaProducer(
            bootstrap_servers=kafka.bootstrap_servers, acks="all", transactional_id=transaction
        )
        await producer.start()
        try:
            if transaction is not None:
                await producer.begin_transaction()
            for key, value in records:
                partition = partition_of(key.decode().partition("/")[0], PARTITIONS)
                await producer.send_and_wait(kafka.topic_names().state, value, key, partition)
            if transaction is not None:
                await producer.commit_transaction()
        finally:
            await producer.stop()

    def complete(self, stream: str, region: str, lineage: str, *checkpoints: int) -> None:
        """Append completions of checkpoints, without files."""
        asyncio.run(self._complete(stream, region, lineage, checkpoints))

    async def _complete(self, stream: str, region: str, lineage: str, checkpoints: tuple[int, ...]) -> None:
        kafka = self.settings.kafka
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all") as producer:
            for number in checkpoints:
                body = CheckpointCompleted(events=(), predecessor=None, source_digest="d")
                identity = f"{region}-{lineage}-{number}"
                kind = EventType.CHECKPOINT_COMPLETED
                event = Event(Envelope(identity, kind, stream, region, lineage, number), body)
                await _send(producer, kafka.topic_names().events, event)

    def close(self, stream: str, region: str, lineage: str, final: int) -> None:
        """Append that a region has ended."""
        asyncio.run(self._close(stream, region, lineage, final))

    async def _close(self, stream: str, region: str, lineage: str, final: int) -> None:
        kafka = self.settings.kafka
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all") as producer:
            event = Envelope(f"end-{region}", EventType.REGION_CLOSED, stream, region, lineage)
            await _send(producer, kafka.topic_names().events, Event(event, RegionClosed(final=final)))

    def refuse(self, stream: str, region: str, *lineages: str) -> None:
        """Append answers that refuse the openings of these lineages."""
        asyncio.run(self._refuse(stream, region, lineages))

    async def _refuse(self, stream: str, region: str, lineages: tuple[str, ...]) -> None:
        kafka = self.settings.kafka
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all") as producer:
            for lineage in lineages:
                body = OpeningAnswered(opening="o", accepted=False, reason="it names no parent")
                kind = EventType.OPENING_ANSWERED
                event = Event(Envelope(f"no-{lineage}", kind, stream, region, lineage), body)
                await _send(producer, kafka.topic_names().commits, event)

    def set_group_offset(self, partition: int, offset: int) -> None:
        asyncio.run(self._set_group_offset(partition, offset))

    async def _set_group_offset(self, partition: int, offset: int) -> None:
        kafka = self.settings.kafka
        consumer = AIOKafkaConsumer(
            bootstrap_servers=kafka.bootstrap_servers, group_id=kafka.group_id, enable_auto_commit=False
        )
        await consumer.start()
        try:
            source = TopicPartition(kafka.topic_names().events, partition)
            consumer.assign([source])
            await consumer.commit({source: offset})
        finally:
            await consumer.stop()

    def events(self, stream: str) -> list[Event]:
        """Everything in the stream's partition of the events topic."""
        return asyncio.run(self._events(partition_of(stream, PARTITIONS)))

    async def _events(self, partition: int) -> list[Event]:
        kafka = self.settings.kafka
        source = TopicPartition(kafka.topic_names().events, partition)
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers)
        await consumer.start()
        found: list[Event] = []
        try:
            consumer.assign([source])
            consumer.seek(source, 0)
            end = (await consumer.end_offsets([source]))[source]
            while await consumer.position(source) < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    for record in records:
                        event = read_event(record.headers, record.value)
                        assert not isinstance(event, Poison), event
                        found.append(event)
        finally:
            await consumer.stop()
        return found


def make_table(folder: Path, name: str, primary_keys: tuple[str, ...] = ()) -> Path:
    """Make an empty Paimon table in a warehouse; return its folder."""
    import pyarrow as pa
    from pypaimon import CatalogFactory, Schema

    catalog = CatalogFactory.create({"warehouse": str(folder)})
    catalog.create_database("demo", True)
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
    options = {"bucket": "1"} if primary_keys else {}
    schema = Schema.from_pyarrow_schema(columns, primary_keys=list(primary_keys), options=options)
    catalog.create_table(f"demo.{name}", schema, False)
    return folder / "demo.db" / name


def findings(result: Result) -> dict[str, tuple[str, str]]:
    """Read the lines of `check`: verdict and detail by the check's name."""
    lines = [re.fullmatch(r"(OK|WARNING|PROBLEM) +(.+?): (.+)", line) for line in result.stdout.splitlines()]
    assert all(lines), result.output
    return {line[2]: (line[1], line[3]) for line in lines if line is not None}


def as_json(result: Result) -> Any:
    """Parse what a command with --json printed."""
    return json.loads(result.stdout)


async def _send(producer: AIOKafkaProducer, topic: str, event: Event) -> None:
    """Append to the partition of the event's stream."""
    message = encode(event)
    await producer.send_and_wait(
        topic,
        message.value,
        key=message.key,
        headers=message.headers,
        partition=partition_of(event.envelope.stream, PARTITIONS),
    )
