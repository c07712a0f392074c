"""Parts that the benchmarks share: servers, the coordinator as a process, a region's events, and figures."""

import asyncio
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from pypaimon import CatalogFactory, Schema

from sluicegate.cli.local.process import ChildProcess, free_port
from sluicegate.events.codec import Flaw, read_record
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, LogRecord, partition_of, with_counts
from sluicegate.events.files import attempt_label
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    FilesWritten,
    Position,
    RegionRegistered,
)
from sluicegate.events.notifications import Notification, RegistrationAnswered, read_notification
from sluicegate.events.problems import Code
from sluicegate.kafka.topics import TopicNames, ensure_topics, topic_specs

STREAM: Final = "bench"
PARTITIONS: Final = 3
READY_SECONDS: Final = 60.0
WRITER: Final = "w0"
ATTEMPT: Final = "a0"

MEASURES: Final = tuple(f"measure_{n:02d}" for n in range(24))
SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("origin", pa.string()),
        ("carrier", pa.string()),
        *((name, pa.float64()) for name in MEASURES),
        ("at", pa.timestamp("ms")),
    ]
)
"""As wide as tables of events are: the metadata of a file of it takes about 650 bytes."""

_SETTINGS: Final = """\
[kafka]
bootstrap_servers = "{bootstrap}"
topic_prefix = "{prefix}"
group_id = "{prefix}"
partitions = {partitions}

[http]
port = {port}

[streams.{stream}]
table = "{table}"
"""


def create_table(warehouse: Path, name: str) -> Any:
    """Make an append table that is partitioned by origin, and keeps statistics; pypaimon's object of it."""
    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("db", True)
    options = {"bucket": "-1", "metadata.stats-mode": "full"}
    schema = Schema.from_pyarrow_schema(SCHEMA, partition_keys=["origin"], options=options)
    catalog.create_table(f"db.{name}", schema, False)
    return catalog.get_table(f"db.{name}")


