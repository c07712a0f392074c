"""A deployment of each test's own: topics, settings, and the command line on it."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from click.testing import CliRunner, Result

from sluicegate.cli.main import main
from sluicegate.coordinator.settings.model import Settings, load
from sluicegate.events.codec import read_record
from sluicegate.events.envelope import LogRecord, partition_of
from sluicegate.kafka.clients import started
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
        async with started(
            AIOKafkaProducer(
                bootstrap_servers=kafka.bootstrap_servers, acks="all", transactional_id=transaction
            )
        ) as producer:
            if transaction is not None:
                await producer.begin_transaction()
            for key, value in records:
                partition = partition_of(key.decode().partition("/")[0], PARTITIONS)
                await producer.send_and_wait(kafka.topic_names().state, value, key, partition)
            if transaction is not None:
                await producer.commit_transaction()

    def set_group_offset(self, partition: int, offset: int) -> None:
        asyncio.run(self._set_group_offset(partition, offset))

    async def _set_group_offset(self, partition: int, offset: int) -> None:
        kafka = self.settings.kafka
        async with started(
            AIOKafkaConsumer(
                bootstrap_servers=kafka.bootstrap_servers, group_id=kafka.group_id, enable_auto_commit=False
            )
        ) as consumer:
            source = TopicPartition(kafka.topic_names().events, partition)
            consumer.assign([source])
            await consumer.commit({source: offset})

    def events(self, stream: str) -> list[LogRecord]:
        """Return everything in the stream's partition of the events topic."""
        return asyncio.run(self._events(partition_of(stream, PARTITIONS)))

    async def _events(self, partition: int) -> list[LogRecord]:
        kafka = self.settings.kafka
        source = TopicPartition(kafka.topic_names().events, partition)
        found: list[LogRecord] = []
        async with started(AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers)) as consumer:
            consumer.assign([source])
            consumer.seek(source, 0)
            end = (await consumer.end_offsets([source]))[source]
            while await consumer.position(source) < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    for each in records:
                        read = read_record(each.offset, each.timestamp, each.headers, each.value)
                        assert read.record is not None, read.flaw
                        found.append(read.record)
        return found


def make_table(folder: Path, name: str, primary_keys: tuple[str, ...] = ()) -> Path:
    """Make an empty Paimon table in a warehouse; return its folder."""
    import pyarrow as pa
    from pypaimon import CatalogFactory, Schema

    catalog = CatalogFactory.create({"warehouse": str(folder)})
    catalog.create_database("demo", True)
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
    schema = Schema.from_pyarrow_schema(columns, primary_keys=list(primary_keys))
    catalog.create_table(f"demo.{name}", schema, False)
    return folder / "demo.db" / name


def findings(result: Result) -> dict[str, tuple[str, str]]:
    """Read the lines of `check`: verdict and detail by the check's name."""
    lines = [re.fullmatch(r"(OK|WARNING|PROBLEM) +(.+?): (.+)", line) for line in result.stdout.splitlines()]
    assert all(lines), result.output
    return {line[2]: (line[1], line[3]) for line in lines if line is not None}


PAGES = Path(__file__).with_name("pages")


def check_page(
    name: str, deployment: Deployment, stands_for: Mapping[str, str], *, rewrite: bool, exit_code: int = 0
) -> str:
    """Compare the page of `check --table flights` with the expected one, and return it.

    `stands_for`: words of the expected page, by the text of this run that each replaces.
    """
    result = deployment.run("check", "--table", "flights")
    page = result.stdout
    for text, word in sorted(stands_for.items(), key=lambda each: -len(each[0])):
        page = page.replace(text, word)
    page = re.sub(r"snapshot (\d+):\S+,", r"snapshot \1:IDENTITY,", page)
    path = PAGES / f"{name}.txt"
    if rewrite:
        path.write_text(page, encoding="utf-8")
    assert page == path.read_text(encoding="utf-8")
    assert result.exit_code == exit_code
    assert "sluicegate.probe is at" in page
    return result.stdout


def as_json(result: Result) -> Any:
    """Parse what a command with --json printed."""
    return json.loads(result.stdout)
