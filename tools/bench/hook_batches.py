"""Time that the hook adds to a micro-batch, over the same files without events, in round trips to the broker.

    python -m tools.bench.hook_batches [--format paimon] [--tasks 1,4,16,64] [--batches 8] [--rounds 5]
        [--json]

Batches of ten rows a task follow each other without a pause, in one session of two cores. The calls of the
hook are timed inside of Spark's own processes: the two calls of `streamWriter`, `commit`, and what a task
does beside the writing of its files. What the hook adds is the sum of their medians, with the tasks shared by
the cores. Ours is the data source with a coordinator at work, and with one that is frozen (SIGSTOP).

Spark's own durations of a batch (`triggerExecution`) are shown too, also those of a plain sink, which writes
the same files with the same writer, and publishes nothing. Their difference is no measure: it is smaller than
that of two runs of one sink. The first batches of each query do not count. A round runs all of them once for
each number of tasks. A round trip is the median time of a small event of the same publisher, from the call to
the acknowledgement of Kafka, with nothing else at work, and after a pause as between two batches. Kafka has
one broker on loopback.
"""

import argparse
import asyncio
import json
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.envelope import EventType
from sluicegate.events.models import RegionHeartbeat
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.publisher import Publisher
from sluicegate.writer_hooks.region import Attempt
from sluicegate.writer_hooks.spark.batch import keep_modules
from sluicegate.writer_hooks.spark.registry import ATTACHED
from sluicegate.writer_hooks.writer import write_attempt
from tests.faults.tables import create_table, kind_of
from tools.bench.common import machine, make_topics, report
from tools.bench.hook_times import VARIABLE, TimedSource
from tools.bench.hooks import CORES, Served, make_session, served

if TYPE_CHECKING:
    import pyarrow as pa

ROOT: Final = Path(__file__).parents[2]
ROWS: Final = 10
"""Of a task."""
WARM_UP: Final = 3
"""Batches of a query that do not count."""
TRIPS: Final = 50
PAUSE: Final = 0.1
"""Seconds between two round trips."""
_START: Final = 1_700_000_000_000
KINDS: Final = ("streamWriter", "commit", "task")


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


class Series(NamedTuple):
    """Batches of a query that count."""

    durations: list[int]
    """Spark's, in milliseconds."""
    times: dict[str, list[float]]
    """Milliseconds of the calls of the hook, by kind."""


def batches_of(query: StreamingQuery, count: int) -> Series:
    """Wait for the next batches. Raises RuntimeError if the query fails."""

    def await_batches(number: int) -> None:
        while len(query.recentProgress) < number:
            if not query.isActive:
                raise RuntimeError(f"the query has ended: {query.exception()}")
            time.sleep(0.02)

    first = len(query.recentProgress) + WARM_UP
    await_batches(first)
    begun = time.time()
    await_batches(first + count)
    found = [each["durationMs"]["triggerExecution"] for each in query.recentProgress[first : first + count]]
    return Series(found, times_between(begun, time.time()))


def times_between(begun: float, ended: float) -> dict[str, list[float]]:
    """Return the milliseconds of calls that ended in this time, by kind."""
    found = defaultdict(list)
    for path in Path(os.environ[VARIABLE]).iterdir():
        for line in path.read_text().splitlines():
            at, kind, milliseconds = json.loads(line)
            if begun <= at <= ended:
                found[kind].append(milliseconds)
    return found


