"""Checkpoints of one-process drivers: completions that carry their files, beside a `files.written` for each.

    python -m tools.bench.carried [--checkpoints 20000] [--pairs 5] [--driven 30] [--json]

Ingested: the log has so many checkpoints of one file each, of three regions, in one of the two ways. The
service reads it from the beginning as `tools.bench.ingest` has it, and a fourth region never registers, so
nothing is committed. The two ways take turns at being first, and each round has topics of its own.
`cpu_ratio` counts the processor time of this process alone, which busy neighbours disturb less.

Applied: the same events go to the codec and to the core alone, in memory.

Driven: a `RegionDriver` writes so many checkpoints into a table, one after the other. The figures are the
events of the log for each checkpoint, heartbeats and registrations left out, and the milliseconds from
`begin` to the acknowledgement of `complete`; in the former way, the writer runs as in another process.
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import structlog

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.coordinator.core.effects import MachineSettings
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.events.codec import read_record
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import PER_CHECKPOINT, Envelope, EventType, with_counts
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    FilesWritten,
    Position,
    RegionRegistered,
    StreamPolicy,
)
from sluicegate.kafka.bodies import Bodies, Budget
from sluicegate.kafka.topics import TopicNames
from sluicegate.writer_hooks import RegionDriver
from tools.bench.common import (
    STREAM,
    coordinator,
    create_table,
    machine,
    make_topics,
    quantiles,
    read_log,
    report,
    rows,
)
from tools.bench.ingest import ABSENT, REGIONS, Rate, body_of, end_of, ours, put

WAYS: Final = ("former", "carried")
KIND: Final = EventType.CHECKPOINT_COMPLETED


def checkpoints(body: FilesWritten, count: int, way: str) -> Iterator[tuple[Envelope, Body]]:
    """Yield a policy, registrations, and so many checkpoints of one writer each."""
    yield Envelope("policy", EventType.STREAM_POLICY, STREAM), StreamPolicy(number=1)
    assignment = Assignment(number=0, regions=(*REGIONS, ABSENT))
    for region in REGIONS:
        envelope = Envelope(f"run-{region}", EventType.REGION_REGISTERED, STREAM, region, f"q-{region}")
        yield envelope, RegionRegistered(assignment=assignment)
    for number in range(count // len(REGIONS)):
        for region in REGIONS:
            yield from _checkpoint(body, region, number, way)


def _checkpoint(body: FilesWritten, region: str, number: int, way: str) -> Iterator[tuple[Envelope, Body]]:
    event, digest = str(uuid.uuid4()), f"{region}-{number}"
    place = (STREAM, region, f"q-{region}", number)
    last = max(number - 1, 0)
    before = Position(incarnation=f"q-{region}", checkpoint=last, digest=f"{region}-{last}")
    done: dict[str, Any] = {
        "predecessor": before if number else None,
        "source_digest": digest,
        "source_offsets": f'{{"next": {number}}}',
    }
    written = with_counts(Envelope(event, EventType.FILES_WRITTEN, *place, "w0", uuid.uuid4().hex), body)
    if way == "carried":
        yield written._replace(type=KIND), CheckpointCompleted(files=body, **done)
    else:
        yield written, body
        yield Envelope(str(uuid.uuid4()), KIND, *place), CheckpointCompleted(events=(event,), **done)


def applied(body: FilesWritten, count: int, pairs: int) -> dict[str, Any]:
    """Return the checkpoints per second of processor time that the codec and the core take, without Kafka."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    logs = {way: [encode_event(*each, time_ms=0) for each in checkpoints(body, count, way)] for way in WAYS}
    for pair in range(pairs):
        for way in WAYS if pair % 2 == 0 else reversed(WAYS):
            core = StreamMachine(STREAM, 0, None, MachineSettings(StreamPolicy(number=0)))
            bodies = Bodies(Budget(1 << 30))
            gc.collect()
            started = time.process_time()
            for offset, (_, value, headers) in enumerate(logs[way]):
                read = read_record(offset, offset, headers, value).record
                if read is None:
                    raise RuntimeError("an event cannot be read")
                core.step(read)
                if read.envelope.writer:
                    bodies.keep(offset, read.envelope, value)
            found[way].append(count / (time.process_time() - started))
    pairs_of = zip(found["carried"], found["former"], strict=True)
    return {
        "applied": count,
        **{f"{way}_per_cpu_s": round(statistics.median(found[way])) for way in WAYS},
        "cpu_ratio": round(statistics.median(now / before for now, before in pairs_of), 2),
    }


