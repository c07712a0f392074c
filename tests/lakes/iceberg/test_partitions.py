"""Files of every partition transform: the library and DuckDB read what was committed, filters included."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files

from sluicegate.lakes.port import Published
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.lakes.iceberg import rich
from tests.lakes.iceberg.reading import duck_rows, entries, lines

NUMBERS = range(24)


@pytest.fixture(params=[2, 3])
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.mark.parametrize("name", rich.PARTITIONS)
def test_rows_are_read_back_whatever_the_partitions(tmp_path: Path, name: str, version: int) -> None:
    lake = IcebergLake(tmp_path, version, rich.RICH, rich.spec(name))
    stream = Stream(lake)
    event = lake.write(rich.rows(NUMBERS))
    stream.committer.check([event])
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    expected = pa.Table.from_batches([rich.rows(NUMBERS)])
    found = lake.read().sort_by("id")
    for column in rich.ARROW.names:
        assert found.column(column).to_pylist() == expected.column(column).to_pylist(), column
    assert duck_rows(lake, "count(*), sum(id)") == [(len(NUMBERS), sum(NUMBERS))]
    assert duck_rows(lake, "id", "name = 'näme 1' AND id < 9") == [(1,), (4,), (7,)]
    assert duck_rows(lake, "id", "price < 0") == [(0,), (1,), (2,)]
    assert duck_rows(lake, "id", "name IS NULL") == [(6,), (13,), (20,)]
    on_day = lake.table.scan("day == '1970-01-01'").to_arrow().to_pylist()
    assert sorted(row["id"] for row in on_day) == [
        row["id"] for row in expected.to_pylist() if str(row["day"]) == "1970-01-01"
    ]


def _comparable(entry: dict[str, Any]) -> dict[str, Any]:
    file = {
        key: sorted(map(repr, value)) if isinstance(value, list) else value
        for key, value in entry["data_file"].items()
        if key not in ("file_path", "file_size_in_bytes", "column_sizes", "split_offsets", "sort_order_id")
    }
    return {"status": entry["status"], "sequence": entry["sequence_number"], **file}


@pytest.mark.parametrize("name", rich.PARTITIONS)
def test_entries_equal_those_of_the_library(tmp_path: Path, name: str) -> None:
    """Except for paths, sizes of the files, and the sort order, which the library leaves out."""
    ours = IcebergLake(tmp_path / "ours", schema=rich.RICH, spec=rich.spec(name))
    theirs = IcebergLake(tmp_path / "theirs", schema=rich.RICH, spec=rich.spec(name))
    stream = Stream(ours)
    event = ours.write(rich.rows(NUMBERS))
    assert isinstance(stream.publish(1, stream.head(1), [event]), Published)
    table = theirs.table
    batch = pa.Table.from_batches([rich.rows(NUMBERS)])
    files = list(_dataframe_to_data_files(table.metadata, batch, table.io))
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)
    mine, other = ([_comparable(each) for each in entries(lake).values()] for lake in (ours, theirs))
    assert sorted(mine, key=repr) == sorted(other, key=repr)
    skip = {"manifest_path", "manifest_length", "added_snapshot_id"}
    (my_line,), (their_line,) = lines(ours), lines(theirs)
    assert {key: value for key, value in my_line.items() if key not in skip} == {
        key: value for key, value in their_line.items() if key not in skip
    }
    my_summary, their_summary = (lake.fields()["snapshots"][-1]["summary"] for lake in (ours, theirs))
    differ = {key for key in their_summary if my_summary.get(key) != their_summary[key]}
    assert differ <= {"added-files-size", "total-files-size"}
