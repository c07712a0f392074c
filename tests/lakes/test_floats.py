"""Floats: no reader skips a row by bounds that leave NaN out, or by the zero of the other sign."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluicegate.lakes import parquet
from sluicegate.lakes.iceberg.layout import Layout
from sluicegate.lakes.parquet import Floats
from sluicegate.lakes.port import FileWriter
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.lakes.values import FORMATS, table

NAN = math.nan
ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("plain", pa.float64()),
        ("strange", pa.float64()),
        ("zero", pa.float32()),
        ("void", pa.float64()),
        ("s", pa.struct([("inner", pa.float64()), ("whole", pa.int64())])),
        ("list", pa.list_(pa.float64())),
    ]
)


def row(number: int, strange: float | None, zero: float, inner: float | None) -> dict[str, Any]:
    nested = None if inner is None else {"inner": inner, "whole": number}
    return {
        "id": number,
        "plain": number / 2,
        "strange": strange,
        "zero": zero,
        "void": NAN,
        "s": nested,
        "list": [NAN, 1.0],
    }


FIRST = [row(1, 1.0, 0.0, 1.0), row(2, NAN, 0.0, NAN), row(3, None, 0.0, None)]
QUESTIONS = {
    "strange = 'nan'::DOUBLE": [2],
    "strange > 5": [2],
    "strange <> 1": [2],
    "strange < 5": [1],
    "s.inner = 'nan'::DOUBLE": [2],
    "void = 'nan'::DOUBLE": [1, 2, 3],
    "zero = 0.0": [1, 2, 3],
    "zero = '-0.0'::FLOAT": [1, 2, 3],
    "zero >= 0.0": [1, 2, 3],
    "plain = 1.5": [3],
    "plain > 1.5": [],
}


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=ROWS)


def made(lake: str, root: Path) -> tuple[FileWriter, Path]:
    """Make a table; return a writer and the folder of the data."""
    found = table(lake, root, ROWS)
    return found.adapter.open_writer(found.adapter.parse_table(found.location), None), found.root


@pytest.mark.parametrize("lake", FORMATS)
def test_filters_inside_of_a_parquet_file_find_all_rows(lake: str, tmp_path: Path) -> None:
    writer, root = made(lake, tmp_path)
    writer.write(batch(FIRST))
    (file,) = writer.finish()
    found = {where: sorted(number for (number,) in ids(root / file.path, where)) for where in QUESTIONS}
    assert found == QUESTIONS
    assert bounded(root / file.path) == {"id", "plain", "zero", "s.whole"}, "all other columns have bounds"


def ids(path: Path, where: str) -> list[tuple[Any, ...]]:
    query = f"SELECT id FROM read_parquet('{path}') WHERE {where}"  # noqa: S608
    return duckdb.sql(query).fetchall()


def bounded(path: Path) -> set[str]:
    """Return the columns that have bounds in a Parquet file."""
    group = pq.read_metadata(path).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return {each.path_in_schema for each in chunks if each.is_stats_set and each.statistics.has_min_max}


@pytest.mark.parametrize("lake", ["iceberg", "delta"])
def test_nan_that_comes_later_begins_another_file(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "BUFFER_ROWS", 1)
    writer, root = made(lake, tmp_path)
    rows = [row(1, 1.0, 0.0, 1.0), row(2, 2.0, 0.0, 2.0), row(3, NAN, 0.0, 3.0), row(4, 4.0, 0.0, 4.0)]
    for each in rows:
        writer.write(batch([each]))
    first, second = writer.finish()
    assert (first.rows, second.rows) == (2, 2)
    assert "strange" in bounded(root / first.path)
    assert "strange" not in bounded(root / second.path)


def test_records_of_iceberg_count_nan_and_have_no_bounds_of_it(tmp_path: Path) -> None:
    lake = table("iceberg", tmp_path, ROWS)
    assert isinstance(lake, IcebergLake)
    (file,) = lake.write(batch(FIRST)).files
    record = Layout(lake.table.schema(), lake.table.spec(), 2).decode(file.metadata)

    def of(name: str) -> dict[int, Any]:
        return {pair["key"]: pair["value"] for pair in record[name]}

    assert of("nan_value_counts") == {2: 0, 3: 1, 4: 0, 5: 3, 8: 1}
    nulls = {key: of("null_value_counts")[key] for key in (1, 2, 3, 4, 5, 8)}
    assert nulls == {1: 0, 2: 0, 3: 1, 4: 0, 5: 0, 8: 1}
    assert set(of("lower_bounds")) == set(of("upper_bounds")) == {1, 2, 4}
    assert of("lower_bounds")[4] == b"\0\0\0\x80"
    assert of("upper_bounds")[4] == b"\0\0\0\0"


def test_entries_of_paimon_have_no_bounds_of_nan(tmp_path: Path) -> None:
    from sluicegate.lakes.paimon.data_files import DataFiles

    seen = []
    correct = DataFiles.correct

    def watching(self: DataFiles, file: Any) -> None:
        correct(self, file)
        seen.append(file.value_stats)

    writer, _ = made("paimon", tmp_path)
    writer.write(batch([*FIRST, row(4, 2.0, -0.0, 2.0)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataFiles, "correct", watching)
        writer.finish()
    (stats,) = seen
    bounds = (stats.min_values, stats.max_values)
    lowest, highest = (dict(zip(ROWS.names, each.values, strict=True)) for each in bounds)
    assert {name for name in ROWS.names if lowest[name] is None} == {"strange", "void", "s", "list"}
    assert {name for name in ROWS.names if highest[name] is None} == {"strange", "void", "s", "list"}
    assert (math.copysign(1, lowest["zero"]), math.copysign(1, highest["zero"])) == (-1, 1)
    assert stats.null_counts[ROWS.names.index("strange")] == 1


def test_a_column_with_the_path_of_one_with_nan_gets_no_statistics(tmp_path: Path) -> None:
    whole = pa.StructArray.from_arrays([pa.array([1, 2])], ["v"])
    listed = pa.array([[1.0, NAN], []], pa.list_(pa.float64()))
    rows = pa.table(
        {
            "s.v": pa.array([1.0, NAN]),
            "s": whole,
            "l": listed,
            "l.list.element": pa.array([1.0, 2.0]),
            "m": pa.array([[(1.0, 2)], []], pa.map_(pa.float64(), pa.int64())),
            "c": pa.array([1.0, 2.0]),
        }
    )
    floats = Floats(rows.schema)
    assert floats.with_statistics(floats.count(rows)) == ["m.key_value.value", "c"]
    made = tmp_path / "rows.parquet"
    pq.write_table(rows, made, write_statistics=floats.with_statistics(floats.count(rows)))
    assert bounded(made) == {"m.key_value.value", "c"}


def test_a_field_whose_name_looks_like_a_path_of_arrow_is_looked_at(tmp_path: Path) -> None:
    names = [".a", "a", "b.c", "[0]", ".", "\\.d", ".only"]
    inside = pa.StructArray.from_arrays([pa.array([1.0, NAN]), *[pa.array([1.0, 2.0])] * 6], names)
    outside = pa.StructArray.from_arrays([inside], [".s"])
    rows = pa.table({".t": outside, "s": inside})
    floats = Floats(rows.schema)
    counts = floats.count(rows)
    assert sorted(counts.nan) == sorted(
        [*((".t", ".s", name) for name in names), *(("s", name) for name in names)]
    )
    assert +counts.nan == {(".t", ".s", ".a"): 1, ("s", ".a"): 1}
    assert floats.without_statistics(counts) == {".t..s..a", "s..a"}
    delta = DeltaLake(tmp_path, pa.schema([("id", pa.int64()), ("s", inside.type)]))
    event = delta.write(pa.record_batch({"id": pa.array([1, 2]), "s": inside}))
    Stream(delta).add(1, event)
    (add,) = delta.actions(1, "add")
    assert json.loads(str(add["stats"]))["maxValues"]["s"].keys() == set(names) - {".a"}
