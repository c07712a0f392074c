"""Several processes that read one Kafka topic into one table, exactly once, without Spark.

The driver plans a checkpoint: a range of offsets for each partition of the source topic. Worker processes
read the ranges, write files, and publish their events. The driver completes the checkpoint with the end
offsets. After a crash of any of them, reading continues after the newest checkpoint that counts.

    python examples/kafka_consumers.py 127.0.0.1:9092 orders /tmp/lake/warehouse/default.db/orders

Records are JSON objects with the columns of the table. With --once the program ends when it has read what is
in the topic. Run a coordinator (`sluicegate run`) with the same Kafka and a stream `orders` for the table.
"""

import argparse
import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.writer_hooks import OpenCheckpoint, RegionDriver, WriterResult

RECORDS = 1_000
"""The most records of one partition in one checkpoint."""
PAUSE = 1.0
"""Seconds between two looks at a topic without new records."""

Ranges = dict[str, tuple[int, int]]
"""By partition, the first offset and the one after the last."""


async def read_range(bootstrap: str, source: TopicPartition, start: int, end: int) -> list[dict[str, object]]:
    """Return the records of a range. Offsets without a record, as after a compaction, are passed over."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    await consumer.start()
    try:
        consumer.assign([source])
        consumer.seek(source, start)
        found = []
        while await consumer.position(source) < end:
            batch = (await consumer.getmany(source, timeout_ms=500)).get(source, [])
            found += [json.loads(each.value) for each in batch if each.offset < end]
        return found
    finally:
        await consumer.stop()


async def plan(bootstrap: str, topic: str, starts: Mapping[str, int]) -> Ranges:
    """Return the next range of each partition that has new records."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, isolation_level="read_committed")
    await consumer.start()
    try:
        sources = sorted(consumer.assignment())  # without a group, all partitions of the topic
        first, ends = await consumer.beginning_offsets(sources), await consumer.end_offsets(sources)
    finally:
        await consumer.stop()
    found = {}
    for source in sources:
        start = starts.get(str(source.partition), first[source])
        if start < first[source]:
            raise SystemExit(f"{source} begins at {first[source]}, and {start} is next: records were deleted")
        if start < ends[source]:
            found[str(source.partition)] = (start, min(ends[source], start + RECORDS))
    return found


def write_range(checkpoint: str, bootstrap: str, topic: str, partition: str, bounds: tuple[int, int]) -> str:
    """Write one range; runs in a worker process. Return the result for the driver."""
    rows = asyncio.run(read_range(bootstrap, TopicPartition(topic, int(partition)), *bounds))
    written = OpenCheckpoint.from_json(checkpoint).write(f"p{partition}", pa.Table.from_pylist(rows))
    return written.to_json()


class Workers:
    """A pool of processes that is made again when one of them is killed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: Executor | None = None

    def write(
        self, checkpoint: OpenCheckpoint, bootstrap: str, topic: str, ranges: Ranges
    ) -> list[WriterResult]:
        """Write all ranges. Those of a killed process are written again, all others as well."""
        while True:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(self._count, get_context("spawn"))
            text = checkpoint.to_json()
            try:
                running = [
                    self._pool.submit(write_range, text, bootstrap, topic, partition, bounds)
                    for partition, bounds in ranges.items()
                ]
                return [WriterResult.from_json(each.result()) for each in running]
            except BrokenProcessPool:
                print("a worker process was killed; its checkpoint is written again", flush=True)
                self._pool = None

    def stop(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown()


async def run(
    driver: RegionDriver,
    workers: Workers,
    bootstrap: str,
    topic: str,
    *,
    once: bool,
    starts: Mapping[str, int],
) -> None:
    """Write checkpoints until the topic has no new records; without `once`, for ever.

    `starts` counts only while the region has no position: later the coordinator knows where to continue.
    """
    after = driver.committed
    offsets: dict[str, int] = dict(starts if after is None else after.source_offsets)
    checkpoint = None
    while True:
        ranges = await plan(bootstrap, topic, offsets)
        if not ranges:
            if once:
                break
            await asyncio.sleep(PAUSE)
            continue
        checkpoint = driver.begin()
        results = workers.write(checkpoint, bootstrap, topic, ranges)
        offsets |= {partition: end for partition, (_, end) in ranges.items()}
        driver.complete(checkpoint, results, source_offsets=offsets)
        print(
            f"checkpoint {checkpoint.number}: {sum(each.written.rows for each in results)} rows", flush=True
        )
    if checkpoint is not None:
        driver.await_commit(checkpoint)


def main() -> None:
    """Run a driver and its workers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bootstrap", help="Kafka, host:port")
    parser.add_argument("topic", help="the source topic")
    parser.add_argument("table", help="location of the table")
    parser.add_argument("--format", default="paimon", help="that of the table")
    parser.add_argument("--regions", default="orders", help="all regions of the stream")
    parser.add_argument("--assignment", default="0", help="number of this list of regions")
    parser.add_argument("--topic-prefix", default="sluicegate", help="that of the coordinator")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--starts", type=json.loads, default={}, help='first offset by partition, such as {"0": 17}; else all'
    )
    parser.add_argument("--option", action="append", default=[], help="another one, NAME=VALUE")
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args()
    options = {
        "stream": "orders",
        "region": "orders",
        "regions": given.regions,
        "assignment": given.assignment,
        "table": given.table,
        "format": given.format,
        "kafka.bootstrap.servers": given.bootstrap,
        "topic.prefix": given.topic_prefix,
        "registration.timeout": "forever",  # wait for a coordinator; the log says so after 10 s
        **dict(each.split("=", 1) for each in given.option),
    }
    workers = Workers(given.workers)
    try:
        with RegionDriver(options) as driver:
            place = (driver, workers, given.bootstrap, given.topic)
            asyncio.run(run(*place, once=given.once, starts=given.starts))
    finally:
        workers.stop()


if __name__ == "__main__":
    main()
