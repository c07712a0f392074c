"""A job without Spark: writes real files with the writer half, and sends the events of a driver to Kafka."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from sluicegate.events.codec import Flaw, read_body, read_record
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import BODIES, Envelope, EventType, LogRecord, partition_of
from sluicegate.events.files import attempt_label
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    FileInfo,
    FilesWritten,
    Planned,
    Position,
    RegionClosed,
    RegionHeartbeat,
    RegionRegistered,
)
from sluicegate.events.notifications import Notification, RegistrationAnswered, read_notification
from sluicegate.events.problems import Code
from sluicegate.kafka.clients import start_client, started, stop_client
from sluicegate.kafka.topics import TopicNames, ensure_topics, topic_specs
from sluicegate.lakes.registry import adapter
from tests.integration.waiting import until

SCHEMA = pa.schema([("id", pa.int64()), ("origin", pa.string()), ("at", pa.timestamp("ms"))])
PARTITIONS = 3


def create_table(root: Path | str, name: str = "flights", **options: str) -> str:
    """Make an append table; returns its location."""
    catalog = CatalogFactory.create({"warehouse": str(root)})
    catalog.create_database("db", ignore_if_exists=True)
    schema = Schema.from_pyarrow_schema(SCHEMA, options={"bucket": "-1", **options})
    catalog.create_table(f"db.{name}", schema, ignore_if_exists=False)
    return f"{root}/db.db/{name}"


def add_column(location: str, name: str) -> None:
    """Give the table another schema."""
    path = Path(location)
    catalog = CatalogFactory.create({"warehouse": str(path.parents[1])})
    change = SchemaChange.add_column(name, AtomicType("STRING"))
    catalog.alter_table(f"{path.parent.name.removesuffix('.db')}.{path.name}", [change])


def read_ids(location: str) -> list[int]:
    """Every id in the table, by pypaimon's own reader."""
    warehouse, database, name = location.rsplit("/", 2)
    catalog = CatalogFactory.create({"warehouse": warehouse})
    builder = catalog.get_table(f"{database.removesuffix('.db')}.{name}").new_read_builder()
    splits = builder.new_scan().plan().splits()
    return sorted(builder.new_read().to_arrow(splits)["id"].to_pylist()) if splits else []


def rewrite(location: str) -> None:
    """Put all rows of the table into new files, as compaction does."""
    path = Path(location)
    catalog = CatalogFactory.create({"warehouse": str(path.parents[1])})
    table = catalog.get_table(f"{path.parent.name.removesuffix('.db')}.{path.name}")
    reader = table.new_read_builder()
    rows = reader.new_read().to_arrow(reader.new_scan().plan().splits())
    builder = table.new_batch_write_builder().overwrite({})
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(rows)
    commit.commit(write.prepare_commit())
    commit.close()
    write.close()


def expire(location: str, keep: int) -> None:
    """Forget all but the newest snapshots."""
    folder = Path(location) / "snapshot"
    numbers = sorted(int(each.name[9:]) for each in folder.glob("snapshot-*"))
    for number in numbers[:-keep]:
        (folder / f"snapshot-{number}").unlink()


async def delete_records(bootstrap: str, topic: str, stream: str, before: int = -1) -> None:
    """Let retention pass an offset of the stream's partition; -1: all that is there."""
    async with started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        source = TopicPartition(topic, partition_of(stream, PARTITIONS))
        await admin.delete_records({source: RecordsToDelete(before_offset=before)})


async def make_topics(bootstrap: str, prefix: str) -> TopicNames:
    """Make the four topics."""
    names = TopicNames(prefix)
    await ensure_topics(bootstrap, topic_specs(names, partitions=PARTITIONS))
    return names


