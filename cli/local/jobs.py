"""Three streaming jobs in one local Spark session: one region each, all writing into one table."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from sluicegate.cli.local.errors import RunFailed
from sluicegate.cli.local.flights import EVENT_TIME, REGIONS, STREAM, spark_schema
from sluicegate.cli.local.tables import DemoTable
from sluicegate.cli.local.watch import TOPICS
from sluicegate.writer_hooks import attach
from sluicegate.writer_hooks.options import TABLE_PREFIX
from sluicegate.writer_hooks.spark.incarnation import close_region

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
    # A job without new files reports it soon, and does not delay the commits of the others.
    "spark.sql.streaming.noDataProgressEventInterval": "250",
    # The default manager starts a process for each file, because Hadoop's native library is missing.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def start_session(work: Path, slots: int = 2) -> SparkSession:
    """Start Spark with so many task slots. Raises RunFailed.

    Its processes inherit this one's standard error.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{slots}]").appName("sluicegate-demo")
    folders = {
        "spark.local.dir": str(work / "spark"),
        "spark.sql.warehouse.dir": str(work / "spark-warehouse"),
    }
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        spark = builder.config(map={**_SESSION, **folders}).getOrCreate()
    except Exception as error:  # PySpark's gateway raises errors of many types
        raise RunFailed(f"Spark did not start: {error}") from error
    # PySpark's own handler calls the JVM, possibly during another call to it.
    signal.signal(signal.SIGINT, interrupt)
    attach(spark, heartbeat_interval=2.0)
    return spark


class Jobs:
    """The jobs, from their start to the closing of their regions."""

    triggers: Mapping[str, str] = dict.fromkeys(REGIONS, "50 milliseconds")

    def __init__(self, spark: SparkSession, bootstrap: str, table: DemoTable, checkpoints: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._table = table
        self._checkpoints = checkpoints
        self._queries: dict[str, Any] = {}
        self.finals: dict[str, int | None] = {}
        """Final batch of each closed region."""

    def start(self, inbox: Callable[[str], Path]) -> None:
        """Start a job for each region, which reads the files that appear in `inbox(region)`."""
        for region in REGIONS:
            reader = self._spark.readStream.schema(spark_schema()).option("maxFilesPerTrigger", 1)
            rows = self.transform(region, reader.parquet(str(inbox(region))))
            writer = rows.writeStream.format("sluicegate").queryName(region).options(**self._options(region))
            self._queries[region] = writer.trigger(processingTime=self.triggers[region]).start()

    def transform(self, region: str, rows: DataFrame) -> DataFrame:
        """Return the rows of a region as they are. A benchmark delays them."""
        return rows

    def check(self) -> None:
        """Raise RunFailed if a job has failed."""
        for region, query in self._queries.items():
            if region not in self.finals and not query.isActive:
                raise RunFailed(f"the job of {region} ended: {query.exception()}")

    def finish(self) -> None:
        """End the jobs, which have their last files, and close their regions; may be repeated."""
        for region in self._queries.keys() - self.finals.keys():
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
