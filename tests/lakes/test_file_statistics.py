"""Statistics and other options of data files in all formats: sizes, order, compression, bounds."""

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pypaimon.manifest.manifest_file_manager import ManifestFileManager

from sluicegate.lakes.file_options import FileOptions, open_writer
from sluicegate.lakes.port import FileWriter, TableRefused
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.doubles.memory_lake import MemoryAdapter
from tests.lakes.filing import ROWS, make, opened, paths, rows, written
from tests.lakes.iceberg.reading import duck_rows
from tests.lakes.paimon.reading import manifests as paimon_manifests
from tests.lakes.values import FORMATS, Lake, duck_of_delta


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.slow
def test_a_file_that_reaches_its_size_is_closed_and_another_begins(lake: str, tmp_path: Path) -> None:
    made = make(lake, tmp_path)
    numbers = random.Random(1).sample(range(1 << 40), 60_000)
    batches = [rows(numbers[start : start + 5_000]) for start in range(0, len(numbers), 5_000)]
    event = written(made, opened(made, target_size="200KiB", compression="uncompressed"), batches)
    sizes = [file.size for file in event.files]
    assert len(sizes) >= 4
    assert max(sizes) <= 1.25 * 200 * 1024
    if lake != "paimon":  # The library measures rows in memory, where each null of a text has a place too.
        assert min(sizes[:-1]) >= 0.75 * 200 * 1024
    assert made.ids() == sorted(numbers)
    for file, path in zip(event.files, paths(event), strict=True):
        times = pc.divide(pq.read_table(path, partitioning=None)["t"].cast(pa.int64()), 1_000)
        found = (file.min_event_time, file.max_event_time)
        assert found == (pc.min(times).as_py(), pc.max(times).as_py())


def test_rows_of_a_row_group_are_sorted(lake: str, tmp_path: Path) -> None:
    made = make(lake, tmp_path)
    names = ["b", None, "a", "b", "c", None, "a"]
    numbers = [1.0, 2.0, math.nan, None, -1.0, 3.0, 0.0]
    writer = opened(made, sort="name desc, x", row_group_size="64KiB")
    event = written(made, writer, [rows(range(7), name=names, x=numbers)])
    (path,) = paths(event)
    found = pq.read_table(path, columns=["name", "x"], partitioning=None).to_pydict()
    pairs = list(zip(found["name"], map(str, found["x"]), strict=True))
    # Null is below every value, NaN above every number.
    down = [("c", "-1.0"), ("b", "None"), ("b", "1.0"), ("a", "0.0"), ("a", "nan")]
    assert pairs == [*down, (None, "2.0"), (None, "3.0")]
    assert made.ids() == list(range(7))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lake", "properties"),
    [
        ("paimon", {"file.compression": "snappy", "target-file-size": "80 kb", "file.block-size": "64 kb"}),
        (
            "iceberg",
            {
                "write.parquet.compression-codec": "snappy",
                "write.target-file-size-bytes": "90000",
                "write.parquet.row-group-size-bytes": "65536",
            },
        ),
        ("delta", {"delta.targetFileSize": "80kb"}),
    ],
)
def test_the_options_precede_the_properties_of_the_table(
    lake: str, tmp_path: Path, properties: dict[str, str]
) -> None:
    made = make(lake, tmp_path, properties)
    numbers = random.Random(2).sample(range(1 << 40), 20_000)
    of_table = footers(opened(made), numbers)
    assert len(of_table) > 1
    # deltalake cannot make a table with a codec; test_writer.py of Delta has that property.
    codec = "ZSTD" if lake == "delta" else "SNAPPY"
    assert {each.row_group(0).column(0).compression for each in of_table} == {codec}
    options = {"target_size": "1GiB", "row_group_size": "1GiB", "compression": "gzip:9"}
    (footer,) = footers(opened(made, **options), numbers)
    assert footer.num_row_groups == 1
    assert footer.row_group(0).column(0).compression == "GZIP"
    (footer,) = footers(opened(made, **{**options, "row_group_size": "64KiB"}), numbers)
    assert footer.num_row_groups > 4


def footers(writer: FileWriter, numbers: list[int]) -> list[pq.FileMetaData]:
    for start in range(0, len(numbers), 500):
        writer.write(rows(numbers[start : start + 500]))
    root = Path(unquote(urlsplit(writer.location).path))
    return [pq.read_metadata(root / file.path) for file in writer.finish()]


def test_options_that_contradict_the_table_are_refused(lake: str, tmp_path: Path) -> None:
    made = make(lake, tmp_path)
    with pytest.raises(
        TableRefused, match=r"file\.sort names colour, size, which .* Name some of its columns: id"
    ):
        opened(made, sort="colour, size desc")
    with pytest.raises(TableRefused, match=r"file\.statistics names colour, which"):
        opened(made, statistics="id, colour")
    with pytest.raises(TableRefused, match=r"file\.sort names list, but .* Name columns with plain values"):
        opened(made, sort="list")
    opened(made, sort="id", statistics="id").abort()


def test_options_of_parquet_are_refused_for_other_files(tmp_path: Path) -> None:
    made = PaimonLake(tmp_path, ROWS, [], {"file.format": "orc"})
    told = r"file\.compression is for Parquet.*Leave the option out, and set file\.compression in the table"
    with pytest.raises(TableRefused, match=told):
        opened(made, compression="zstd:3")
    made = PaimonLake(tmp_path / "set", ROWS, [], {"file.format": "orc", "file.compression": "snappy"})
    written(made, opened(made, sort="id desc", target_size="1MiB"), [rows(range(3))])
    assert made.read()["id"].to_pylist() == [2, 1, 0]


def test_a_size_of_paimon_that_is_none_is_refused(tmp_path: Path) -> None:
    made = PaimonLake(tmp_path, ROWS, [], {"file.block-size": "large"})
    with pytest.raises(TableRefused, match=r"file\.block-size = large .* Correct it, such as 128 mb"):
        opened(made)


def test_a_format_without_options_of_files_is_refused_with_them_alone() -> None:
    adapter = MemoryAdapter()
    adapter.create("numbers")
    table = adapter.parse_table("memory://numbers")
    open_writer(adapter, table, None).abort()
    with pytest.raises(
        TableRefused, match=r"format memory has no options of files\. Leave the options file\."
    ):
        open_writer(adapter, table, None, files=FileOptions(target_size=1 << 20))


# --- statistics -------------------------------------------------------------------------------------


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
    where = f"{column} = '{value}'" if isinstance(value, str) else f"{column} = {value}"
    if isinstance(made, IcebergLake):
        return [number for (number,) in duck_rows(made, "id", where)]
    if isinstance(made, DeltaLake):
        found = duck_of_delta().table_function("delta_scan", [str(made.root)]).filter(where)
        return [number for (number,) in found.project("id").order("id").fetchall()]
    builder = made.table.new_read_builder()
    builder.with_filter(builder.new_predicate_builder().equal(column, value))
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())["id"].to_pylist()
    return sorted(rows)


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
