"""Options of data files in a sink: refused before the first task, and followed by each task."""

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from sluicegate.events.models import Assignment
from sluicegate.lakes import adapter
from sluicegate.lakes.file_options import Compression, FileOptions, SortColumn
from sluicegate.writer_hooks import BadOption
from sluicegate.writer_hooks.options import SinkOptions, Target, table_of, wrong_values
from sluicegate.writer_hooks.region import Attempt, KafkaSettings, Region
from sluicegate.writer_hooks.spark.preflight import table_troubles
from sluicegate.writer_hooks.writer import write_attempt

OPTIONS = {
    "stream": "flights",
    "region": "JFK",
    "path": "/lake/flights",
    "format": "delta",
    "kafka.bootstrap.servers": "broker:9092",
    "checkpointlocation": "/checkpoints/jfk",
}
REGION = Region(
    "flights", "JFK", KafkaSettings(bootstrap_servers="nowhere:1"), Assignment(number=0, regions=("JFK",))
)


def test_the_options_of_files() -> None:
    assert SinkOptions.parse(OPTIONS).files is None
    given = {
        "file.target.size": "128MiB",
        "file.Row.Group.Size": "1 gib",
        "file.open.partitions": "12",
        "file.sort": "Carrier, time hour DESC,dest asc",
        "file.compression": "ZSTD:3",
        "file.statistics": "Carrier, dest",
    }
    files = SinkOptions.parse(OPTIONS | given).files
    assert files == FileOptions(
        128 << 20,
        1 << 30,
        12,
        (
            SortColumn("Carrier"),
            SortColumn("time hour", descending=True, nulls_first=False),
            SortColumn("dest"),
        ),
        Compression("zstd", 3),
        ("Carrier", "dest"),
    )
    assert pickle.loads(pickle.dumps(files)) == files  # noqa: S301
    assert FileOptions.parse({"file.statistics": "All"}) == FileOptions(statistics="all")
    assert FileOptions.parse({"file.statistics": "none"}) == FileOptions(statistics=())


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("target.size", "128 megabytes", "must be a size such as 128MiB, from 64KiB to 1024GiB"),
        ("target.size", "1KiB", "must be a size such as 128MiB"),
        ("target.size", "-1", "must be a size such as 128MiB"),
        ("row.group.size", "2GiB", "from 64KiB to 1GiB"),
        ("open.partitions", "0", "must be a whole number from 1 to 10000"),
        ("open.partitions", "many", "must be a whole number from 1 to 10000"),
        ("sort", "a,,b", "must be a list of different columns"),
        ("sort", "a, a desc", "must be a list of different columns"),
        ("compression", "lzo", "must be one of zstd, gzip, snappy, lz4, uncompressed"),
        ("compression", "snappy:3", "zstd and gzip take a level after a colon"),
        ("compression", "zstd:23", "must have a level of zstd from 1 to 22"),
        ("compression", "gzip:", "must have a level of gzip from 1 to 9"),
        ("statistics", "a,", "must be all, none, or a list of columns"),
    ],
)
def test_a_wrong_value_is_refused_with_the_reason(name: str, value: str, told: str) -> None:
    (wrong,) = wrong_values(OPTIONS | {f"file.{name}": value})
    assert wrong.startswith(f"the option file.{name} must ")
    assert told in wrong


def test_all_wrong_values_are_named_and_so_is_an_unknown_option() -> None:
    given = {"file.target.size": "x", "file.sort": "", "file.target.sizes": "1MiB"}
    unknown, values = wrong_values(OPTIONS | given)
    assert "unknown option file.target.sizes (did you mean file.target.size?)" in unknown
    assert "file.target.size must" in values
    assert "file.sort must" in values
    with pytest.raises(BadOption, match=r"file\.target\.sizes"):
        SinkOptions.parse(OPTIONS | given)


def test_options_that_contradict_the_table_are_found_before_the_start(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), pa.schema([("id", pa.int64())]))
    options = OPTIONS | {"path": str(tmp_path), "file.sort": "colour", "file.statistics": "id"}
    (trouble,) = table_troubles(*table_of(options))
    assert "the option file.sort names colour" in trouble
    # The column may come with the first rows.
    assert list(table_troubles(*table_of(options | {"evolve": "add-columns"}))) == []
    assert list(table_troubles(*table_of(options | {"file.sort": "id desc"}))) == []


def test_a_task_follows_the_options(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), pa.schema([("id", pa.int64())]))
    given = {"path": str(tmp_path), "file.sort": "id desc", "file.compression": "snappy"}
    options = SinkOptions.parse(OPTIONS | given)
    target = Target(adapter("delta"), options.table_ref(), None, 10**6, files=options.files)
    batch = pa.record_batch({"id": pa.array([2, 3, 1], pa.int64())})
    write_attempt(REGION, Attempt("q.0", 0, "p00000"), target, [batch])
    (path,) = tmp_path.glob("*.parquet")
    assert pq.read_table(path)["id"].to_pylist() == [3, 2, 1]
    assert pq.read_metadata(path).row_group(0).column(0).compression == "SNAPPY"
