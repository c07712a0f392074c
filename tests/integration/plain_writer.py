"""A writer that shares no code with the product: Kafka, JSON, Parquet, and docs/writers/contract.md."""

import hashlib
import json
import os
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

ROWS: Final = pa.schema([("id", pa.int64()), ("origin", pa.string()), ("at", pa.timestamp("ms"))])


@dataclass
class Manners:
    """What a writer does wrong."""

    partition: int = 0
    """Added to the right partition, for events of checkpoints."""
    key: bytes | None = None
    """Key of all events, instead of theirs."""
    digest: str = ""
    """Digest in the names of files, instead of theirs."""
    folder: str = "bucket-0"
    drops: str = ""
    """Header that events lack."""
    awaits: bool = True
    """False: files come before the answer."""
    unknown: bool = False
    """Completions name an event that is not published."""
    beats: bool = True
    interval: int = 10_000
    """Milliseconds between heartbeats, as events state it."""


@dataclass
class PlainWriter:
    """Driver and task of one region."""

    bootstrap: str
    prefix: str
    stream: str
    region: str
    table: Path
    manners: Manners = field(default_factory=Manners)

    async def __aenter__(self) -> Self:
        self.incarnation = uuid.uuid4().hex
        self.base: Any = None
        self.run = "none"
        self.producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True
        )
        await self.producer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.producer.stop()

    async def home(self, topic: str) -> int:
        """Return the partition of the stream."""
        count = len(await self.producer.partitions_for(topic))
        return zlib.crc32(self.stream.encode()) % count

    async def publish(
        self, kind: str, body: Mapping[str, Any], checkpoint: int | None = None, **more: str
    ) -> str:
        """Publish an event; return its id."""
        event = str(uuid.uuid4())
        attributes = {
            "ce_id": event,
            "ce_type": f"sluicegate.{kind}.v5",
            "ce_specversion": "1.0",
            "ce_source": "/plain-writer",
            "content-type": "application/json",
            "ce_stream": self.stream,
            "ce_region": self.region,
            "ce_incarnation": self.incarnation,
            **({"ce_checkpoint": str(checkpoint)} if checkpoint is not None else {}),
            **{f"ce_{name}": value for name, value in more.items()},
        }
        headers = [(name, text.encode()) for name, text in attributes.items() if name != self.manners.drops]
        key = "/".join([self.stream, self.region, *([str(checkpoint)] if checkpoint is not None else [])])
        topic = f"{self.prefix}.events"
        count = len(await self.producer.partitions_for(topic))
        await self.producer.send_and_wait(
            topic,
            json.dumps(body).encode(),
            self.manners.key or key.encode(),
            (await self.home(topic) + (self.manners.partition if checkpoint is not None else 0)) % count,
            headers=headers,
        )
        return event

    async def register(self) -> dict[str, Any]:
        """Probe for the position, register there, and return the answer."""
        probe = await self._ask({"probe": True})
        self.base = probe["committed"]
        answer = await self._ask({"base": self.base, "replaces": probe["live"]})
        if answer["accepted"]:
            self.run = answer["registration"]
        return answer

    async def _ask(self, more: Mapping[str, Any]) -> dict[str, Any]:
        topic = f"{self.prefix}.commits"
        place = TopicPartition(topic, await self.home(topic))
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, isolation_level="read_committed"
        )
        await consumer.start()
        try:
            consumer.assign([place])
            await consumer.seek_to_end(place)
            await consumer.position(place)
            assignment = {"number": 0, "regions": [self.region]}
            asked = await self.publish("region.registered", {"assignment": assignment, **more})
            while True:
                record = await consumer.getone()
                body = json.loads(record.value)
                kind = dict(record.headers)["ce_type"]
                if kind == b"sluicegate.registration.answered.v5" and body["registration"] == asked:
                    return dict(body)
        finally:
            await consumer.stop()

    def write(self, checkpoint: int, attempt: str, ids: list[int]) -> dict[str, Any]:
        """Write a file durably; return its fields."""
        text = f"{self.stream}/{self.region}/{self.incarnation}/{checkpoint}/w-0/{attempt}"
        digest = self.manners.digest or hashlib.sha256(text.encode()).hexdigest()[:32]
        path = f"{self.manners.folder}/data-{digest}-{self.incarnation[:16]}-{checkpoint}-0.parquet"
        place = self.table / path
        place.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"id": number, "origin": self.region, "at": None} for number in ids]
        pq.write_table(pa.Table.from_pylist(rows, schema=ROWS), place)
        for name in (place, place.parent):
            descriptor = os.open(name, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        return {"path": path, "size": place.stat().st_size, "rows": len(ids)}

    async def checkpoint(self, number: int, ids: list[int], predecessor: Any) -> dict[str, Any]:
        """Write and complete a checkpoint; return its position."""
        attempt = uuid.uuid4().hex
        file = self.write(number, attempt, ids)
        body = {"format": "paimon", "location": self.table.as_uri(), "schema_id": 0, "files": [file]}
        event = await self.publish("files.written", body, number, writer="w-0", attempt=attempt, files="1")
        events = [event, *([str(uuid.uuid4())] if self.manners.unknown else [])]
        digest = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
        completion = {"events": events, "predecessor": predecessor, "source_digest": digest}
        await self.publish("checkpoint.completed", completion, number)
        return {"incarnation": self.incarnation, "checkpoint": number, "digest": digest}

    async def beat(self, **more: Any) -> None:
        """Send a heartbeat."""
        await self.publish("region.heartbeat", {"run": self.run, **more})

    async def trial(self, checkpoints: int = 2) -> None:
        """Do some checkpoints, and end in order."""
        if self.manners.awaits:
            await self.register()
        last = self.base
        for number in range(checkpoints):
            if self.manners.beats:
                await self.beat(idle=False, interval=self.manners.interval)
            last = await self.checkpoint(number, [2 * number, 2 * number + 1], last)
        if not self.manners.awaits:
            await self.register()
        if self.manners.beats:
            await self.beat(idle=True, after=checkpoints - 1)
