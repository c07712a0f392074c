"""Parts of the benchmarks of slow storage nodes: a source, and batches of a streaming query."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pypaimon import CatalogFactory, Schema
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from sluicegate.cli.local.process import ChildProcess, free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.writer_hooks import attach
from tools.bench.common import STREAM, make_topics, start_coordinator, wait_ready, write_settings

FILES: Final = 4
"""Files of each batch, each of a task of its own."""
PATIENCE: Final = 300.0
"""Seconds after which rows that do not arrive are a failure."""
COLUMNS: Final = pa.schema([("id", pa.int64()), ("measure", pa.float64())])
_POLL: Final = 0.1


@dataclass(frozen=True)
class Place:
    """Place of the tables."""

    warehouse: str
    """For pypaimon, beside the proxy or through it."""
    root: str
    """For coordinators and jobs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the coordinator."""


def make_source(folder: Path, batches: int, rows: int) -> None:
    """Write the files of so many batches, with so many rows in each file."""
    folder.mkdir()
    numbers = np.random.default_rng(1)
    for at in range(batches * FILES):
        ids = pa.array(range(at * rows, (at + 1) * rows), pa.int64())
        table = pa.table([ids, pa.array(numbers.random(rows))], schema=COLUMNS)
        pq.write_table(table, folder / f"{at:05d}.parquet", use_dictionary=False)


@dataclass(frozen=True)
class Block:
    """Batches one after the other, without the first ones."""

    seconds: list[float]
    """Time of each batch, as Spark reports it: `triggerExecution`."""
    longest_wait: float
    """Seconds between the ends of two batches, at most."""
    failures: list[str]
    """Ends of the query by an error, after which it was started again."""


class Query:
    """A streaming query into a table of its own, with a coordinator. Its source grows by blocks of files."""

    def __init__(self, spark: SparkSession, source: Path, folder: Path, sink: Mapping[str, str]) -> None:
        self._spark, self._pool, self._folder, self._sink = spark, source, folder, sink
        self._fed = 0
        """Batches in the source so far."""
        (folder / "source").mkdir()

    @property
    def files(self) -> int:
        """Files in the source so far."""
        return self._fed * FILES

    def run(
        self,
        batches: int,
        pause: float,
        *,
        warm_up: int = 1,
        at: Mapping[int, Callable[[], None]] | None = None,
        restarts: bool = False,
    ) -> Block:
        """Run the query over further batches, after as many as `warm_up`, which do not count.

        `at`: actions, each by the number of batches that have ended before it. `restarts`: a query that fails
        is started again.
        """
        actions, failures = dict(at or {}), list[str]()
        first = self._fed + warm_up
        self._feed(warm_up + batches)
        done: dict[int, float] = {}
        ended: list[float] = []
        query = self._start(pause)
        while len(done) < warm_up + batches:
            if not query.isActive:
                error = query.exception()
                if error is None or not restarts:
                    raise error or RuntimeError("the query has ended")
                failures.append(str(error))
                query = self._start(pause)
            for progress in query.recentProgress:
                number = progress["batchId"]
                if progress["numInputRows"] and number >= first - warm_up and number not in done:
                    done[number] = progress["durationMs"]["triggerExecution"] / 1000
                    ended.append(time.monotonic())
            for number in [each for each in actions if each <= len(done) - warm_up]:
                actions.pop(number)()
            time.sleep(_POLL)
        query.stop()
        counted = ended[max(0, warm_up - 1) :]
        waits = [later - earlier for earlier, later in pairwise(counted)]
        return Block([done[number] for number in sorted(done)][warm_up:], max(waits), failures)

    def _feed(self, batches: int) -> None:
        """Put further files into the source, all at once."""
        hidden = self._folder / "next"
        hidden.mkdir()
        for number in range(self.files, self.files + batches * FILES):
            name = f"{number:05d}.parquet"
            (hidden / name).hardlink_to(self._pool / name)
        hidden.rename(self._folder / "source" / f"{self._fed:05d}")
        self._fed += batches

    def _start(self, pause: float) -> StreamingQuery:
        reader = self._spark.readStream.schema("id long, measure double").option("maxFilesPerTrigger", FILES)
        rows = reader.option("recursiveFileLookup", "true").parquet(str(self._folder / "source"))
        writer = rows.writeStream.format("sluicegate").options(**self._sink)
        return writer.trigger(processingTime=f"{pause} seconds").start()


class Series:
    """A query with its table, in which each row of the source has to be once."""

    def __init__(self, query: Query, table: Any, rows: int, coordinator: ChildProcess) -> None:
        self.query = query
        self._table, self._rows, self._coordinator = table, rows, coordinator

    def await_rows(self) -> float:
        """Wait until the table has the rows of the source, each once; return the seconds."""
        wanted, begun = self.query.files * self._rows, time.monotonic()
        while (found := self._told()) < wanted:
            if self._coordinator.poll() is not None or time.monotonic() - begun > PATIENCE:
                raise RuntimeError(f"{found} rows in place of {wanted}")
            time.sleep(0.2)
        took = time.monotonic() - begun
        ids = self._ids()
        if found != wanted or (len(ids), pc.count_distinct(ids).as_py()) != (wanted, wanted):
            raise RuntimeError(f"{len(ids)} rows in place of {wanted}")
        return took

    def _told(self) -> int:
        """Return the number of rows that the newest snapshot names."""
        return sum(each.row_count for each in self._table.new_read_builder().new_scan().plan().splits())

    def _ids(self) -> pa.ChunkedArray:
        builder = self._table.new_read_builder().with_projection(["id"])
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())["id"]


class Bench:
    """A session of Spark and a source, for queries one after the other."""

    def __init__(self, folder: Path, kafka: EmbeddedKafka, place: Place, rows: int) -> None:
        """Make a session. `rows`: of each file of the source, which is made by `make_source`."""
        self.folder, self._kafka, self._place, self._rows = folder, kafka, place, rows
        self._made = 0
        os.environ["PYSPARK_PYTHON"] = sys.executable
        self._spark = (
            # A task is tried four times, as in a cluster.
            SparkSession.builder.master("local[2,4]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.files.maxPartitionBytes", "5m")  # a task for each file
            .config("spark.sql.files.openCostInBytes", "5m")
            .config("spark.sql.streaming.numRecentProgressUpdates", "10")
            .getOrCreate()
        )
        self._spark.sparkContext.setLogLevel("OFF")
        attach(self._spark, heartbeat_interval=1.0)

    def stop(self) -> None:
        """End the session."""
        self._spark.stop()

    @contextmanager
    def series(self, options: Mapping[str, str]) -> Iterator[Series]:
        """Give a query with these options of the sink, and its table and coordinator."""
        self._made += 1
        name = f"t{self._made}"
        folder = self.folder / name
        folder.mkdir()
        table, location = self._make_table(name), f"{self._place.root}/db.db/{name}"
        topics = asyncio.run(make_topics(self._kafka.bootstrap))
        port = free_port()
        settings = write_settings(folder, self._kafka.bootstrap, topics, location, port)
        process = start_coordinator(settings, self._place.environment)
        try:
            wait_ready(process, port, folder / "coordinator.log")
            sink = {
                "stream": STREAM,
                "region": "r1",
                "table": location,
                "kafka.bootstrap.servers": self._kafka.bootstrap,
                "topic.prefix": topics.prefix,
                "checkpointLocation": str(folder / "checkpoint"),
                **options,
            }
            query = Query(self._spark, self.folder / "source", folder, sink)
            yield Series(query, table, self._rows, process)
        finally:
            process.end(20.0)

    def _make_table(self, name: str) -> Any:
        catalog = CatalogFactory.create({"warehouse": self._place.warehouse})
        catalog.create_database("db", True)
        schema = Schema.from_pyarrow_schema(COLUMNS, options={"bucket": "-1"})
        catalog.create_table(f"db.{name}", schema, False)
        return catalog.get_table(f"db.{name}")


def spooling(bench: Bench) -> dict[str, str]:
    """Return the options of asynchronous uploads."""
    return {"upload": "async", "upload.spool": str(bench.folder / "spool"), "upload.threads": "8"}
