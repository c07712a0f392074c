"""A frozen coordinator: running jobs do not notice it, and one commit follows afterwards.

    python -m tools.bench.freeze [--batches 50] [--rounds 2] [--regions 1] [--json]

Spark runs one streaming query per region through the writer hooks, one small file a batch, batches back to
back. Kafka and the coordinator are processes of their own. A round is so many batches with the coordinator
at work, a pause until all of them are in the table, SIGSTOP, so many batches more, and SIGCONT. The ratio is
that of the median batch durations (Spark's own `triggerExecution`) while frozen and before, round by round.
The commits are the snapshots between SIGCONT and two seconds after the last row is in the table.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sluicegate.cli.local.process import ChildProcess
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.kafka.topics import TopicNames
from sluicegate.writer_hooks import attach
from tools.bench.common import MEASURES, STREAM, coordinator, create_table, machine, make_topics, report, rows

WARM_UP: Final = 15
ROWS: Final = 500
ORIGINS: Final = ("EWR", "JFK", "LGA")
SECONDS: Final = 240.0
SETTLE: Final = 2.0
COLUMNS: Final = (
    "id long, origin string, carrier string, "
    + ", ".join(f"{name} double" for name in MEASURES)
    + ", at timestamp"
)
SESSION: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    # The default runs a program of the system for every file where Hadoop's native library is missing.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


class Jobs:
    """One streaming query per region, fed file by file."""

    def __init__(self, folder: Path, table: Path, bootstrap: str, topics: TopicNames, regions: int) -> None:
        self._folder = folder
        self.regions = tuple(f"r{number}" for number in range(regions))
        self.rows = 0
        """Handed out so far."""
        self._files = 0
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.master("local[2]").appName("bench")
        for name, value in SESSION.items():
            builder = builder.config(name, value)
        self._spark = builder.config("spark.local.dir", str(folder / "spark")).getOrCreate()
        self._spark.sparkContext.setLogLevel("OFF")
        attach(self._spark)
        options = {
            "stream": STREAM,
            "regions": ",".join(self.regions),
            "assignment": "0",
            "table": str(table),
            "event.time.column": "at",
            "kafka.bootstrap.servers": bootstrap,
            "topic.prefix": topics.prefix,
        }
        self._queries = [self._start(region, options) for region in self.regions]

    def _start(self, region: str, options: dict[str, str]) -> Any:
        inbox = self._folder / "in" / region
        inbox.mkdir(parents=True)
        source = self._spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(inbox))
        own = {**options, "region": region, "checkpointLocation": str(self._folder / "checkpoint" / region)}
        return (
            source.writeStream.format("sluicegate").options(**own).trigger(processingTime="0 seconds").start()
        )

    def run(self, batches: int) -> dict[str, list[int]]:
        """Hand out a file per batch and region, wait for all; the batches' milliseconds by region."""
        first = self._files
        for number in range(first, first + batches):
            for region in self.regions:
                each = ROWS // len(ORIGINS)
                batch = pa.Table.from_batches([rows(ORIGINS, self.rows, each)])
                draft = self._folder / f"{region}-{number}.tmp"
                pq.write_table(batch, draft, coerce_timestamps="us")
                draft.rename(self._folder / "in" / region / f"{number:06d}.parquet")
                self.rows += batch.num_rows
        self._files += batches
        for query in self._queries:
            query.processAllAvailable()
        return {
            region: self._durations(query, first, first + batches)
            for region, query in zip(self.regions, self._queries, strict=True)
        }

    @staticmethod
    def _durations(query: Any, first: int, end: int) -> list[int]:
        """Of the batches with rows, whose numbers count the files."""
        deadline = time.monotonic() + 30.0
        found: dict[int, int] = {}
        while len(found) < end - first and time.monotonic() < deadline:
            found = {
                progress["batchId"]: progress["durationMs"]["triggerExecution"]
                for progress in query.recentProgress
                if progress["numInputRows"] and first <= progress["batchId"] < end
            }
        if len(found) < end - first:
            raise RuntimeError(f"Spark tells of {len(found)} batches instead of {end - first}")
        return list(found.values())

    def stop(self) -> None:
        """End the queries and Spark."""
        for query in self._queries:
            query.stop()
        self._spark.stop()


