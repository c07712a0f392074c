"""Spark with Delta's own runtime: it reads our commits, and makes, changes and cleans tables between them."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import CommitRequest, Found, Published
from tests.contracts.lakes.harness import USER, written
from tests.lakes.recipes import statements
from tests.spark_judge.judge import SparkJudge


class Shared:
    """A table that Spark has made, and that both write to."""

    def __init__(self, judge: SparkJudge, root: Path, columns: str, clauses: str = "", **properties: str):
        self.judge, self.root = judge, root
        self.name = f"delta.`{root}`"
        said = ", ".join(f"'{name.replace('_', '.')}' = '{value}'" for name, value in properties.items())
        given = f"TBLPROPERTIES ({said})" if said else ""
        judge.sql(f"CREATE TABLE {self.name} ({columns}) USING delta {clauses} {given}")
        self.ref = ADAPTER.parse_table(str(root))
        self.committer = self.opened()
        self.decision = 0

    def opened(self) -> DeltaCommitter:
        """Open a committer."""
        return ADAPTER.open_committer(self.ref, USER)

    def ours(self, *events: FilesWritten) -> None:
        """Commit as a coordinator does."""
        self.decision += 1
        digest = f"digest-{self.decision}"
        state = self.committer.inspect()
        self.committer.check(events)
        outcome = self.committer.publish(CommitRequest(self.decision, digest, state.head, None, events))
        assert isinstance(outcome, Published), outcome
        assert isinstance(self.committer.ask(self.decision, digest, state.identity, state.head), Found)

    def commit(self, *ids: int) -> None:
        """Commit rows with one column."""
        self.ours(written(ADAPTER, self.ref, pa.record_batch({"id": pa.array(ids, pa.int64())})))

    def theirs(self, statement: str) -> None:
        """Run a statement of Spark with `{}` in place of the table."""
        self.judge.sql(statement.format(self.name))

    def read(self, columns: str = "id", where: str = "true") -> list[tuple[object, ...]]:
        """Return the rows that Spark sees, in order."""
        statement = " ".join(["SELECT", columns, "FROM", self.name, "WHERE", where, "ORDER BY ALL"])
        return [tuple(row) for row in self.judge.sql(statement)]

    def ids(self) -> list[object]:
        return [number for (number,) in self.read()]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {
            "delta_enableDeletionVectors": "true",
            "delta_enableChangeDataFeed": "true",
            "delta_checkpointPolicy": "v2",
            "delta_checkpointInterval": "2",
        },
    ],
    ids=["plain", "deletion vectors, change data feed, checkpoints of version 2"],
)
def test_spark_appends_deletes_compacts_and_vacuums_between_our_commits(
    spark_judge: SparkJudge, tmp_path: Path, properties: dict[str, str]
) -> None:
    table = Shared(spark_judge, tmp_path / "t", "id BIGINT", **properties)
    table.commit(1, 2, 3)
    table.theirs("INSERT INTO {} VALUES (100), (101)")
    table.commit(4)
    table.theirs("DELETE FROM {} WHERE id IN (2, 100)")
    table.commit(5)
    table.theirs("OPTIMIZE {}")
    table.commit(6)
    table.theirs("VACUUM {} RETAIN 0 HOURS")
    table.commit(7)
    assert table.ids() == [1, 3, 4, 5, 6, 7, 101]
    table.theirs("RESTORE TABLE {} TO VERSION AS OF 7")
    table.commit(8)
    assert table.ids() == [1, 3, 4, 5, 6, 8, 101]
    operations = [row[4] for row in spark_judge.sql(f"DESCRIBE HISTORY {table.name}")]
    assert operations.count("WRITE") == 7
    assert {"DELETE", "OPTIMIZE", "RESTORE"} <= set(operations)
    assert table.opened().inspect().newest_made == 6
    history = ADAPTER.open_maintenance(table.ref).history()
    assert [each.decision for each in history.commits if each.commit_user == USER] == list(range(6, 0, -1))


def age(path: Path, days: int) -> None:
    past = time.time() - days * 86_400
    os.utime(path, (past, past))


def test_the_recipe_cleans_up_and_spares_pending_files(spark_judge: SparkJudge, tmp_path: Path) -> None:
    table = Shared(spark_judge, tmp_path / "t", "id BIGINT")
    for number in range(1, 6):
        table.commit(number)
    waiting, orphan = (
        written(ADAPTER, table.ref, pa.record_batch({"id": pa.array([number], pa.int64())}))
        for number in (6, 900)
    )
    (kept,), (lost,) = ([table.root / file.path for file in event.files] for event in (waiting, orphan))
    age(kept, 29)
    age(lost, 31)
    for statement in statements("delta"):
        table.theirs(statement.replace("delta.`/lake/flights`", "{}"))
    assert (kept.exists(), lost.exists()) == (True, False)
    (files,) = spark_judge.sql(f"DESCRIBE DETAIL {table.name}")
    assert 1 in files, "OPTIMIZE made one file"
    table.ours(waiting)
    assert table.ids() == [1, 2, 3, 4, 5, 6]
    assert table.read("sum(id), count(*)") == [(21, 6)]


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_spark_reads_our_new_columns_and_adds_its_own(
    spark_judge: SparkJudge, tmp_path: Path, mode: str
) -> None:
    table = Shared(
        spark_judge,
        tmp_path / "t",
        "id BIGINT",
        delta_columnMapping_mode=mode,
        delta_enableInCommitTimestamps="true",
        delta_enableRowTracking="true",
        delta_enableChangeDataFeed="true",
    )
    table.commit(1)
    place = pa.struct([("x", pa.int64()), ("tags", pa.map_(pa.string(), pa.int64()))])
    wide = pa.schema([("id", pa.int64()), ("note", pa.string()), ("place", place)])
    evolve(ADAPTER, table.ref, wide)
    rows = [[2], ["b"], pa.array([{"x": 5, "tags": [("k", 7)]}], place)]
    table.ours(written(ADAPTER, table.ref, pa.record_batch(rows, schema=wide)))
    table.commit(3)
    expected = [(1, None, None, None), (2, "b", 5, 7), (3, None, None, None)]
    assert table.read("id, note, place.x, place.tags['k']") == expected
    assert table.read("id", "place.x = 5 AND note = 'b'") == [(2,)]
    table.theirs("ALTER TABLE {} ADD COLUMN theirs BIGINT")
    table.theirs("INSERT INTO {} VALUES (4, 'd', NULL, 40)")
    wider = wide.append(pa.field("theirs", pa.int64())).append(pa.field("more", pa.bool_()))
    evolve(ADAPTER, table.ref, wider)
    table.commit(5)
    assert table.read("id, note, theirs, more", "id > 3") == [(4, "d", 40, None), (5, None, None, None)]
    table.theirs("OPTIMIZE {}")
    table.commit(6)
    assert len(set(table.read("_metadata.row_id"))) == 6
    operations = [row[4] for row in spark_judge.sql(f"DESCRIBE HISTORY {table.name}")]
    assert operations.count("ADD COLUMNS") == 3