@dataclass
class Job:
    """One region's writers and driver."""

    bootstrap: str
    topics: TopicNames
    stream: str
    location: str
    region: str = "r1"
    regions: tuple[str, ...] = ("r1",)
    incarnation: str = "q1"
    lake: str = "paimon"
    """Format of the table."""
    lake_options: Mapping[str, str] = field(default_factory=dict)
    """Options of the format's adapter."""
    assignment: int = 0
    batch: int = 0
    base: Position | None = None
    """Position that the incarnation started from."""
    previous: Position | None = None
    """The newest completed checkpoint, or the base."""
    run: str = "none"
    """Id of the newest registration."""
    writers: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By the path of its first file, the writer and the attempt that an event's files are of."""
    partitions: int = PARTITIONS
    """Partitions of each topic."""
    traceparent: bytes | None = None
    """The trace context of its completions."""
    producer: AIOKafkaProducer = field(init=False)

    async def __aenter__(self) -> "Job":
        self.producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all")
        await start_client(self.producer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop_client(self.producer)

    # --- the driver -------------------------------------------------------------------------------

    async def send(
        self,
        event_type: EventType,
        body: Body,
        *,
        checkpoint: int = -1,
        files: int = 0,
        writer: str = "",
        attempt: str = "",
        rows: int = 0,
        size: int = 0,
        table: str = "",
        partition: int | None = None,
    ) -> str:
        """Append an event; returns its id."""
        of_stream = event_type in (EventType.STREAM_COMMAND, EventType.CUT_DECIDED, EventType.STREAM_POLICY)
        region, incarnation = ("", "") if of_stream else (self.region, self.incarnation)
        place = (self.stream, region, incarnation, checkpoint, writer, attempt)
        envelope = Envelope(str(uuid.uuid4()), event_type, *place, files, rows, size, table)
        message = encode_event(envelope, body, time.time_ns() // 1_000_000)
        if self.traceparent is not None and event_type is EventType.CHECKPOINT_COMPLETED:
            message.headers.append(("ce_traceparent", self.traceparent))
        home = partition_of(self.stream, self.partitions)
        await self.producer.send_and_wait(
            self.topics.events,
            message.value,
            key=message.key,
            headers=message.headers,
            partition=home if partition is None else partition,
        )
        return envelope.id

    async def register(self, **how: Any) -> RegistrationAnswered:
        """Register the incarnation and wait for the answer; ask again until the stream has a policy."""
        while True:
            answer = await self.answer_to(await self.send_registration(**how))
            if answer.problem is None or answer.problem.code is not Code.NO_POLICY:
                return answer

    async def answer_to(self, registration: str) -> RegistrationAnswered:
        """Wait for the answer to a registration."""
        found = await until(
            self.notifications, lambda seen: any(_answers(each, registration) for each in seen)
        )
        answer = next(each.body for each in found if _answers(each, registration))
        assert isinstance(answer, RegistrationAnswered)
        return answer

    async def send_registration(self, *, table: str | None = None, after: int = 0, **how: Any) -> str:
        """Append the registration of the incarnation; returns its id."""
        own = self.previous if self.previous and self.previous.incarnation == self.incarnation else None
        planned = (Planned(checkpoint=own.checkpoint, digest=own.digest),) if own else ()
        fields = {"base": self.base, "planned": planned, "bounded": True, **how}
        body = RegionRegistered(
            assignment=Assignment(number=self.assignment, regions=self.regions, after=after),
            table=_uri(table or self.location),
            **fields,
        )
        sent = await self.send(EventType.REGION_REGISTERED, body)
        self.run = self.run if body.probe else sent
        return sent

    async def begin(self, incarnation: str, **how: Any) -> RegistrationAnswered:
        """Register a new incarnation that starts from the committed position and replaces the live one."""
        asked = await self.register(probe=True, **how)
        while asked.unresolved is not None:
            asked = await self.register(probe=True, **how)
        self.incarnation, self.base, self.previous = incarnation, asked.committed, asked.committed
        self.batch = asked.committed.checkpoint + 1 if asked.committed else 0
        return await self.register(replaces=asked.live, **how)

    async def complete(
        self,
        *events: str,
        digest: str | None = None,
        watermark: int | None = None,
        source_offsets: str | None = None,
    ) -> None:
        """Complete the current batch with these events."""
        named = digest or f"range-{self.region}-{self.batch}"
        body = CheckpointCompleted(
            events=events,
            predecessor=self.previous,
            source_digest=named,
            watermark=watermark,
            source_offsets=source_offsets,
        )
        await self.send(EventType.CHECKPOINT_COMPLETED, body, checkpoint=self.batch)
        self.previous = Position(incarnation=self.incarnation, checkpoint=self.batch, digest=named)
        self.batch += 1

    async def run_batch(self, *groups: Sequence[int]) -> None:
        """Write, publish and complete one batch."""
        events = [await self.written(self.write_files(group)) for group in groups]
        await self.complete(*events)

    async def begin_with_a_commit(self) -> None:
        """Register, and commit a first batch with the row 1."""
        assert (answer := await self.register()).accepted, answer
        await self.commit([1], [1])

    async def commit(self, new: Sequence[int], ids: Sequence[int]) -> None:
        """Run one batch, and wait until the table holds exactly these ids."""
        await self.run_batch(new)
        await self.committed(ids)

    async def heartbeat(self, *, idle: bool = False, interval: int | None = None) -> None:
        """Send a heartbeat."""
        after = self.batch - 1 if idle and self.batch else None
        body = RegionHeartbeat(idle=idle, after=after, interval=interval, run=self.run)
        await self.send(EventType.REGION_HEARTBEAT, body)

    async def close(self) -> None:
        """End the region."""
        own = self.previous if self.previous and self.previous.incarnation == self.incarnation else None
        final = own.checkpoint if own else None
        await self.send(EventType.REGION_CLOSED, RegionClosed(final=final, run=self.run))

    # --- the writers ------------------------------------------------------------------------------

    def write_files(
        self, *groups: Sequence[int], writer_options: dict[str, str] | None = None, origin: str = "x"
    ) -> FilesWritten:
        """Write one file per group of ids, all as one attempt of a writer of its own."""
        files: list[FileInfo] = []
        attempt = uuid.uuid4().hex
        name = f"w-{attempt[:8]}"
        label = attempt_label(self.stream, self.region, self.incarnation, self.batch, name, attempt)
        for ids in groups:
            table_ref = adapter(self.lake).parse_table(
                self.location, {**self.lake_options, **(writer_options or {})}
            )
            writer = adapter(self.lake).open_writer(table_ref, "at", label)
            table = pa.table({"id": list(ids), "origin": [origin] * len(ids), "at": [0] * len(ids)})
            for batch in table.cast(SCHEMA).to_batches():
                writer.write(batch)
            files.extend(writer.finish())
            location, schema_id, spec_id = writer.location, writer.schema_id, writer.spec_id
            identity, schema = writer.table_identity, writer.schema_digest
        self.writers[files[0].path] = name, attempt
        return FilesWritten(
            format=self.lake,
            format_version=adapter(self.lake).format_version,
            location=location,
            schema_id=schema_id,
            spec_id=spec_id,
            table_identity=identity,
            schema_digest=schema,
            files=tuple(files),
        )

    async def written(self, body: FilesWritten, **how: Any) -> str:
        """Publish a `files.written` for the current batch, as the attempt that wrote the files."""
        number = uuid.uuid4().hex
        first = body.files[0].path if body.files else ""
        writer, attempt = self.writers.get(first, (f"w-{number[:8]}", number))
        how = {"writer": writer, "attempt": attempt, **how}
        return await self.send(
            EventType.FILES_WRITTEN,
            body,
            checkpoint=self.batch,
            files=len(body.files),
            rows=sum(each.rows for each in body.files),
            size=sum(each.size for each in body.files),
            **how,
        )

    # --- results ----------------------------------------------------------------------------------

    async def notifications(self) -> list[Notification]:
        """Return everything about the stream on the commits topic."""
        found = await read_notifications(self.bootstrap, self.topics.commits, self.partitions)
        return [each for each in found if each.stream == self.stream]

    async def committed(self, ids: Sequence[int]) -> None:
        """Wait until the table holds exactly these ids."""
        await until(lambda: read_ids(self.location), lambda found: found == sorted(ids))


async def read_notifications(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> list[Notification]:
    """Return all notifications of a topic, in the order of their partitions."""
    return [
        found
        for record in await read_records(bootstrap, topic, partitions)
        if not isinstance(found := read_notification(record.headers, record.value), Flaw)
    ]


async def read_events(bootstrap: str, topic: str) -> list[LogRecord]:
    """Return all events of a log with their bodies, in the order of their partitions."""
    found: list[LogRecord] = []
    for record in await read_records(bootstrap, topic):
        read = read_record(record.offset, record.timestamp, record.headers, record.value).record
        if read is not None:
            body = read_body(read.envelope.type, record.value)
            found.append(read._replace(body=body if isinstance(body, BODIES[read.envelope.type]) else None))
    return found


async def read_records(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> list[Any]:
    """All records of a topic."""
    async with started(
        AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    ) as consumer:
        count = 1 if topic.endswith("dead-letters") else partitions
        found = [TopicPartition(topic, number) for number in range(count)]
        ends = await consumer.end_offsets(found)
        consumer.assign(found)
        await consumer.seek_to_beginning(*found)
        records: list[Any] = []
        while any([await consumer.position(source) < ends[source] for source in found]):
            for batch in (await consumer.getmany(timeout_ms=100)).values():
                records.extend(batch)
        return records


def _uri(location: str) -> str:
    return location if "://" in location else Path(location).as_uri()


def _answers(found: Notification, registration: str) -> bool:
    return isinstance(found.body, RegistrationAnswered) and found.body.registration == registration
