"""A micro-batch that Spark repeats: the rows of plain appends in foreachBatch, and those of Sluicegate.

    python -m tools.bench.doubling

Spark writes an entry to its commit log after each micro-batch. If a driver dies before that, or the entry is
lost, the next start runs the batch again (Paimon's issue 9666). Three files of ten rows are three batches.
Then the newest entry is removed, and the query starts again. A table with 30 rows is right.

Peers run in Spark with the runtimes of Delta and Iceberg. Delta's options txnAppId and txnVersion are its own
remedy, which a user has to know. Sluicegate runs with the installed Spark, a real Kafka and a coordinator.
"""

import asyncio
import json
import logging
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Final

import structlog
from pyspark import __version__ as spark_version

from sluicegate.cli.local.servers import EmbeddedKafka
from tests.faults import tables
from tests.integration.conftest import place_of
from tests.integration.coordinator import running
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until
from tests.spark_judge.judge import spark_with_runtimes
from tools.bench.doubling_peer import newest_entry

BATCHES: Final = 3
ROWS: Final = 10
PEERS: Final = ("delta", "iceberg", "delta with txnAppId")


def peer(kind: str) -> dict[str, object]:
    """Return the figures of plain appends."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in"
        source.mkdir()
        for batch in range(BATCHES):
            lines = [json.dumps({"id": batch * ROWS + row}) for row in range(ROWS)]
            (source / f"{batch}.json").write_text("\n".join(lines))
        environment, jars = spark_with_runtimes()
        script = str(Path(__file__).with_name("doubling_peer.py"))
        done = subprocess.run(
            [sys.executable, script, jars, folder, kind],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return {"sink": f"{kind}, plain append", **found}


def rows_of(table: Path) -> list[int]:
    """Return the ids in a table, by a reader that is not ours."""
    return [int(row["id"]) for row in tables.kind_of(table).rows(table)]


async def ours(kafka: EmbeddedKafka, spark: SparkThread, lake: str, root: Path) -> dict[str, object]:
    """Return the figures of this product."""
    place = await place_of(lake, kafka.bootstrap, f"d{uuid.uuid4().hex[:8]}", root)
    async with running(place.settings()):
        job = SparkJob(spark, place)
        job.feed(*(range(batch * ROWS, (batch + 1) * ROWS) for batch in range(BATCHES)))
        await job.run()
        for path in newest_entry(job.checkpoint / "commits"):
            path.unlink()
        await job.run()
        table = Path(place.table)
        # One more batch: when its row is there, everything before it is there as well.
        job.feed([BATCHES * ROWS])
        await job.run()
        await until(lambda: rows_of(table), lambda ids: BATCHES * ROWS in ids)
        ids = [each for each in rows_of(table) if each < BATCHES * ROWS]
    return {"sink": f"{lake}, Sluicegate", "rows": len(ids), "distinct": len({*ids}), "spark": spark_version}


async def main() -> None:
    """Print a line for each sink."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for kind in PEERS:
        print(json.dumps(peer(kind)), flush=True)
    spark = SparkThread()
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        for lake in ("delta", "iceberg", "paimon"):
            print(json.dumps(await ours(kafka, spark, lake, Path(folder) / lake)), flush=True)
    spark.stop()


if __name__ == "__main__":
    asyncio.run(main())