class Head:
    """The newest snapshot of the table, which nobody but the coordinator commits to."""

    def __init__(self, table: Path) -> None:
        self._folder = table / "snapshot"

    def number(self) -> int:
        names = os.listdir(self._folder) if self._folder.exists() else []
        return max((int(name[9:]) for name in names if name[9:].isdigit()), default=0)

    def rows(self) -> int:
        number = self.number()
        if number == 0:
            return 0
        found = json.loads((self._folder / f"snapshot-{number}").read_text())
        if found["commitUser"] != f"sluicegate-{STREAM}":
            raise RuntimeError(f"snapshot {number} is of {found['commitUser']}")
        return int(found["totalRecordCount"])

    def wait(self, expected: int) -> float:
        """Wait for so many rows; the seconds that it took."""
        start = time.monotonic()
        while (there := self.rows()) != expected:
            if there > expected or time.monotonic() - start > SECONDS:
                raise RuntimeError(f"the table has {there} rows instead of {expected}")
            time.sleep(0.01)
        return time.monotonic() - start


def one_round(jobs: Jobs, head: Head, process: ChildProcess, batches: int) -> dict[str, Any]:
    """Batches with the coordinator at work, batches while it is frozen, and what it does then."""
    live = jobs.run(batches)
    head.wait(jobs.rows)
    time.sleep(SETTLE)
    before = head.number()
    process.send(signal.SIGSTOP)
    try:
        start = time.monotonic()
        frozen = jobs.run(batches)
        seconds = time.monotonic() - start
        if head.number() != before:
            raise RuntimeError("a frozen coordinator has committed")
    finally:
        process.send(signal.SIGCONT)
    recovery = head.wait(jobs.rows)
    time.sleep(SETTLE)
    medians = [_median(durations) for durations in (live, frozen)]
    return {
        "batch_ms_live": medians[0],
        "batch_ms_frozen": medians[1],
        "ratio": round(medians[1] / medians[0], 3),
        "frozen_s": round(seconds, 1),
        "commits_after": head.number() - before,
        "recovery_s": round(recovery, 2),
    }


def _median(durations: dict[str, list[int]]) -> float:
    return statistics.median(duration for each in durations.values() for duration in each)


@contextmanager
def jobs_of(folder: Path, table: Path, bootstrap: str, topics: TopicNames, regions: int) -> Iterator[Jobs]:
    """Give running jobs."""
    jobs = Jobs(folder, table, bootstrap, topics, regions)
    try:
        yield jobs
    finally:
        jobs.stop()


def measure(folder: Path, bootstrap: str, batches: int, rounds: int, regions: int) -> dict[str, Any]:
    """Run all rounds."""
    create_table(folder, "flights")
    table = folder / "db.db" / "flights"
    topics = asyncio.run(make_topics(bootstrap))
    head = Head(table)
    with (
        coordinator(folder, bootstrap, topics, table) as process,
        jobs_of(folder, table, bootstrap, topics, regions) as jobs,
    ):
        jobs.run(WARM_UP)
        head.wait(jobs.rows)
        found = [one_round(jobs, head, process, batches) for _ in range(rounds)]
    return {
        "regions": regions,
        "batches": batches,
        "ratio": round(statistics.median(each["ratio"] for each in found), 3),
        "commits_after": [each["commits_after"] for each in found],
        "rounds": found,
        **machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--regions", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        found = measure(Path(folder), kafka.bootstrap, arguments.batches, arguments.rounds, arguments.regions)
    report(found, as_json=arguments.json)


if __name__ == "__main__":
    main()
