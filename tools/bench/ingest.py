"""Events per second into the core's ledger, beside a raw consumer that only counts the same topic.

    python -m tools.bench.ingest [--events 40000] [--pairs 5] [--json]

The events stand in the log before anything is measured: `files.written` of 10 files (and, in a second series,
of one file) with the metadata that the Paimon writer half made of real files, from three regions, and a
completion for every 40 of them. Ours is the whole service in this process: a member of the consumer group
that reads the log from the beginning through `getmany`, `PartitionRunner.take` and the `StreamMachine` of the
stream, with its HTTP endpoints and its clock; a fourth region never registers, so nothing is committed. Raw
is `getmany` with the same fetch options, and a sum of lengths. Both count from their first batch, so that
joining the group and reading state records are left out. They take turns at being first; every round has
topics of its own. The events are produced in large batches, which the raw consumer reads fastest. The service
calms Python's garbage collector; `ratio_same_collector` compares with a raw consumer in a process that does
too. `cpu_ratio` counts the processor time of this process alone, which busy neighbours disturb less.
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.coordinator.service.process import THRESHOLDS, calm_collector
from sluicegate.coordinator.service.service import MOST_RECORDS, Service
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, partition_of, with_counts
from sluicegate.events.files import attempt_label
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    FilesWritten,
    Position,
    RegionRegistered,
    StreamPolicy,
)
from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes.registry import adapter
from tools.bench.common import (
    PARTITIONS,
    STREAM,
    create_table,
    machine,
    make_topics,
    report,
    rows,
)
from tools.bench.raw import raw_consumer

REGIONS: Final = ("r1", "r2", "r3")
ABSENT: Final = "r4"
WRITERS: Final = 40
ROWS: Final = 20
SECONDS: Final = 300.0
DEFAULTS: Final = gc.get_threshold()
SIDES: Final = ("raw", "ours", "calm")


def body_of(table: Path, files: int) -> FilesWritten:
    """Descriptions that the writer half makes of so many real files."""
    writer = adapter("paimon").open_writer(
        adapter("paimon").parse_table(str(table)), "at", attempt_label("s", "r", "q", 0, "w", "a")
    )
    writer.write(rows([f"A{n:02d}" for n in range(files)], 0, ROWS))
    return FilesWritten(
        format="paimon",
        format_version=adapter("paimon").format_version,
        location=writer.location,
        schema_id=writer.schema_id,
        files=tuple(writer.finish()),
    )


def events(body: FilesWritten, count: int) -> Iterator[tuple[Envelope, Body]]:
    """Registrations, and then so many `files.written` and the completions that name them."""
    # Without a policy before them, the registrations would be refused.
    yield Envelope("policy", EventType.STREAM_POLICY, STREAM), StreamPolicy(number=1)
    assignment = Assignment(number=0, regions=(*REGIONS, ABSENT))
    for region in REGIONS:
        envelope = Envelope(f"run-{region}", EventType.REGION_REGISTERED, STREAM, region, f"q-{region}")
        yield envelope, RegionRegistered(assignment=assignment)
    made = checkpoint = 0
    while made < count:
        for region in REGIONS:
            place = (STREAM, region, f"q-{region}", checkpoint)
            ids = [f"{region}-{checkpoint}-{writer:027d}" for writer in range(WRITERS)]
            for writer, event_id in enumerate(ids):
                name = f"p{writer:05d}"
                envelope = Envelope(event_id, EventType.FILES_WRITTEN, *place, name, uuid.uuid4().hex)
                yield with_counts(envelope, body), body
            last = max(checkpoint - 1, 0)
            before = Position(incarnation=f"q-{region}", checkpoint=last, digest=f"{region}-{last}")
            completion = CheckpointCompleted(
                events=tuple(ids),
                predecessor=before if checkpoint else None,
                source_digest=f"{region}-{checkpoint}",
            )
            envelope = Envelope(f"{region}-{checkpoint}-done", EventType.CHECKPOINT_COMPLETED, *place)
            yield envelope, completion
            made += WRITERS + 1
        checkpoint += 1


async def put(bootstrap: str, topics: TopicNames, made: Iterable[tuple[Envelope, Body]]) -> TopicPartition:
    """Put events into the log; the partition that they stand in."""
    home = TopicPartition(topics.events, partition_of(STREAM, PARTITIONS))
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=1 << 20, linger_ms=5)
    await producer.start()
    try:
        for envelope, event in made:
            key, value, headers = encode_event(envelope, event, time.time_ns() // 1_000_000)
            await producer.send(topics.events, value, key=key, headers=headers, partition=home.partition)
        await producer.flush()
    finally:
        await producer.stop()
    return home


class Mark(NamedTuple):
    """Numbers of events by time, and their cost in this process."""

    seen: int
    time: float
    cpu: float


def mark(seen: int) -> Mark:
    return Mark(seen, time.perf_counter(), time.process_time())


class Rate(NamedTuple):
    """Events per second, by the clock and by the processor time of this process alone."""

    clock: float
    cpu: float


def rate(first: Mark, last: Mark) -> Rate:
    count = last.seen - first.seen
    return Rate(count / (last.time - first.time), count / (last.cpu - first.cpu))


async def raw(bootstrap: str, home: TopicPartition, end: int, thresholds: tuple[int, int, int]) -> Rate:
    """A consumer that only adds up lengths."""
    gc.set_threshold(*thresholds)
    consumer = raw_consumer(bootstrap)
    await consumer.start()
    try:
        consumer.assign([home])
        await consumer.seek_to_beginning(home)
        first: Mark | None = None
        seen = size = 0
        while seen < end:
            batches = await consumer.getmany(timeout_ms=200, max_records=MOST_RECORDS)
            for records in batches.values():
                seen += len(records)
                size += sum(len(record.value) for record in records)
            if seen and first is None:
                first = mark(seen)
        if first is None:
            raise RuntimeError("the topic is empty")
        return rate(first, mark(seen))
    finally:
        await consumer.stop()
        gc.set_threshold(*DEFAULTS)


async def ours(bootstrap: str, topics: TopicNames, table: Path, home: TopicPartition, end: int) -> Rate:
    """The service."""
    settings = Settings.model_validate(
        {
            "kafka": {
                "bootstrap_servers": bootstrap,
                "topic_prefix": topics.prefix,
                "group_id": topics.prefix,
                "partitions": PARTITIONS,
            },
            "http": {"port": 0},
            "streams": {STREAM: {"table": str(table)}},
        }
    )
    # As the process of a service does it, for a process that is the coordinator's alone.
    calm_collector()
    service, stop = Service(settings), asyncio.Event()
    running = asyncio.create_task(service.run(stop))
    try:
        async with asyncio.timeout(SECONDS):
            first = await _beyond(service, running, home, 0)
            last = await _beyond(service, running, home, end - 1)
    finally:
        stop.set()
        await running
        gc.set_threshold(*DEFAULTS)
    return rate(first, last)


async def _beyond(service: Service, running: "asyncio.Task[None]", home: TopicPartition, offset: int) -> Mark:
    """Wait until the service has read beyond an offset.

    Each look has a cost that grows with what is pending, so there are few: the rate counts from look to look.
    """
    while not running.done():
        partition = service.status()["partitions"].get(str(home.partition))
        if partition is not None and partition["position"] > offset:
            return mark(partition["position"])
        await asyncio.sleep(0.05)
    raise RuntimeError("the service ended")


async def series(bootstrap: str, folder: Path, files: int, count: int, pairs: int) -> dict[str, Any]:
    """Measure both, pair by pair."""
    create_table(folder, f"of_{files}")
    table = folder / "db.db" / f"of_{files}"
    body = body_of(table, files)
    found: dict[str, list[Rate]] = {side: [] for side in SIDES}
    for pair in range(pairs):
        topics = await make_topics(bootstrap)
        home = await put(bootstrap, topics, events(body, count))
        end = await end_of(bootstrap, home)
        # The service appends its policy when it has read everything, so all read up to the same end.
        for side in SIDES[pair % 3 :] + SIDES[: pair % 3]:
            gc.collect()
            if side == "ours":
                found[side].append(await ours(bootstrap, topics, table, home, end))
            else:
                thresholds = DEFAULTS if side == "raw" else THRESHOLDS
                found[side].append(await raw(bootstrap, home, end, thresholds))
    return {
        "files_per_event": files,
        "metadata_bytes": sum(len(file.metadata) for file in body.files),
        "body_bytes": len(body.model_dump_json()),
        "events": count,
        "raw_per_s": round(statistics.median(each.clock for each in found["raw"])),
        "ours_per_s": round(statistics.median(each.clock for each in found["ours"])),
        "ratio": _ratio(found["ours"], found["raw"]).clock,
        "ratios": [
            round(mine.clock / bare.clock, 2) for mine, bare in zip(found["ours"], found["raw"], strict=True)
        ],
        "cpu_ratio": _ratio(found["ours"], found["raw"]).cpu,
        "ratio_same_collector": _ratio(found["ours"], found["calm"]).clock,
        "cpu_ratio_same_collector": _ratio(found["ours"], found["calm"]).cpu,
    }


def _ratio(mine: list[Rate], bare: list[Rate]) -> Rate:
    """The medians of the ratios, round by round."""
    pairs = list(zip(mine, bare, strict=True))
    return Rate(
        round(statistics.median(one.clock / other.clock for one, other in pairs), 2),
        round(statistics.median(one.cpu / other.cpu for one, other in pairs), 2),
    )


async def end_of(bootstrap: str, home: TopicPartition) -> int:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        end: int = (await consumer.end_offsets([home]))[home]
        return end
    finally:
        await consumer.stop()


async def measure(bootstrap: str, folder: Path, count: int, pairs: int, *, as_json: bool) -> None:
    """Both series: large events and small ones."""
    for files in (10, 1):
        found = await series(bootstrap, folder, files, count, pairs)
        report({**found, **machine()}, as_json=as_json)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=40_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        asyncio.run(
            measure(kafka.bootstrap, Path(folder), arguments.events, arguments.pairs, as_json=arguments.json)
        )


if __name__ == "__main__":
    main()
