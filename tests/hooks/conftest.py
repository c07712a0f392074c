"""A Spark session for the folder, and for each test a stream of its own."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from sluicegate.writer_hooks import attach
from tests.hooks.log import Log
from tests.hooks.options import in_log

SCHEMA = "id long, airport string, at timestamp"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.noDataProgressEventInterval", "300")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    attach(session, heartbeat_interval=1.0, idle_after=2.0)
    yield session
    session.stop()


@dataclass
class Job:
    """A streaming job from JSON files to a Paimon table."""

    spark: SparkSession
    log: Log
    folder: Path
    options: dict[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return self.folder / "in"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def table(self) -> Path:
        return self.folder / "warehouse" / "default.db" / "flights"

    def feed(self, name: str, rows: int, start: int = 0) -> None:
        """Add a file to the source: one batch, with ids from `start`."""
        lines = [
            json.dumps({"id": n, "airport": "JFK", "at": f"2013-01-01T00:{n // 60:02d}:{n % 60:02d}Z"})
            for n in range(start, start + rows)
        ]
        draft = self.folder / f"{name}.tmp"
        draft.write_text("\n".join(lines))
        draft.rename(self.source / f"{name}.json")

    def rows(self) -> Any:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.source))

    def write(self, rows: Any = None, name: str = "sluicegate", **trigger: Any) -> StreamingQuery:
        writer = (self.rows() if rows is None else rows).writeStream.format(name).options(**self.options)
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, rows: Any = None, name: str = "sluicegate") -> None:
        """Process what the source has, to the end."""
        self.write(rows, name).awaitTermination()

    @property
    def marker(self) -> Path:
        return self.checkpoint / "sluicegate" / "incarnation.json"

    def incarnation(self) -> str:
        return str(json.loads(self.marker.read_text())["incarnation"])

    def data_files(self) -> set[str]:
        return {str(path.relative_to(self.table)) for path in self.table.glob("**/*.parquet")}


def make_table(warehouse: Path, *, partitioned: bool = False) -> None:
    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("default", True)
    columns = [("id", pa.int64()), ("airport", pa.string()), ("at", pa.timestamp("us", tz="UTC"))]
    keys = ["airport"] if partitioned else []
    schema = Schema.from_pyarrow_schema(pa.schema(columns), partition_keys=keys)
    catalog.create_table("default.flights", schema, False)


@pytest.fixture
def log(kafka_bootstrap: str, unique: str) -> Iterator[Log]:
    with Log(kafka_bootstrap, unique) as opened:
        yield opened


@pytest.fixture
def job(spark: SparkSession, log: Log, tmp_path: Path, unique: str) -> Job:
    made = Job(spark, log, tmp_path)
    made.source.mkdir()
    make_table(tmp_path / "warehouse")
    made.options = in_log(log, unique) | {
        "table": str(made.table),
        "event.time.column": "at",
        "checkpointLocation": str(made.checkpoint),
    }
    return made
