"""Rows a second of a streaming write: through the whole hook, Kafka included, and Spark's own Parquet sink.

    python -m tools.bench.hook_rates [--formats paimon,iceberg,delta] [--rounds 5] [--batches 6] [--copies 4]
        [--rows 336776] [--json]

One streaming query at a time, in one session of two cores: the Parquet sink of Spark (zstd, its own level),
the data source, and ForeachBatch. All read the same files: the flights of the demo, `--copies` times in each
batch, in two files and so two tasks. Tables have no partitions. Kafka and the coordinator are processes of
their own on the same two cores. The first batch of a query does not count: it registers, and its workers load
their libraries.
A rate is the rows of a batch by the median of Spark's own durations of a batch (`triggerExecution`). A round
runs each sink of each format once, in changing order. The first round does not count. A ratio is that of the
medians over all rounds. The ratios of single rounds show how much the machine varies.
"""

import argparse
import logging
import os
import shutil
import statistics
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from sluicegate.cli.local.flights import TOTAL_ROWS, load_flights, spark_schema
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.writer_hooks import ForeachBatch
from tools.bench.common import machine, report
from tools.bench.hooks import CORES, make_session, served

SINKS: Final = ("spark", "source", "foreach")
"""The Parquet sink of Spark, and both of ours."""
WARM_UP: Final = 1
"""Rounds that do not count: the JVM compiles what it runs often."""
_FIRST_MTIME: Final = 1_700_000_000


def make_input(folder: Path, batches: int, rows: int, copies: int) -> None:
    """Write the files of the source."""
    write_batches(folder, batches, pa.concat_tables([load_flights(rows)] * copies))


def write_batches(folder: Path, batches: int, flights: pa.Table) -> None:
    """Write files with the rows of each batch: as many for a batch as there are cores."""
    folder.mkdir()
    share = -(-flights.num_rows // CORES)
    for number in range(batches * CORES):
        path = folder / f"{number:04d}.parquet"
        pq.write_table(flights.slice(number % CORES * share, share), path)
        # The source takes the oldest files first.
        os.utime(path, (_FIRST_MTIME + number, _FIRST_MTIME + number))


def start(
    spark: SparkSession,
    source: Path,
    folder: Path,
    sink: str,
    options: Mapping[str, str],
    schema: str = spark_schema(),
) -> StreamingQuery:
    """Start the query of a sink. `options`: those of ours; `schema`: that of the files."""
    place = {"checkpointLocation": str(folder / "checkpoint")}
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", CORES)
    writing = reader.parquet(str(source)).writeStream.trigger(availableNow=True).options(**place)
    if sink == "spark":
        return writing.format("parquet").option("compression", "zstd").start(str(folder / "out"))
    if sink == "source":
        return writing.format("sluicegate").options(**options).start()
    return writing.foreachBatch(ForeachBatch({**options, **place})).start()


def durations(query: StreamingQuery, batches: int) -> list[int]:
    """Wait for the end of a query; return the milliseconds of its batches without the first one.

    Raises RuntimeError if a batch is missing.
    """
    query.awaitTermination()
    counted = [each for each in query.recentProgress if each["numInputRows"]]
    if len(counted) != batches or len({each["numInputRows"] for each in counted}) != 1:
        raise RuntimeError(f"Spark tells of {len(counted)} batches instead of {batches}, or of unequal ones")
    return [each["durationMs"]["triggerExecution"] for each in counted[1:]]


def one_round(
    spark: SparkSession, root: Path, bootstrap: str, lake: str, order: Sequence[str], batches: int
) -> dict[str, list[int]]:
    """Run each sink once, with a table and a coordinator of its own; return the durations of batches."""
    found = {}
    for sink in order:
        folder = root / uuid.uuid4().hex
        folder.mkdir()
        with served(lake, folder, bootstrap) as table:
            found[sink] = durations(start(spark, root / "in", folder, sink, table.sink), batches)
            if sink != "spark":
                table.await_commit(batches - 1)
        shutil.rmtree(folder)
    return found


def summary(lake: str, rows: int, rounds: Sequence[Mapping[str, list[int]]]) -> dict[str, Any]:
    """Return the figures of one format. `rows`: those of a batch."""
    found: dict[str, Any] = {"format": lake, "rounds": len(rounds)}
    medians = {sink: statistics.median(each for one in rounds for each in one[sink]) for sink in SINKS}
    for sink in SINKS:
        found[f"{sink}_rows_per_s"] = round(rows * 1000 / medians[sink])
    for sink in SINKS[1:]:
        ratios = [statistics.median(one["spark"]) / statistics.median(one[sink]) for one in rounds]
        found[f"{sink}_ratio"] = round(medians["spark"] / medians[sink], 2)
        found[f"{sink}_ratios"] = [round(each, 2) for each in ratios]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", default="paimon,iceberg,delta")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=6, help="of each query; the first does not count")
    parser.add_argument("--copies", type=int, default=4, help="of the flights in a batch")
    parser.add_argument("--rows", type=int, default=TOTAL_ROWS, help="flights of a copy")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka() as kafka:
        root = Path(name)
        make_input(root / "in", given.batches, given.rows, given.copies)
        spark = make_session(root)
        before, rounds = machine(), defaultdict(list)
        # One round more: the first one warms the session.
        for number in range(-WARM_UP, given.rounds):
            turn = number % len(SINKS)
            order = (*SINKS[turn:], *SINKS[:turn])
            for lake in given.formats.split(","):
                found = one_round(spark, root, kafka.bootstrap, lake, order, given.batches)
                if number >= 0:
                    rounds[lake].append(found)
        after = machine()
        for lake, counted in rounds.items():
            report(
                {**summary(lake, given.rows * given.copies, counted), "before": before, "after": after},
                as_json=given.json,
            )
        spark.stop()


if __name__ == "__main__":
    main()
