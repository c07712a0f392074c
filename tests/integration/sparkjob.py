"""A real Spark query for tests with a real service: JSON files into the test's table."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from sluicegate.writer_hooks import ForeachBatch, attach
from sluicegate.writer_hooks.options import TABLE_PREFIX
from tests.faults.tables import FORMATS
from tests.integration.conftest import Place

T = TypeVar("T")


class SparkThread:
    """The one thread that talks to Spark: a session is active in the thread that made it."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark")
        self.session = self._pool.submit(_session).result()

    async def call(self, work: Callable[[], T]) -> T:
        """Do something with Spark, beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def stop(self) -> None:
        """End the session."""
        self._pool.submit(self.session.stop).result()
        self._pool.shutdown()


def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.noDataProgressEventInterval", "300")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    attach(session, heartbeat_interval=1.0)
    return session


@dataclass
class SparkJob:
    """One region's query; each file that it is fed is a batch."""

    spark: SparkThread
    place: Place
    region: str = "r1"
    folder: str = ""
    options: dict[str, str] = field(default_factory=dict)
    foreach: bool = False
    """Write with ForeachBatch, not with the data source."""

    def __post_init__(self) -> None:
        self.root = self.place.root / (self.folder or self.region)
        self.source.mkdir(parents=True)

    @property
    def source(self) -> Path:
        return self.root / "in"

    @property
    def columns(self) -> str:
        """Columns of the source, with the type of times that the table has."""
        return f"id long, origin string, at {FORMATS[self.place.lake].SPARK_TIME}"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    def feed(self, *batches: Sequence[int], **more: object) -> None:
        """Add files to the source; each row has `more` beside the columns of the table."""
        for ids in batches:
            row = {"origin": self.region, "at": "2013-01-01T00:00:00Z", **more}
            lines = [json.dumps({"id": n, **row}) for n in ids]
            draft = self.root / "draft"
            draft.write_text("\n".join(lines))
            draft.rename(self.source / f"{ids[0]:06d}.json")

    def start(self, rows: Any = None, **trigger: Any) -> StreamingQuery:
        """Start the query; without a trigger it ends with what its source has."""
        reader = self.spark.session.readStream.schema(self.columns)
        rows = reader.option("maxFilesPerTrigger", 1).json(str(self.source)) if rows is None else rows
        if self.foreach:
            writer = rows.writeStream.foreachBatch(ForeachBatch(self.sink_options))
            writer = writer.option("checkpointLocation", str(self.checkpoint))
        else:
            writer = rows.writeStream.format("sluicegate").options(**self.sink_options)
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    @property
    def sink_options(self) -> dict[str, str]:
        """Options of the sink."""
        return {
            "stream": "flights",
            "region": self.region,
            "table": self.place.table,
            "format": self.place.lake,
            **{f"{TABLE_PREFIX}{name}": value for name, value in self.place.lake_options.items()},
            "kafka.bootstrap.servers": self.place.bootstrap,
            "topic.prefix": self.place.prefix,
            "registration.timeout": "900",
            "checkpointLocation": str(self.checkpoint),
            **self.options,
        }

    async def run(self, rows: Any = None) -> None:
        """Run the query to its end."""
        await self.spark.call(lambda: self.start(rows).awaitTermination())

    def incarnation(self) -> str:
        """The incarnation that is recorded in the checkpoint location."""
        marker = self.checkpoint / "sluicegate" / "incarnation.json"
        return str(json.loads(marker.read_text())["incarnation"])

    def names(self, folder: str) -> list[str]:
        """The batches that Spark's log of that name has. Spark 4.1 makes the folder with the first one."""
        found = self.checkpoint / folder
        return sorted(path.name for path in found.iterdir() if path.name.isdigit()) if found.is_dir() else []
