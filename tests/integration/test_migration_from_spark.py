"""The page about a query that leaves its sink: its steps, with the real sinks of Delta and Iceberg."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from sluicegate.writer_hooks import start_incarnation
from tests.faults.tables import kind_of
from tests.iceberg_java.java import sql_catalog
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until
from tests.spark_judge.judge import REASON, SKIPPED, spark_with_runtimes

pytestmark = [
    pytest.mark.long,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.skipif(os.environ.get(SKIPPED) == "no", reason=REASON),
]

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "migration" / "spark.md", DOCS / "uninstall.md")
SCRIPT = Path(__file__).with_name("migrating_query.py")
QUICK = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "900m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Settings of a session with few rows: compiling costs more than it saves."""
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@pytest.fixture(params=["delta", "iceberg"])
async def place(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str, tmp_path: Path) -> Place:
    """Topics, and a table of a format."""
    return await place_of(str(request.param), kafka_bootstrap, unique, tmp_path)


@pytest.fixture
def page() -> dict[str, Any]:
    """The functions of this page, and of the one about what stays."""
    found: dict[str, Any] = {}
    text = "".join(each.read_text(encoding="utf-8") for each in PAGES)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if "\ndef " in f"\n{block}":
            exec(block, found)  # noqa: S102
    return found


class OldQuery:
    """The query with its old sink, in a process of its own."""

    def __init__(self, place: Place, job: SparkJob) -> None:
        environment, jars = spark_with_runtimes()
        catalog = {}
        if place.lake == "iceberg":
            database = place.lake_options["uri"].removeprefix("sqlite:///")
            catalog = {
                "spark.sql.catalog.default": "org.apache.iceberg.spark.SparkCatalog",
                **{
                    f"spark.sql.catalog.default.{name}": value
                    for name, value in sql_catalog(database, f"file://{place.root}").items()
                },
            }
        settings = {
            "session": {**QUICK, **DELTA, **catalog},
            "format": place.lake,
            "table": "`default`.db.flights" if place.lake == "iceberg" else place.table,
            "columns": job.columns,
            "source": str(job.source),
            "location": str(job.checkpoint),
        }
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), jars, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    async def run(self, *, fails: bool = False) -> str:
        """Run the query to its end. Return `done` or `failed`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("fail\n" if fails else "run\n")
        self._process.stdin.flush()
        return (await asyncio.to_thread(self._process.stdout.readline)).strip()

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture
def job(place: Place, spark: SparkThread) -> SparkJob:
    """A query of this product: by ForeachBatch for one format, by the data source for the other."""
    return SparkJob(spark, place, foreach=place.lake == "delta")


@pytest.fixture
def old(place: Place, job: SparkJob) -> Iterator[OldQuery]:
    query = OldQuery(place, job)
    yield query
    query.end()


def ids(place: Place) -> list[int]:
    table = Path(place.table)
    return sorted(row["id"] for row in kind_of(table).rows(table))


def newest_in_table(place: Place, page: dict[str, Any], query: str) -> int | None:
    found: int | None
    if place.lake == "delta":
        found = page["batch_in_delta"](place.table, query)
    else:
        with iceberg_table(place) as table:
            found = page["batch_in_iceberg"](table, query)
    return found


@contextmanager
def iceberg_table(place: Place) -> Iterator[Table]:
    catalog = SqlCatalog("default", uri=place.lake_options["uri"], warehouse=f"file://{place.root}")
    try:
        yield catalog.load_table("db.flights")
    finally:
        catalog.close()


async def test_a_query_leaves_its_sink_and_goes_back(
    place: Place, job: SparkJob, old: OldQuery, page: dict[str, Any]
) -> None:
    job.feed([0], [1])
    assert await old.run() == "done"
    location = str(job.checkpoint)
    query = page["query_of"](location)

    # The driver was lost after the commit of the table, before the note of Spark.
    for path in (job.checkpoint / "commits" / "1", job.checkpoint / "commits" / ".1.crc"):
        path.unlink()
    assert page["progress"](location) == (1, 0)
    assert newest_in_table(place, page, query) == 1
    assert await old.run() == "done"
    assert page["progress"](location) == (1, 1)
    assert ids(place) == [0, 1], "skipped by its mark"

    # The next batch was planned, and did not come into the table.
    job.feed([2])
    assert await old.run(fails=True) == "failed"
    assert page["progress"](location) == (2, 1)
    in_table = newest_in_table(place, page, query)
    assert in_table == 1
    first = page["first_batch"](location, in_table)
    assert first == 2
    start_incarnation(location, first=first, unwritten=True)
    job.feed([3])
    async with running(place.settings()):
        await job.run()
        await until(lambda: asyncio.to_thread(ids, place), lambda found: found == [0, 1, 2, 3])
    assert page["progress"](location) == (3, 3)

    job.feed([4])
    assert await old.run() == "done"
    assert newest_in_table(place, page, query) == 4
    assert ids(place) == [0, 1, 2, 3, 4]

    # The old sink needs nothing that this product has left.
    if place.lake == "iceberg":
        with iceberg_table(place) as table:
            page["remove_marks"](table)
        with iceberg_table(place) as table:
            assert not [name for name in table.properties if name.startswith("sluicegate")]
    shutil.rmtree(job.checkpoint / "sluicegate")
    job.feed([5])
    assert await old.run() == "done"
    assert ids(place) == [0, 1, 2, 3, 4, 5]
