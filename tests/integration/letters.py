"""Raw messages in, dead letters out."""

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from sluicegate.coordinator.service.service import Service
from sluicegate.events.dead_letters import CODE_HEADER, REASON_HEADER, SOURCE_HEADER
from sluicegate.events.envelope import MAJOR_VERSION, partition_of
from sluicegate.events.notifications import Stalled
from sluicegate.events.problems import Problem
from tests.integration.job import PARTITIONS, Job, read_records

RawMessage = tuple[bytes | None, Sequence[tuple[str, bytes]]]
"""Value and headers."""


class RawName(str):
    """A header's name that is encoded to bytes that are no UTF-8."""

    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        return b"\xff\xfe" + super().encode()


def home_of(stream: str) -> int:
    """The partition of a stream."""
    return partition_of(stream, PARTITIONS)


def typed(event_type: str, version: int = MAJOR_VERSION) -> str:
    """An event's type on the wire."""
    return f"sluicegate.{event_type}.v{version}"


async def put_raw(
    job: Job, value: bytes | None, headers: Mapping[str, bytes], partition: int | None = None
) -> int:
    """Append a message as it is to the stream's partition, or another; returns its offset."""
    sent = await job.producer.send_and_wait(
        job.topics.events,
        value,
        key=b"raw",
        partition=home_of(job.stream) if partition is None else partition,
        headers=list(headers.items()),
    )
    return int(sent.offset)


async def put_batch(
    bootstrap: str, topic: str, partition: int, messages: Sequence[RawMessage], key: bytes | None = b"raw"
) -> int:
    """Append messages in one batch, also with names that are no UTF-8; returns the first offset."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        batch = producer.create_batch()
        # Only the library's own Python twin asks the name how it is encoded.
        batch._builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, 0, 1 << 20)
        for value, headers in messages:
            batch.append(timestamp=None, key=key, value=value, headers=headers)
        sent = await (await producer.send_batch(batch, topic, partition=partition))
        return int(sent.offset)


def headers_of(job: Job, event_type: str, *, checkpoint: int | None = None, **more: str) -> dict[str, bytes]:
    """The headers of an event of the job's region."""
    headers = {
        "ce_id": f"raw-{event_type}-{checkpoint}",
        "ce_type": event_type,
        "ce_specversion": "1.0",
        "ce_source": "/raw",
        "content-type": "application/json",
        "ce_stream": job.stream,
        "ce_region": job.region,
        "ce_incarnation": job.incarnation,
        **more,
    }
    if checkpoint is not None:
        headers["ce_checkpoint"] = str(checkpoint)
    if event_type == typed("files.written"):
        headers = {"ce_writer": "w0", "ce_attempt": "a0", "ce_files": "1", **headers}
    return {name: value.encode() for name, value in headers.items()}


async def letters(job: Job) -> list[tuple[str, str]]:
    """Source and reason of every dead letter."""
    found: list[tuple[str, str]] = []
    for record in await read_records(job.bootstrap, job.topics.dead_letters):
        headers = dict(record.headers)
        found.append((headers[SOURCE_HEADER].decode(), headers[REASON_HEADER].decode()))
    return found


def source(job: Job, offset: int, partition: int | None = None) -> str:
    """How dead letters name a place in the events topic."""
    return f"{job.topics.events}/{home_of(job.stream) if partition is None else partition}/{offset}"


async def codes(job: Job) -> list[tuple[str, str]]:
    """Source and code of every dead letter."""
    found: list[tuple[str, str]] = []
    for record in await read_records(job.bootstrap, job.topics.dead_letters):
        headers = dict(record.headers)
        found.append((headers[SOURCE_HEADER].decode(), headers[CODE_HEADER].decode()))
    return found


async def stalls(job: Job) -> list[Problem]:
    """Return the stalls of the job's stream that were announced."""
    bodies = [each.body for each in await job.notifications()]
    return [each.problem for each in bodies if isinstance(each, Stalled) and not each.ended]


def conditions(service: Service, stream: str = "flights") -> list[dict[str, Any]]:
    """Return the conditions of a stream as /status shows them."""
    found: list[dict[str, Any]] = service.status()["streams"].get(stream, {}).get("conditions", [])
    return found


def stalled(service: Service, stream: str = "flights") -> str | None:
    """Return the code of the gravest stall of a stream; None if it does not stall."""
    return next((each["code"] for each in conditions(service, stream) if each["kind"] == "stall"), None)
