"""Three streaming jobs in one local Spark session: one region each, all writing into one table."""

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession

from sluicegate.cli.local.errors import RunFailed
from sluicegate.cli.local.flights import EVENT_TIME, REGIONS, ROW_ID, STREAM, spark_schema
from sluicegate.cli.local.tables import DemoTable
from sluicegate.cli.local.watch import TOPICS
from sluicegate.writer_hooks import attach
from sluicegate.writer_hooks.options import TABLE_PREFIX
from sluicegate.writer_hooks.spark.incarnation import close_region

if TYPE_CHECKING:
    import pyarrow as pa

_TRIGGER: Final = "50 milliseconds"
_RHYTHMS: Final = (700, 750, 800)
"""Trigger intervals in milliseconds. They differ, because Spark rounds equal ones to the same moments."""
_SLOW_SECONDS: Final = 1.5
_SILENT_SECONDS: Final = 8.0
_IDLE_SECONDS: Final = 10.0
_SESSION: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A run takes about a minute, too short to benefit from the optimizing compiler.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "3s",
    # The default manager starts a process for each file, because Hadoop's native library is missing.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def start_session(work: Path, *, parallel: bool = False, awaited: bool = False) -> SparkSession:
    """Start Spark; its processes inherit this one's standard error. Raises RunFailed.

    With `parallel` each job has a task slot of its own, as on a separate machine, so that a slow one does not
    delay the others. With `awaited`, a job without new files is not idle: it holds the watermark back until
    its next file.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    slots = len(REGIONS) if parallel else 2
    builder = SparkSession.builder.master(f"local[{slots}]").appName("sluicegate-demo")
    options = _SESSION | {
        "spark.local.dir": str(work / "spark"),
        "spark.sql.warehouse.dir": str(work / "spark-warehouse"),
        # A job without new files reports it soon, and does not delay the commits of the others.
        "spark.sql.streaming.noDataProgressEventInterval": "3600000" if awaited else "250",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # PySpark's gateway raises errors of many types
        raise RunFailed(f"Spark did not start: {error}") from error
    # PySpark's own handler calls the JVM, possibly during another call to it.
    signal.signal(signal.SIGINT, interrupt)
    attach(spark, heartbeat_interval=2.0, idle_after=math.inf if awaited else _IDLE_SECONDS)
    return spark


def slow_batches(batches: int) -> dict[int, float]:
    """Return the seconds by which batches of a slow region are late: a few batches, then one for long."""
    first, count = max(1, batches // 8), max(1, batches // 10)
    return {**dict.fromkeys(range(first, first + count), _SLOW_SECONDS), first + count: _SILENT_SECONDS}


def _late(delays: Mapping[int, float]) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """Return a function for Spark that pauses before the rows of a file, by the id of its first flight."""

    def pause(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        for batch in batches:
            if batch.num_rows:
                time.sleep(delays.get(batch.column(ROW_ID)[0].as_py(), 0.0))
            yield batch

    return pause


class Jobs:
    """The jobs, from their start to the closing of their regions."""

    def __init__(self, spark: SparkSession, bootstrap: str, table: DemoTable, checkpoints: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._table = table
        self._checkpoints = checkpoints
        self._queries: dict[str, Any] = {}
        self.finals: dict[str, int | None] = {}
        """Final batch of each closed region."""

    def start(
        self, inbox: Callable[[str], Path], late: Mapping[str, Mapping[int, float]], *, evenly: bool
    ) -> None:
        """Start a job for each region, which reads the files that appear in `inbox(region)`.

        `late` has the delays of files of regions, by the id of their first flight. With `evenly` each job has
        its own trigger interval, so that they do not always compete for the processor.
        """
        for region, rhythm in zip(REGIONS, _RHYTHMS, strict=True):
            reader = self._spark.readStream.schema(spark_schema()).option("maxFilesPerTrigger", 1)
            rows = reader.parquet(str(inbox(region)))
            if region in late:
                rows = rows.mapInArrow(_late(late[region]), spark_schema())
            writer = rows.writeStream.format("sluicegate").queryName(region).options(**self._options(region))
            trigger = f"{rhythm} milliseconds" if evenly else _TRIGGER
            self._queries[region] = writer.trigger(processingTime=trigger).start()

    def check(self) -> None:
        """Raise RunFailed if a job has failed."""
        for region, query in self._queries.items():
            if region not in self.finals and not query.isActive:
                raise RunFailed(f"the job of {region} ended: {query.exception()}")

    def finish(self, region: str) -> None:
        """End a job that has read its last file, and close its region; may be repeated."""
        if region in self.finals:
            return
        query = self._queries[region]
        query.processAllAvailable()
        query.stop()
        self.finals[region] = close_region(self._options(region))

    def stop(self) -> None:
        """Stop the running jobs, even in the middle of a batch."""
        for region, query in self._queries.items():
            if region not in self.finals:
                # A job that does not stop in time ends with the session.
                with suppress(Exception):
                    query.stop()

    def _options(self, region: str) -> Mapping[str, str]:
        return {
            "stream": STREAM,
            "region": region,
            "regions": ",".join(REGIONS),
            "assignment": "1",
            "bounded": "true",
            # A killed coordinator answers after its restart; the run itself notices that nothing moves.
            "registration.timeout": "forever",
            "format": self._table.format,
            "table": self._table.location,
            **{f"{TABLE_PREFIX}{name}": value for name, value in self._table.options.items()},
            "event.time.column": EVENT_TIME,
            "kafka.bootstrap.servers": self._bootstrap,
            "topic.prefix": TOPICS.prefix,
            "checkpointLocation": str(self._checkpoints / region),
        }