async def ingested(bootstrap: str, folder: Path, count: int, pairs: int) -> dict[str, Any]:
    """Return the checkpoints per second of both ways, pair by pair."""
    create_table(folder, "ingested")
    table = folder / "db.db" / "ingested"
    body = body_of(table, 1)
    found: dict[str, list[Rate]] = {way: [] for way in WAYS}
    for pair in range(pairs):
        for way in WAYS if pair % 2 == 0 else reversed(WAYS):
            topics = await make_topics(bootstrap)
            home = await put(bootstrap, topics, checkpoints(body, count, way))
            end = await end_of(bootstrap, home)
            gc.collect()
            events = await ours(bootstrap, topics, table, home, end)
            each = 1 if way == "carried" else 2
            found[way].append(Rate(events.clock / each, events.cpu / each))
    pairs_of = list(zip(found["carried"], found["former"], strict=True))
    return {
        "checkpoints": count,
        "former_per_s": round(statistics.median(each.clock for each in found["former"])),
        "carried_per_s": round(statistics.median(each.clock for each in found["carried"])),
        "ratio": round(statistics.median(now.clock / before.clock for now, before in pairs_of), 2),
        "ratios": [round(now.clock / before.clock, 2) for now, before in pairs_of],
        "cpu_ratio": round(statistics.median(now.cpu / before.cpu for now, before in pairs_of), 2),
    }


def drive(bootstrap: str, topics: TopicNames, table: Path, count: int) -> dict[str, list[float]]:
    """Write so many checkpoints in each way, in turn; return their milliseconds."""
    options = {
        "stream": STREAM,
        "region": "r1",
        "table": str(table),
        "format": "paimon",
        "kafka.bootstrap.servers": bootstrap,
        "topic.prefix": topics.prefix,
    }
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with RegionDriver(options) as driver:
        for number in range(2 * count):
            way = WAYS[number % 2]
            started = time.perf_counter()
            checkpoint = driver.begin()
            writing = checkpoint if way == "carried" else replace(checkpoint, process="another")
            result = writing.write("w0", rows(["A00"], 20 * number, 20))
            driver.complete(checkpoint, [result], source_offsets={"next": number})
            found[way].append(1000 * (time.perf_counter() - started))
        driver.await_commit(checkpoint)
    return found


async def driven(bootstrap: str, folder: Path, count: int) -> dict[str, Any]:
    """Return the events and the time of each checkpoint of a driver."""
    create_table(folder, "driven")
    table, topics = folder / "db.db" / "driven", await make_topics(bootstrap)
    with coordinator(folder, bootstrap, topics, table):
        times = await asyncio.to_thread(drive, bootstrap, topics, table, count)
    seen = dict.fromkeys(range(2 * count), 0)
    async for record in read_log(bootstrap, topics):
        if record.envelope.type in PER_CHECKPOINT:
            seen[record.envelope.checkpoint] += 1
    events = {way: [seen[number] for number in seen if WAYS[number % 2] == way] for way in WAYS}
    return {
        "driven": count,
        **{f"{way}_events_per_checkpoint": max(events[way]) for way in WAYS},
        **{f"{way}_ms": quantiles(times[way]) for way in WAYS},
    }


async def measure(bootstrap: str, folder: Path, options: argparse.Namespace) -> None:
    """Measure all, and report."""
    create_table(folder, "applied")
    body = body_of(folder / "db.db" / "applied", 1)
    report({**applied(body, options.checkpoints, options.pairs), **machine()}, as_json=options.json)
    found = await ingested(bootstrap, folder, options.checkpoints, options.pairs)
    report({**found, **machine()}, as_json=options.json)
    found = await driven(bootstrap, folder, options.driven)
    report({**found, **machine()}, as_json=options.json)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoints", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--driven", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        asyncio.run(measure(kafka.bootstrap, Path(folder), options))


if __name__ == "__main__":
    main()