def rows(origins: Sequence[str], first: int, each: int) -> pa.RecordBatch:
    """Rows of these origins, as many of each, with ids from `first`."""
    count = len(origins) * each
    columns: list[Any] = [
        pa.array(range(first, first + count), pa.int64()),
        pa.array([origin for origin in origins for _ in range(each)], pa.string()),
        pa.array(["UA"] * count, pa.string()),
        *(pa.array([n % 90 - 10.5 for n in range(count)], pa.float64()) for _ in MEASURES),
        pa.array([1_357_000_000_000 + n * 60_000 for n in range(count)], pa.int64()).cast(pa.timestamp("ms")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


async def make_topics(bootstrap: str) -> TopicNames:
    """Make four topics of a new prefix."""
    names = TopicNames(f"b{uuid.uuid4().hex[:10]}")
    await ensure_topics(bootstrap, topic_specs(names, partitions=PARTITIONS))
    return names


def label_of(checkpoint: int, stream: str = STREAM, region: str = "r1", incarnation: str = "q1") -> str:
    """Attempt in the names of the files that a `Region` lists for a checkpoint."""
    return attempt_label(stream, region, incarnation, checkpoint, WRITER, ATTEMPT)


@dataclass
class Region:
    """A region's writers and driver, without the job."""

    bootstrap: str
    topics: TopicNames
    name: str = "r1"
    stream: str = STREAM
    regions: tuple[str, ...] = ("r1",)
    incarnation: str = "q1"
    previous: Position | None = None
    registration: str = ""
    """Id of the newest registration."""
    producer: AIOKafkaProducer = field(init=False)

    async def __aenter__(self) -> "Region":
        self.producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True
        )
        await self.producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.producer.stop()

    def envelope(self, kind: EventType, checkpoint: int = -1) -> Envelope:
        place = (self.stream, self.name, self.incarnation, checkpoint)
        written = (WRITER, ATTEMPT) if kind is EventType.FILES_WRITTEN else ()
        return Envelope(str(uuid.uuid4()), kind, *place, *written)

    def label(self, checkpoint: int) -> str:
        """Attempt in the names of the files that are listed for a checkpoint."""
        return label_of(checkpoint, self.stream, self.name, self.incarnation)

    async def send(self, envelope: Envelope, body: Body) -> "asyncio.Future[Any]":
        """Append an event; the future holds its offset and append time."""
        message = encode_event(envelope, body, time.time_ns() // 1_000_000)
        sent: asyncio.Future[Any] = await self.producer.send(
            self.topics.events,
            message.value,
            key=message.key,
            headers=message.headers,
            partition=partition_of(self.stream, PARTITIONS),
        )
        return sent

    async def register(self) -> None:
        """Register the incarnation, without waiting for the answer."""
        body = RegionRegistered(assignment=Assignment(number=0, regions=self.regions))
        envelope = self.envelope(EventType.REGION_REGISTERED)
        self.registration = envelope.id
        await (await self.send(envelope, body))

    async def written(self, checkpoint: int, body: FilesWritten) -> tuple[str, "asyncio.Future[Any]"]:
        """Append a `files.written`; its id, and the future of its acknowledgement."""
        envelope = with_counts(self.envelope(EventType.FILES_WRITTEN, checkpoint), body)
        return envelope.id, await self.send(envelope, body)

    async def complete(self, checkpoint: int, events: Sequence[str]) -> "asyncio.Future[Any]":
        """Append the completion of a checkpoint."""
        digest = f"{self.name}-{checkpoint}"
        body = CheckpointCompleted(events=tuple(events), predecessor=self.previous, source_digest=digest)
        self.previous = Position(incarnation=self.incarnation, checkpoint=checkpoint, digest=digest)
        return await self.send(self.envelope(EventType.CHECKPOINT_COMPLETED, checkpoint), body)


async def read_topic(bootstrap: str, topic: str) -> AsyncIterator[Any]:
    """All records of a topic as it is now."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        sources = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        ends = await consumer.end_offsets(sources)
        consumer.assign(sources)
        await consumer.seek_to_beginning(*sources)
        while any([await consumer.position(source) < ends[source] for source in sources]):
            for records in (await consumer.getmany(timeout_ms=100)).values():
                for record in records:
                    yield record
    finally:
        await consumer.stop()


async def read_log(bootstrap: str, topics: TopicNames) -> AsyncIterator[LogRecord]:
    """All events of the log as it is now."""
    async for record in read_topic(bootstrap, topics.events):
        reading = read_record(record.offset, record.timestamp, record.headers, record.value)
        if reading.record is not None:
            yield reading.record


async def read_notifications(bootstrap: str, topics: TopicNames) -> AsyncIterator[tuple[int, Notification]]:
    """All notifications as of now, each with its append time in milliseconds."""
    async for record in read_topic(bootstrap, topics.commits):
        if not isinstance(found := read_notification(record.headers, record.value), Flaw):
            yield record.timestamp, found


async def wait_until_registered(bootstrap: str, topics: TopicNames, *regions: Region) -> None:
    """Wait until all these regions are accepted; register again what came before the stream's policy."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        answers: dict[str, RegistrationAnswered] = {}
        async for _, found in read_notifications(bootstrap, topics):
            if isinstance(found.body, RegistrationAnswered):
                answers[found.body.registration] = found.body
        known = [(region, answers.get(region.registration)) for region in regions]
        for region, answer in known:
            if answer is not None and answer.problem is not None:
                if answer.problem.code is not Code.NO_POLICY:
                    raise RuntimeError(answer.reason)
                await region.register()
        if all(answer is not None and answer.accepted for _, answer in known):
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("no answer to the registration")


def write_settings(
    folder: Path, bootstrap: str, topics: TopicNames, table: str | Path, port: int = 8080
) -> Path:
    """Write the settings of the stream's coordinator; returns the file."""
    settings = folder / "sluicegate.toml"
    settings.write_text(
        _SETTINGS.format(
            bootstrap=bootstrap,
            prefix=topics.prefix,
            partitions=PARTITIONS,
            port=port,
            stream=STREAM,
            table=table,
        )
    )
    return settings


def start_coordinator(settings: Path, environment: Mapping[str, str] | None = None) -> ChildProcess:
    """Start the coordinator as a process of its own; its log stands beside the settings."""
    command = [sys.executable, *_PROFILE, "-c", "from sluicegate.cli.main import main; main()"]
    return ChildProcess(
        [*command, "run", "--config", str(settings)],
        log_file=settings.parent / "coordinator.log",
        cwd=settings.parent,
        env={**os.environ, **environment} if environment is not None else None,
    )


@contextmanager
def coordinator(folder: Path, bootstrap: str, topics: TopicNames, table: Path) -> Iterator[ChildProcess]:
    """Give the coordinator as a process of its own, with default settings, once it is ready."""
    port = free_port()
    process = start_coordinator(write_settings(folder, bootstrap, topics, table, port))
    try:
        wait_ready(process, port, folder / "coordinator.log")
        yield process
    finally:
        process.end(20.0)


_PROFILE: Final = os.environ.get("BENCH_PYTHON_OPTIONS", "").split()
"""Options of the coordinator's interpreter, such as a profiler's."""


def wait_ready(process: ChildProcess, port: int, log_file: Path) -> None:
    """Wait until it serves. Raises RuntimeError with the end of its log."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise RuntimeError(f"the coordinator does not serve: {log_file.read_text()[-2000:]}")


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    ordered = sorted(values)
    picked = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    last = len(ordered) - 1
    return {name: round(ordered[round(last * share)], 2) for name, share in picked.items()}


def machine() -> dict[str, Any]:
    """Conditions of the figures: cores, and their load."""
    return {"cores": os.cpu_count(), "load": [round(each, 2) for each in os.getloadavg()]}


def report(figures: dict[str, Any], *, as_json: bool) -> None:
    """Print the figures, one a line or as one line of JSON."""
    if as_json:
        print(json.dumps(figures), flush=True)
        return
    for name, value in figures.items():
        print(f"{name}: {value}", flush=True)
