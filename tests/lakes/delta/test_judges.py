"""Readers that share no code with us find the rows of partitions and of mapped columns: deltalake, DuckDB."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Stream
from tests.lakes.delta.making import HandMade, column, mapped, metadata, protocol
from tests.lakes.values import duck_of_delta


def rows(lake: DeltaLake, columns: str = "*", where: str = "true") -> Sequence[tuple[object, ...]]:
    table = duck_of_delta().table_function("delta_scan", [str(lake.root)])
    return table.filter(where).project(columns).order("1").fetchall()


PARTITIONS = {
    "timestamp": ("TIMESTAMPTZ '2026-07-01 01:02:03.000004+00'", "timestamp"),
    "boolean": ("true", "boolean"),
    "decimal": ("-1.50", "decimal(5,2)"),
    "text": ("'a/b %2F ä..'", "string"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTITIONS)
def test_readers_parse_the_text_of_a_partition(tmp_path: Path, name: str) -> None:
    value, kind = PARTITIONS[name]
    lake = HandMade(tmp_path, protocol(), metadata([column("id"), column("p", kind)], ["p"]))
    (batch,) = duck_of_delta().execute(f"SELECT 1::BIGINT AS id, {value} AS p").to_arrow_table().to_batches()
    Stream(lake).add(1, lake.write(batch))
    assert rows(lake, "id", f"p = {value}") == [(1,)]
    assert lake.read()["p"].to_pylist() == batch["p"].to_pylist()


@pytest.mark.slow
def test_readers_resolve_the_columns_of_a_mapped_table(tmp_path: Path) -> None:
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    nested = {"type": "struct", "fields": [mapped("x", 4)]}
    columns = [mapped("id", 1), mapped("s", 2, nested), mapped("p", 3, "string")]
    features = protocol(["columnMapping"], ["columnMapping"])
    lake = HandMade(tmp_path, features, metadata(columns, ["p"], properties))
    batch = pa.record_batch({"id": pa.array([1, 2], pa.int64()), "s": [{"x": 5}, {"x": 6}], "p": ["u", "v"]})
    Stream(lake).add(1, lake.write(batch))
    # DuckDB 1.5 gives null for the partition columns of any table with column mapping.
    assert rows(lake, "id, s.x") == [(1, 5), (2, 6)]
    assert rows(lake, "id", "id > 1") == [(2,)]
