"""Spark with Iceberg's own runtime: it reads our commits, and writes, deletes and cleans up between them."""

import os
import time
from pathlib import Path
from typing import Any, Final

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import Published
from tests.contracts.lakes.harness import Stream, with_commits
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.iceberg_java.java import sql_catalog
from tests.lakes.recipes import statements
from tests.spark_judge.judge import SparkJudge

CATALOG: Final = "spark.sql.catalog.lake"
TABLE: Final = "lake.db.numbers"
DAY: Final = 86_400


class SparkLake(IcebergLake):
    """A table that Spark finds in its catalog `lake`."""

    catalog_name = "lake"


def joined(judge: SparkJudge, lake: IcebergLake) -> None:
    """Begin a session that has the catalog of a table."""
    properties = {**sql_catalog(lake.database, f"file://{lake.root.parents[1]}"), "cache-enabled": "false"}
    settings = {f"{CATALOG}.{name}": value for name, value in properties.items()}
    judge.begin({CATALOG: "org.apache.iceberg.spark.SparkCatalog", **settings})


def publish(stream: Stream, decision: int, *events: FilesWritten) -> None:
    """Commit as a coordinator does."""
    stream.committer.check(events)
    outcome = stream.publish(decision, stream.head(decision), list(events))
    assert isinstance(outcome, Published)
    stream.recorded = outcome.snapshot


def rows_of(judge: SparkJudge, columns: str, where: str = "true") -> list[tuple[Any, ...]]:
    statement = f"SELECT {columns} FROM {TABLE} WHERE {where} ORDER BY ALL"  # noqa: S608
    return [tuple(row) for row in judge.sql(statement)]


def ids(judge: SparkJudge) -> list[int]:
    return [number for (number,) in rows_of(judge, "id")]


ALL: Final = "older_than => current_timestamp(), retain_last => 1"


def aged(lake: IcebergLake, days: int) -> None:
    """Let all files and snapshots of a table be older."""
    past = time.time() - days * DAY
    for file in (path for path in lake.root.rglob("*") if path.is_file()):
        os.utime(file, (past, past))

    def change(fields: dict[str, Any]) -> None:
        for each in (*fields["snapshots"], *fields["snapshot-log"]):
            each["timestamp-ms"] -= days * DAY * 1000
        fields["last-updated-ms"] -= days * DAY * 1000
        fields["metadata-log"] = []

    lake.edit(change)


def test_the_recipe_cleans_up_and_spares_pending_files(spark_judge: SparkJudge, tmp_path: Path) -> None:
    lake = SparkLake(tmp_path, 3)
    joined(spark_judge, lake)
    stream = with_commits(lake, 12)
    orphan = lake.event([900])
    aged(lake, 40)
    stream = Stream(lake)
    waiting = lake.event([13])
    (path,) = (lake.root / file.path for file in waiting.files)
    past = time.time() - 29 * DAY
    os.utime(path, (past, past))
    for statement in statements("iceberg"):
        spark_judge.sql(statement.replace("db.flights", "db.numbers"))
    (lost,) = (lake.root / file.path for file in orphan.files)
    assert (path.exists(), lost.exists()) == (True, False)
    assert len(lake.metadata.snapshots) < 12
    live = spark_judge.sql(f"SELECT count(*) FROM {TABLE}.files")  # noqa: S608
    assert live == [[1]], "the files were compacted"
    publish(stream, 13, waiting)
    assert ids(spark_judge) == list(range(1, 14)) == lake.ids()
    assert rows_of(spark_judge, "sum(id)") == [(91,)]
