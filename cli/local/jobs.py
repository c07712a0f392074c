"""Three streaming jobs in one local Spark session: one region each, all writing into one table."""

import math
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from sluicegate.cli.local import slow_storage
from sluicegate.cli.local.errors import RunFailed
from sluicegate.cli.local.flights import EVENT_TIME, REGIONS, spark_schema
from sluicegate.cli.local.services import STREAM, TOPICS
from sluicegate.cli.local.slow_storage import VARIABLE, Slowness
from sluicegate.cli.local.tables import DemoTable
from sluicegate.writer_hooks import attach
from sluicegate.writer_hooks.options import TABLE_PREFIX
from sluicegate.writer_hooks.spark.incarnation import close_region

_TRIGGER: Final = "50 milliseconds"
_RHYTHMS: Final = (700, 750, 800)
"""Trigger intervals in milliseconds. They differ, because Spark rounds equal ones to the same moments."""
_CHECKPOINT_FILES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
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
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
    # A job without new files reports it soon, and does not delay the commits of the others.
    "spark.sql.streaming.noDataProgressEventInterval": "250",
}


_AWAITED: Final = {"spark.sql.streaming.noDataProgressEventInterval": "3600000"}
_IDLE_SECONDS: Final = 10.0


def start_session(work: Path, slowness: Slowness | None = None, *, awaited: bool = False) -> SparkSession:
    """Start Spark; its processes inherit this one's standard error. Raises RunFailed.

    With `slowness` each job has a task slot of its own, as on a separate machine. Only the storage of one job
    is then slow, not the processor of all. With `awaited`, a job without new files is not idle: it holds the
    watermark back until its next file.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    master = "local[2]" if slowness is None else f"local[{len(REGIONS)}]"
    builder = SparkSession.builder.master(master).appName("sluicegate-demo")
    folders = {
        "spark.local.dir": str(work / "spark"),
        "spark.sql.warehouse.dir": str(work / "spark-warehouse"),
    }
    if slowness is not None:
        os.environ[VARIABLE] = slowness.to_text()
        builder = builder.config("spark.python.daemon.module", slow_storage.__name__)
    for name, value in {**_SESSION, **folders, **(_AWAITED if awaited else {})}.items():
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

    def start(self, inbox: Callable[[str], Path], *, evenly: bool = False) -> None:
        """Start a job for each region, which reads the files that appear in `inbox(region)`.

        With `evenly` each job has its own trigger interval, so that they do not always compete for the
        processor.
        """
        for region, rhythm in zip(REGIONS, _RHYTHMS, strict=True):
            trigger = f"{rhythm} milliseconds" if evenly else _TRIGGER
            files = self._spark.readStream.schema(spark_schema()).option("maxFilesPerTrigger", 1)
            writer = files.parquet(str(inbox(region))).writeStream.format("sluicegate")
            writer = writer.queryName(region).options(**self._options(region))
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
