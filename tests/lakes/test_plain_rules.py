"""Files of other programs in Paimon and Delta tables: buckets, partitions, column mapping."""

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.delta.adapter import ADAPTER as DELTA
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.port import BadFiles
from sluicegate.lakes.storage import Range
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.delta.making import column, info, mapped, metadata, protocol, put
from tests.lakes.plain_files import (
    DeltaPlace,
    PaimonPlace,
    delta_schema_id,
    event,
    place,
    rows,
    write,
)

ROW = (1, "one", None, None, 0.5)


def test_a_file_with_rows_of_two_partitions_is_refused(tmp_path: Path) -> None:
    table = PaimonPlace(tmp_path)
    mixed = write(table, rows((*ROW, "EU"), (*ROW, "US")))
    nulls = write(table, rows((*ROW, "EU"), (*ROW, None)))
    silent = write(table, rows((*ROW, "EU")), write_statistics=False)
    other = write(table, rows((*ROW, "US")))
    committer = Stream(table.lake).committer
    for file in (mixed, nulls, silent):
        with pytest.raises(
            BadFiles,
            match=r"does not prove one value of the partition column region. Write a file for each partition",
        ):
            committer.check([event(table, file)])
    with pytest.raises(BadFiles, match="where readers would look"):
        committer.check([event(table, other)])


def test_fixed_buckets_are_refused(tmp_path: Path) -> None:
    lake = PaimonLake(tmp_path, options={"bucket": "2", "bucket-key": "id"})
    (lake.root / "bucket-0").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), lake.root / "bucket-0" / "data-0-x.parquet")
    size = (lake.root / "bucket-0" / "data-0-x.parquet").stat().st_size
    file = FileInfo(path="bucket-0/data-0-x.parquet", size=size, rows=1)
    body = FilesWritten(format="paimon", location=lake.root.as_uri(), schema_id=0, files=(file,))
    with pytest.raises(
        BadFiles,
        match="Describe the file by the adapter's metadata, or give the stream a table with bucket = -1",
    ):
        Stream(lake).committer.check([body])


def test_a_partition_column_inside_of_a_delta_file_is_refused(tmp_path: Path) -> None:
    table = DeltaPlace(tmp_path)
    table.columns = lambda data: data  # type: ignore[method-assign]
    with pytest.raises(BadFiles, match=r"has .'region'"):
        Stream(table.lake).committer.check([event(table, write(table, rows((*ROW, "EU"))))])


def test_a_partition_text_that_is_no_value_of_its_type_is_refused(tmp_path: Path) -> None:
    put(tmp_path, 0, info(), protocol(), metadata([column("id"), column("n", "integer")], ["n"]))
    with pytest.raises(BadFiles, match="no value of its type"):
        _delta(tmp_path).check([_file(tmp_path, {"n": "01"}, "n=01/", pa.table({"id": [1]}), _N)])


_N: Any = ["none", ["n"], [["id", None, True, "long"], ["n", None, True, "integer"]]]


def _delta(root: Path) -> DeltaCommitter:
    committer = DELTA.open_committer(DELTA.parse_table(str(root)), "u")
    assert isinstance(committer, DeltaCommitter)
    committer.inspect()
    return committer


def _file(
    root: Path, partition: dict[str, str | None], folder: str, data: pa.Table, schema: Any
) -> FilesWritten:
    path = f"{folder}data-0-{uuid.uuid4().hex}.parquet"
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, root / path, store_schema=False)
    file = FileInfo(path=path, size=(root / path).stat().st_size, rows=data.num_rows, partition=partition)
    return FilesWritten(
        format="delta", location=root.as_uri(), schema_id=delta_schema_id(*schema), files=(file,)
    )


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping_needs_physical_names_and_ids(tmp_path: Path, mode: str) -> None:
    properties = {"delta.columnMapping.mode": mode}
    put(tmp_path, 0, info(), protocol(reader=2, writer=5), metadata([mapped("id", 4)], (), properties))
    schema = [mode, [], [["col-4", 4, True, "long"]]]

    def data(name: str, number: int | None) -> pa.Table:
        ids = {"PARQUET:field_id": str(number)} if number is not None else None
        return pa.table([pa.array([7])], pa.schema([pa.field(name, pa.int64(), metadata=ids)]))

    committer = _delta(tmp_path)
    for wrong, why in ((data("id", 4), "lacks the columns"), (data("col-4", None), "field ids")):
        with pytest.raises(BadFiles, match=why):
            committer.check([_file(tmp_path, {}, "", wrong, schema)])
    (checked,) = committer.check([_file(tmp_path, {}, "", data("col-4", 4), schema)])
    lines: Any = checked.content
    stats = json.loads(json.loads(lines.lines)["add"]["stats"])
    assert stats["minValues"] == {"col-4": 7}


class Vanishing(LocalStorage):
    """Loses each file between a look at it and the reading of its end."""

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        for each in ranges:
            self.remove(each.name)
        return super().read_ranges(ranges)


def test_a_file_that_is_deleted_meanwhile_is_refused(tmp_path: Path) -> None:
    table = PaimonPlace(tmp_path)
    committer = PaimonCommitter(Vanishing(str(table.root)), "u")
    with pytest.raises(BadFiles, match=r"changed or deleted while it was read. Write it again"):
        committer.check([event(table, write(table, rows((*ROW, "EU"))))])


def test_a_named_pipe_is_never_opened(tmp_path: Path) -> None:
    table = PaimonPlace(tmp_path)
    path = f"{table.folder}data-0-pipe.parquet"
    (table.root / path).parent.mkdir(parents=True)
    os.mkfifo(table.root / path)
    file = FileInfo(path=path, size=0, rows=1, partition={"region": "EU"})
    with pytest.raises(BadFiles, match="only 0 bytes"):
        Stream(table.lake).committer.check([event(table, file)])
    assert LocalStorage(str(table.root)).size(path) == 0


@pytest.mark.parametrize("lake", ["paimon", "iceberg", "delta"])
@pytest.mark.parametrize("odd", ["#", "?"])
def test_a_name_that_some_readers_cut_is_refused(tmp_path: Path, lake: str, odd: str) -> None:
    """pyiceberg takes what follows for the end of a URI."""
    table = place(lake, tmp_path)
    file = write(table, rows((*ROW, "EU")), f"{table.folder}data-0-{uuid.uuid4().hex}{odd}x.parquet")
    with pytest.raises(BadFiles, match="Write it without them"):
        Stream(table.lake).committer.check([event(table, file)])
