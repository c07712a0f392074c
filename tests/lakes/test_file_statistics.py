"""Statistics of data files: the chosen columns have bounds, and readers find all rows."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import QueryBuilder
from pypaimon.manifest.manifest_file_manager import ManifestFileManager

from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.lakes.filing import Lake, make, opened, rows, written
from tests.lakes.iceberg.reading import duck_rows
from tests.lakes.paimon.reading import manifests as paimon_manifests
from tests.lakes.values import duck_of_delta


@pytest.fixture(params=["paimon", "iceberg", "delta"])
def lake(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.slow
def test_a_column_without_statistics_has_counts_and_no_bounds(lake: str, tmp_path: Path) -> None:
    made = make(lake, tmp_path)
    names = ["a", None, "c", "a", None]
    batch = rows(range(5), name=names, x=[float(number) for number in range(5)])
    event = written(made, opened(made, statistics="id"), [batch])
    (file,) = event.files
    assert (file.rows, file.min_event_time, file.max_event_time) == (5, 0, 4)
    bounds, nulls = statistics(made)
    assert bounds == {"id", "t"}
    assert (nulls["name"], nulls["x"], nulls["id"]) == (2, 0, 0)
    assert matching(made, "name", "a") == [0, 3]
    assert matching(made, "id", 4) == [4]
    assert matching(made, "x", 9.0) == []


def statistics(made: Lake) -> tuple[set[str], Mapping[str, int]]:
    """Return the columns with bounds, and the numbers of nulls, as the format's library reads them."""
    if isinstance(made, IcebergLake):
        (found,) = made.table.inspect.files().to_pylist()
        metrics = found["readable_metrics"]
        bounded = {name for name, each in metrics.items() if each["lower_bound"] is not None}
        return bounded, {name: each["null_value_count"] for name, each in metrics.items()}
    if isinstance(made, DeltaLake):
        (add,) = made.actions(1, "add")
        found = json.loads(str(add["stats"]))
        return set(found["minValues"]) & set(found["maxValues"]), found["nullCount"]
    manifests = ManifestFileManager(made.table)
    (entry,) = manifests.read(paimon_manifests(made.root, 1)[-1]["_FILE_NAME"], drop_stats=False)
    stats = entry.file.value_stats
    names = [field.name for field in stats.min_values.fields]
    lows = {name: stats.min_values.get_field(number) for number, name in enumerate(names)}
    bounded = {name for name, value in lows.items() if value is not None}
    return bounded, dict(zip(names, stats.null_counts, strict=True))


def matching(made: Lake, column: str, value: Any) -> list[int]:
    """Return the ids of matching rows, as readers find them that skip files by their statistics."""
    text = f"'{value}'" if isinstance(value, str) else str(value)
    if isinstance(made, IcebergLake):
        found = made.table.scan(row_filter=f"{column} = {text}").to_arrow()["id"].to_pylist()
        assert sorted(found) == [number for (number,) in duck_rows(made, "id", f"{column} = {text}")]
    elif isinstance(made, DeltaLake):
        where = f"{column} = {text}"
        query = f"SELECT id FROM numbers WHERE {where}"  # noqa: S608
        found = pa.table(QueryBuilder().register("numbers", made.table).execute(query))["id"].to_pylist()
        judged = duck_of_delta().table_function("delta_scan", [str(made.root)]).filter(where)
        assert sorted(found) == [number for (number,) in judged.project("id").order("id").fetchall()]
    else:
        builder = made.table.new_read_builder()
        builder.with_filter(builder.new_predicate_builder().equal(column, value))
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits())["id"].to_pylist()
    return sorted(found)


@pytest.mark.slow
def test_no_statistics_at_all_still_leave_the_event_time(lake: str, tmp_path: Path) -> None:
    made = make(lake, tmp_path)
    event = written(made, opened(made, statistics="none"), [rows(range(3), name=["a", None, "b"])])
    assert (event.files[0].min_event_time, event.files[0].max_event_time) == (0, 2)
    assert statistics(made)[0] == {"t"}
    assert matching(made, "id", 1) == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lake", "properties"),
    [
        ("paimon", {"metadata.stats-mode": "counts"}),
        ("paimon", {"metadata.stats-mode": "full", "fields.id.stats-mode": "none"}),
        ("iceberg", {"write.metadata.metrics.default": "counts"}),
        ("delta", {"delta.dataSkippingNumIndexedCols": "0"}),
    ],
)
def test_the_option_precedes_the_statistics_of_the_table(
    lake: str, tmp_path: Path, properties: dict[str, str]
) -> None:
    made = make(lake, tmp_path, properties)
    written(made, opened(made, event_time=None), [rows(range(3))])
    assert "id" not in statistics(made)[0]
    another = make(lake, tmp_path / "another", properties)
    written(another, opened(another, statistics="all"), [rows(range(3), name=["a", "b", None])])
    assert statistics(another)[0] == {"id", "p", "t", "name"}
