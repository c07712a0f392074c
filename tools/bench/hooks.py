"""Parts that the benchmarks of the hooks share: a session of Spark, and a table with its coordinator."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from sluicegate.cli.local.process import ChildProcess, free_port
from sluicegate.events.notifications import Committed
from sluicegate.kafka.topics import TopicNames
from sluicegate.writer_hooks import attach
from tools.bench.common import (
    STREAM,
    make_topics,
    read_notifications,
    start_coordinator,
    wait_ready,
    write_settings,
)
from tools.bench.file_sizes import make_table

CORES: Final = 2
REGION: Final = "r1"
_SESSION: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # One file is one task.
    "spark.sql.files.maxPartitionBytes": "1g",
    "spark.sql.files.openCostInBytes": "1g",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    # The default runs a program of the system for every file where Hadoop's native library is missing.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_PATIENCE: Final = 600.0
"""Seconds after which a commit that does not come is an error."""


def make_session(folder: Path, **more: str) -> SparkSession:
    """Make a session of two cores, with the hooks."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("bench")
    for name, value in {**_SESSION, **more}.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.local.dir", str(folder / "spark")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    attach(spark)
    return spark


@dataclass(frozen=True)
class Served:
    """A table, and the coordinator that commits to it."""

    sink: Mapping[str, str]
    """Options of the sink, without a checkpoint location."""
    process: ChildProcess
    topics: TopicNames

    def await_commit(self, batch: int) -> None:
        """Wait until a batch of the region is committed. Raises TimeoutError after ten minutes."""
        deadline = time.monotonic() + _PATIENCE
        while asyncio.run(self._committed()) < batch:
            if time.monotonic() > deadline:
                raise TimeoutError(f"batch {batch} is not committed")
            time.sleep(0.1)

    async def _committed(self) -> int:
        found = [-1]
        async for _, told in read_notifications(self.sink["kafka.bootstrap.servers"], self.topics):
            if isinstance(told.body, Committed) and REGION in told.body.cut:
                found.append(told.body.cut[REGION].checkpoint)
        return max(found)


@contextmanager
def served(
    lake: str, folder: Path, bootstrap: str, made: tuple[str, Mapping[str, str]] | None = None
) -> Iterator[Served]:
    """Give a new table with a coordinator of its own.

    `made`: location of a table and options of its adapter; None: one for the rows of the demo.
    """
    location, options = make_table(lake, folder, ()) if made is None else made
    topics = asyncio.run(make_topics(bootstrap))
    port = free_port()
    settings = write_settings(folder, bootstrap, topics, location, port)
    lines = [f'format = "{lake}"', f"[streams.{STREAM}.options]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    with settings.open("a") as file:
        file.write("\n".join([*lines, ""]))
    process = start_coordinator(settings)
    try:
        wait_ready(process, port, folder / "coordinator.log")
        sink = {
            "stream": STREAM,
            "region": REGION,
            "table": location,
            "format": lake,
            **{f"table.{name}": value for name, value in options.items()},
            "kafka.bootstrap.servers": bootstrap,
            "topic.prefix": topics.prefix,
        }
        yield Served(sink, process, topics)
    finally:
        process.end(20.0)