def round_trips(table: Served, bootstrap: str) -> list[float]:
    """Return the milliseconds in which Kafka acknowledges small events, one after the other."""
    region = SinkOptions.parse({**table.sink, "checkpointLocation": "/none"}).region
    topics = asyncio.run(make_topics(bootstrap))
    publisher = Publisher(region.kafka)
    found = []
    for _ in range(TRIPS):
        time.sleep(PAUSE)
        event = region.event(EventType.REGION_HEARTBEAT, "i", RegionHeartbeat(run=str(uuid.uuid4())))
        begun = time.perf_counter()
        publisher.publish(topics.events, [event], 60.0)
        found.append((time.perf_counter() - begun) * 1000)
    publisher.close()
    return found[TRIPS // 10 :]


def one_round(
    spark: SparkSession, root: Path, bootstrap: str, lake: str, tasks: int, count: int
) -> tuple[dict[str, Series], list[float]]:
    """Run all sinks with one table; return their batches, and round trips in milliseconds."""
    folder = root / uuid.uuid4().hex
    path = create_table(folder, "t", lake)
    found = {}
    with served(lake, folder, bootstrap, (str(path), kind_of(path).options(path))) as table:
        trips = round_trips(table, bootstrap)
        query = start(spark, folder / "ours", "timed", table.sink, tasks)
        found["ours"] = batches_of(query, count)
        table.process.send(signal.SIGSTOP)
        found["frozen"] = batches_of(query, count)
        table.process.send(signal.SIGCONT)
        newest = query.recentProgress[-1]["batchId"]
        query.stop()
        table.await_commit(newest)
        query = start(spark, folder / "plain", "plain", table.sink, tasks)
        found["plain"] = batches_of(query, count)
        query.stop()
    return found, trips


def added(series: Sequence[Series], tasks: int) -> dict[str, float]:
    """Return the medians of the calls of the hook, in milliseconds, and their sum for a batch."""
    medians = {kind: statistics.median(each for one in series for each in one.times[kind]) for kind in KINDS}
    # Spark calls `streamWriter` before a batch and at its end. The tasks share the cores.
    sum_of_batch = 2 * medians["streamWriter"] + medians["commit"] + medians["task"] * max(1, tasks / CORES)
    return {**medians, "batch": sum_of_batch}


def summary(tasks: int, rounds: Sequence[tuple[Mapping[str, Series], list[float]]]) -> dict[str, Any]:
    """Return the figures of one number of tasks."""
    trip = statistics.median(each for _, trips in rounds for each in trips)
    found: dict[str, Any] = {"tasks": tasks, "rounds": len(rounds), "round_trip_ms": round(trip, 2)}
    for sink in ("ours", "frozen"):
        times = added([series[sink] for series, _ in rounds], tasks)
        found |= {f"{sink}_{kind}_ms": round(each, 2) for kind, each in times.items()}
        found[f"{sink}_round_trips"] = round(times["batch"] / trip, 1)
    for sink in ("plain", "ours", "frozen"):
        durations = (each for series, _ in rounds for each in series[sink].durations)
        found[f"{sink}_duration_ms"] = statistics.median(durations)
    return found


def _registering(source: type[TimedSource]) -> type[TimedSource]:
    """Return the source with the registry of the session, as `attach` makes its own."""
    folder = None if ATTACHED.registry is None else str(ATTACHED.registry._folder)
    return type(source.__name__, (source,), {"registry_folder": folder})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--format", default="paimon")
    parser.add_argument("--tasks", default="1,4,16,64")
    parser.add_argument("--batches", type=int, default=8, help="of each query that count")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    # The workers of Spark import the plain sink.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    counts = [int(each) for each in given.tasks.split(",")]
    rounds = defaultdict(list)
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka() as kafka:
        Path(name, "times").mkdir()
        os.environ[VARIABLE] = str(Path(name, "times"))
        spark = make_session(Path(name))
        spark.dataSource.register(PlainSource)
        spark.dataSource.register(_registering(TimedSource))
        for _ in range(given.rounds):
            for tasks in counts:
                one = one_round(spark, Path(name), kafka.bootstrap, given.format, tasks, given.batches)
                rounds[tasks].append(one)
        for tasks in counts:
            report({**summary(tasks, rounds[tasks]), **machine()}, as_json=given.json)
        spark.stop()


if __name__ == "__main__":
    main()
