"""What the hook adds to a micro-batch, over the same files without events, in round trips to the broker.

    python -m bench.hook_batches [--format paimon] [--tasks 1,4,16,64] [--batches 12] [--rounds 5] [--json]

Batches of ten rows a task follow each other without a pause, in one session of two cores. The plain sink
writes the same files with the same writer, and publishes nothing: no registration, no event, no completion.
It runs before ours and after it, because a session becomes faster with time.
Ours is the data source with its events, with a coordinator at work, and with one that is frozen (SIGSTOP).
The duration of a batch is Spark's own (`triggerExecution`). The first batches of each query do not count. A
round runs all of them once for each number of tasks. What ours adds is the difference of the medians of
all batches. A round trip is the median time of a small event of the same publisher, from the call to the
acknowledgement of Kafka, with nothing else at work. Kafka has one broker on loopback.
"""

import argparse
import asyncio
import logging
import os
import signal
import statistics
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from bench.common import machine, make_topics, report
from bench.hooks import Served, make_session, served
from sluicegate.embedded import EmbeddedKafka
from sluicegate.events.envelope import EventType
from sluicegate.events.models import RegionHeartbeat
from sluicegate.writer_hooks.attempt import write_attempt
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.publisher import Publisher
from sluicegate.writer_hooks.region import Attempt
from sluicegate.writer_hooks.spark.warm import keep_modules
from tests.faults.tables import create_table, kind_of

if TYPE_CHECKING:
    import pyarrow as pa

ROOT: Final = Path(__file__).parents[1]
ROWS: Final = 10
"""Of a task."""
WARM_UP: Final = 3
"""Batches of a query that do not count."""
TRIPS: Final = 200
_START: Final = 1_700_000_000_000
SINKS: Final = ("plain", "ours", "frozen")


class PlainWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writer of files that nobody hears of."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Write the files of a task."""
        from pyspark import TaskContext

        options = SinkOptions.parse(self._options)
        attempt = Attempt("plain", 0, f"p{TaskContext.get().partitionId():05d}")
        write_attempt(options.region, attempt, options.target(), iterator)
        # Ours does so too: the garbage collection after each task is Spark's, and no part of the comparison.
        keep_modules()
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing."""


class PlainSource(DataSource):  # type: ignore[misc]
    """Data source of the same files without events."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "plain"

    def streamWriter(self, schema: StructType, overwrite: bool) -> PlainWriter:
        """Return the writer of a batch."""
        return PlainWriter(dict(self.options))


def start(
    spark: SparkSession, place: Path, sink: str, options: Mapping[str, str], tasks: int
) -> StreamingQuery:
    """Start a query whose batches follow each other without a pause."""
    time_type = kind_of(Path(options["table"])).SPARK_TIME
    wanted = {"rowsPerBatch": str(tasks * ROWS), "numPartitions": str(tasks)}
    rows = spark.readStream.format("rate-micro-batch").options(**wanted, startTimestamp=str(_START)).load()
    rows = rows.selectExpr("value as id", "'o' as origin", f"cast(timestamp as {time_type}) as at")
    writing = rows.writeStream.format(sink).options(**options).option("checkpointLocation", str(place))
    return writing.trigger(processingTime="0 seconds").start()


def batches_of(query: StreamingQuery, count: int) -> list[int]:
    """Wait for the next batches; return the milliseconds of each. Raises RuntimeError if the query fails."""
    first = len(query.recentProgress) + WARM_UP
    while len(query.recentProgress) < first + count:
        if not query.isActive:
            raise RuntimeError(f"the query has ended: {query.exception()}")
        time.sleep(0.02)
    return [each["durationMs"]["triggerExecution"] for each in query.recentProgress[first : first + count]]


def round_trips(table: Served, bootstrap: str) -> list[float]:
    """Return the milliseconds in which Kafka acknowledges small events, one after the other."""
    region = SinkOptions.parse({**table.sink, "checkpointLocation": "/none"}).region
    topics = asyncio.run(make_topics(bootstrap))
    publisher = Publisher(region.kafka)
    found = []
    for _ in range(TRIPS):
        event = region.event(EventType.REGION_HEARTBEAT, "i", RegionHeartbeat(run=str(uuid.uuid4())))
        begun = time.perf_counter()
        publisher.publish(topics.events, [event], 60.0)
        found.append((time.perf_counter() - begun) * 1000)
    publisher.close()
    return found[TRIPS // 10 :]


def one_round(
    spark: SparkSession, root: Path, bootstrap: str, lake: str, tasks: int, count: int
) -> tuple[dict[str, list[int]], list[float]]:
    """Run all sinks with one table; return durations of batches and of round trips, in milliseconds."""
    folder = root / uuid.uuid4().hex
    path = create_table(folder, "t", lake)
    found = {}
    with served(lake, folder, bootstrap, (str(path), kind_of(path).options(path))) as table:
        trips = round_trips(table, bootstrap)
        before = plain(spark, folder / "before", table, tasks, count)
        query = start(spark, folder / "ours", "sluicegate", table.sink, tasks)
        found["ours"] = batches_of(query, count)
        table.process.send(signal.SIGSTOP)
        found["frozen"] = batches_of(query, count)
        table.process.send(signal.SIGCONT)
        newest = query.recentProgress[-1]["batchId"]
        query.stop()
        table.await_commit(newest)
        found["plain"] = before + plain(spark, folder / "after", table, tasks, count)
    return found, trips


def plain(spark: SparkSession, place: Path, table: Served, tasks: int, count: int) -> list[int]:
    """Run a query of the plain sink; return the milliseconds of its batches."""
    query = start(spark, place, "plain", table.sink, tasks)
    found = batches_of(query, count)
    query.stop()
    return found


def summary(tasks: int, rounds: Sequence[tuple[Mapping[str, list[int]], list[float]]]) -> dict[str, Any]:
    """Return the figures of one number of tasks."""
    trip = statistics.median(each for _, trips in rounds for each in trips)
    found: dict[str, Any] = {"tasks": tasks, "rounds": len(rounds), "round_trip_ms": round(trip, 2)}
    medians = {
        sink: statistics.median(each for batches, _ in rounds for each in batches[sink]) for sink in SINKS
    }
    found |= {f"{sink}_ms": each for sink, each in medians.items()}
    for sink in SINKS[1:]:
        added = medians[sink] - medians["plain"]
        found |= {f"{sink}_added_ms": added, f"{sink}_round_trips": round(added / trip, 1)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--format", default="paimon")
    parser.add_argument("--tasks", default="1,4,16,64")
    parser.add_argument("--batches", type=int, default=12, help="of each query that count")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    # The workers of Spark import the plain sink.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    counts = [int(each) for each in given.tasks.split(",")]
    rounds = defaultdict(list)
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka() as kafka:
        spark = make_session(Path(name))
        spark.dataSource.register(PlainSource)
        for _ in range(given.rounds):
            for tasks in counts:
                one = one_round(spark, Path(name), kafka.bootstrap, given.format, tasks, given.batches)
                rounds[tasks].append(one)
        for tasks in counts:
            report({**summary(tasks, rounds[tasks]), **machine()}, as_json=given.json)
        spark.stop()


if __name__ == "__main__":
    main()
