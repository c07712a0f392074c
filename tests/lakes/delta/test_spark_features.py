"""Tables that Spark has made with features: it reads our commits, and we refuse what we cannot keep."""

from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import TableRefused
from tests.lakes.delta.test_commits import written
from tests.lakes.delta.test_spark import Shared
from tests.spark_judge.judge import SparkJudge

INT = (1 << 31) - 1


@pytest.mark.parametrize("mode", ["name", "id"])
def test_spark_reads_a_table_with_column_mapping(spark_judge: SparkJudge, tmp_path: Path, mode: str) -> None:
    columns = "id BIGINT, `a b` STRUCT<x: BIGINT>, p STRING"
    table = Shared(spark_judge, tmp_path / "t", columns, "PARTITIONED BY (p)", delta_columnMapping_mode=mode)

    def ours(name: str, number: int) -> None:
        values = {name: pa.array([number, None], pa.int64()), "a b": [{"x": number}, None], "p": ["u", None]}
        table.ours(written(table.root, pa.record_batch(values)))

    ours("id", 1)
    table.theirs("INSERT INTO {} VALUES (2, struct(2), 'u')")
    ours("id", 3)
    assert table.read("id, `a b`.x, p", "id >= 1") == [(1, 1, "u"), (2, 2, "u"), (3, 3, "u")]
    table.theirs("ALTER TABLE {} RENAME COLUMN id TO number")
    ours("number", 4)
    assert table.read("number", "`a b`.x = 4") == table.read("number", "number > 3") == [(4,)]
    assert table.read("number", "`a b`.x <= 1 AND p = 'u'") == [(1,)]
    assert len(table.read("number", "number IS NULL AND p IS NULL")) == 3


def test_spark_gives_each_row_of_ours_an_id(spark_judge: SparkJudge, tmp_path: Path) -> None:
    table = Shared(spark_judge, tmp_path / "t", "id BIGINT", delta_enableRowTracking="true")
    table.commit(1, 2)
    table.theirs("INSERT INTO {} VALUES (3), (4)")
    table.commit(5)
    before = {row[0]: row[1] for row in table.read("id, _metadata.row_id")}
    assert len(set(before.values())) == 5
    assert table.read("id, _metadata.row_commit_version", "id >= 4") == [(4, 2), (5, 3)]
    table.theirs("OPTIMIZE {}")
    table.commit(6)
    after = {row[0]: row[1] for row in table.read("id, _metadata.row_id")}
    assert {number: after[number] for number in before} == before
    assert len(set(after.values())) == 6


def test_spark_reads_the_times_in_our_commits(spark_judge: SparkJudge, tmp_path: Path) -> None:
    table = Shared(spark_judge, tmp_path / "t", "id BIGINT", delta_enableInCommitTimestamps="true")
    table.commit(1)
    table.theirs("INSERT INTO {} VALUES (2)")
    table.commit(3)
    history = {row[0]: row[1] for row in spark_judge.sql(f"DESCRIBE HISTORY {table.name}")}
    assert [history[version] for version in range(4)] == sorted(set(history.values()))
    at = f"SELECT id FROM {table.name} TIMESTAMP AS OF '{history[1]}'"  # noqa: S608
    assert spark_judge.sql(at) == [[1]]


def test_spark_reads_files_from_before_and_after_a_type_was_widened(
    spark_judge: SparkJudge, tmp_path: Path
) -> None:
    table = Shared(spark_judge, tmp_path / "t", "id INT", delta_enableTypeWidening="true")

    def rows(*numbers: int, kind: pa.DataType) -> pa.RecordBatch:
        return pa.record_batch({"id": pa.array(numbers, kind)})

    table.ours(written(table.root, rows(1, INT, kind=pa.int32())))
    older = written(table.root, rows(2, INT - 1, kind=pa.int32()))
    table.theirs("ALTER TABLE {} ALTER COLUMN id TYPE BIGINT")
    newer = written(table.root, rows(3, INT + 1, kind=pa.int64()))
    table.ours(older, newer)
    assert table.ids() == [1, 2, 3, INT - 1, INT, INT + 1]
    assert table.read("id", f"id > {INT}") == [(INT + 1,)]
    assert table.read("id", f"id >= {INT}") == [(INT,), (INT + 1,)]
    assert table.read("id", "id = 2 OR id = 3") == [(2,), (3,)]


REFUSED = {
    "identity": ("id BIGINT GENERATED ALWAYS AS IDENTITY, v BIGINT", "", "", "identityColumns"),
    "generated": ("id BIGINT, v BIGINT GENERATED ALWAYS AS (id + 1)", "", "", "a generation expression"),
    "check": ("id BIGINT", "", "ADD CONSTRAINT positive CHECK (id > 0)", "delta.constraints.positive"),
    "iceberg": (
        "id BIGINT",
        "'delta.enableIcebergCompatV2' = 'true', 'delta.columnMapping.mode' = 'name'",
        "",
        "icebergCompatV2",
    ),
    "varchar": ("id VARCHAR(3)", "", "", "char or varchar"),
    "variant": ("id VARIANT", "", "", "variantType"),
}


def test_tables_of_spark_with_features_that_we_cannot_keep_are_refused(
    spark_judge: SparkJudge, tmp_path: Path
) -> None:
    for name, (columns, properties, change, words) in REFUSED.items():
        root = tmp_path / name
        given = f"TBLPROPERTIES ({properties})" if properties else ""
        spark_judge.sql(f"CREATE TABLE delta.`{root}` ({columns}) USING delta {given}")
        if change:
            spark_judge.sql(f"ALTER TABLE delta.`{root}` {change}")
        ref = ADAPTER.parse_table(str(root))
        with pytest.raises(TableRefused, match=words):
            ADAPTER.open_committer(ref, "user")
        with pytest.raises(TableRefused, match=words):
            ADAPTER.open_writer(ref, None)


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
    table.ours(written(table.root, pa.record_batch(rows, schema=wide)))
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
