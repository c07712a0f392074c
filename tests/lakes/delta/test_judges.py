"""Other readers and writers of Delta take our commits, and we take theirs: deltalake, and DuckDB's reader."""

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sluicegate.lakes.port import Found
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import USER, Stream
from tests.lakes.delta.making import column, info, mapped, metadata, protocol, put
from tests.lakes.delta.test_commits import commit, written


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """Give DuckDB with its Delta reader, which is built on another library than deltalake's writer."""
    found = importlib.util.find_spec("duckdb_extension_delta")
    assert found is not None
    assert found.origin is not None
    (extension,) = Path(found.origin).parent.rglob("*.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        yield connection


def rows(
    duck: duckdb.DuckDBPyConnection, root: Path, columns: str = "*", where: str = "true"
) -> Sequence[tuple[object, ...]]:
    table = duck.table_function("delta_scan", [str(root)])
    return table.filter(where).project(columns).order("1").fetchall()


@pytest.mark.slow
def test_duckdb_reads_what_we_commit(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("dt", pa.date32()), ("n", pa.int32())])
    lake = DeltaLake(tmp_path, schema, ["dt", "n"])
    batch = pa.record_batch(
        {
            "id": pa.array(range(6), pa.int64()),
            "name": ["a", None, "c", "d", "e", "f"],
            "dt": pa.array([0, 0, 1, 1, 2, None], pa.date32()),
            "n": pa.array([1, 2, 1, 2, None, 1], pa.int32()),
        }
    )
    commit(lake.root, 1, lake.write(batch))
    assert rows(duck, lake.root, "id") == [(number,) for number in range(6)]
    assert rows(duck, lake.root, "id", "dt = DATE '1970-01-02' AND n = 2") == [(3,)]
    assert rows(duck, lake.root, "id", "dt IS NULL OR n IS NULL") == [(4,), (5,)]
    assert rows(duck, lake.root, "id", "id > 4") == [(5,)]
    assert rows(duck, lake.root, "id", "name = 'c'") == [(2,)]


PARTITIONS = {
    "timestamp": ("TIMESTAMPTZ '2026-07-01 01:02:03.000004+00'", "timestamp"),
    "boolean": ("true", "boolean"),
    "decimal": ("-1.50", "decimal(5,2)"),
    "text": ("'a/b %2F ä..'", "string"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTITIONS)
def test_readers_parse_the_text_of_a_partition(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection, name: str
) -> None:
    value, kind = PARTITIONS[name]
    put(tmp_path, 0, info(), protocol(), metadata([column("id"), column("p", kind)], ["p"]))
    arrow = duck.execute(f"SELECT 1::BIGINT AS id, {value} AS p").to_arrow_table()
    (batch,) = arrow.to_batches()
    commit(tmp_path, 1, written(tmp_path, batch))
    assert rows(duck, tmp_path, "id", f"p = {value}") == [(1,)]
    assert pa.table(DeltaTable(str(tmp_path)).scan())["p"].to_pylist() == batch["p"].to_pylist()


@pytest.mark.slow
def test_readers_resolve_the_columns_of_a_mapped_table(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    nested = {"type": "struct", "fields": [mapped("x", 4)]}
    columns = [mapped("id", 1), mapped("s", 2, nested), mapped("p", 3, "string")]
    features = protocol(["columnMapping"], ["columnMapping"])
    put(tmp_path, 0, info(), features, metadata(columns, ["p"], properties))
    batch = pa.record_batch({"id": pa.array([1, 2], pa.int64()), "s": [{"x": 5}, {"x": 6}], "p": ["u", "v"]})
    commit(tmp_path, 1, written(tmp_path, batch))
    # DuckDB 1.5 gives null for the partition columns of any table with column mapping.
    assert rows(duck, tmp_path, "id, s.x") == [(1, 5), (2, 6)]
    assert rows(duck, tmp_path, "id", "id > 1") == [(2,)]


@pytest.mark.slow
def test_the_library_works_on_between_our_commits(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    """It appends, deletes, compacts, vacuums, and makes a checkpoint; we continue after each."""
    lake = DeltaLake(tmp_path)
    stream = Stream(lake)
    stream.commit(1, [1, 2])
    lake.foreign([100])
    stream.commit(2, [3])
    lake.table.delete("id = 2")
    stream.commit(3, [4])
    lake.table.optimize.compact()
    stream.commit(4, [5])
    lake.table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    stream.commit(5, [6])
    lake.table.create_checkpoint()
    stream.commit(6, [7])
    assert lake.ids() == [1, 3, 4, 5, 6, 7, 100]
    assert rows(duck, lake.root, "id") == [(number,) for number in lake.ids()]
    successor = Stream(lake)
    assert isinstance(successor.ask(6), Found)
    history = lake.maintenance().history()
    assert [each.decision for each in history.commits if each.commit_user == USER] == [6, 5, 4, 3, 2, 1]
