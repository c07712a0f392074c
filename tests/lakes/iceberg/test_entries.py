"""Descriptions of files come from outside: whatever their bytes are, they are refused or right."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.capabilities import FileStatus
from sluicegate.lakes.iceberg.layout import Layout, with_path
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.port import BadFiles
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.lakes.iceberg import rich
from tests.lakes.iceberg.test_canonical import damaged
from tests.lakes.outcomes import is_refused

pytestmark = pytest.mark.slow

Record = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(tmp_path, schema=rich.RICH, spec=rich.spec("buckets"))


def layout_of(lake: IcebergLake) -> Layout:
    view = TableView(lake.metadata)
    return Layout(view.schema, view.spec, view.version)


def changed(lake: IcebergLake, event: FilesWritten, change: Callable[[Record], object]) -> FilesWritten:
    """Return the event with a change in the record of its first file."""
    layout = layout_of(lake)
    record = layout.decode(event.files[0].metadata)
    change(record)
    file = event.files[0].model_copy(update={"metadata": layout.encode(record)})
    return event.model_copy(update={"files": (file, *event.files[1:])})


def counted(column: int, number: int) -> list[Record]:
    return [{"key": column, "value": number}]


def bound(column: int, raw: bytes) -> list[Record]:
    return [{"key": column, "value": raw}]


SPOILERS: dict[str, tuple[Callable[[Record], object], str]] = {
    "deletes": (lambda record: record.update(content=1), "content 1"),
    "path": (lambda record: record.update(file_path="file:///etc/passwd"), "path"),
    "size": (lambda record: record.update(file_size_in_bytes=1), "size"),
    "rows": (lambda record: record.update(record_count=10**9), "rows"),
    "format": (lambda record: record.update(file_format="EXE"), "file format 'EXE'"),
    "key": (lambda record: record.update(key_metadata=b"k"), "key metadata"),
    "equality": (lambda record: record.update(equality_ids=[1]), "equality ids"),
    "sort order": (lambda record: record.update(sort_order_id=7), "sort order 7"),
    "offsets": (lambda record: record.update(split_offsets=[9, 4]), "split offsets"),
    "offsets outside": (lambda record: record.update(split_offsets=[10**9]), "split offsets"),
    "unknown column": (lambda record: record.update(value_counts=bound(99, 1)), "column 99"),  # type: ignore[arg-type]
    "negative": (lambda record: record.update(null_value_counts=bound(1, -1)), "-1"),  # type: ignore[arg-type]
    "twice": (lambda record: record.update(column_sizes=bound(1, 1) * 2), "twice"),  # type: ignore[arg-type]
    "short bound": (lambda record: record.update(lower_bounds=bound(1, b"\x01")), "cannot be read"),
    "no text": (lambda record: record.update(upper_bounds=bound(2, b"\xff\xfe")), "cannot be read"),
    "no number": (lambda record: record.update(lower_bounds=bound(6, b"\xff" * 8)), "cannot be read"),
    "bound of a struct": (lambda record: record.update(lower_bounds=bound(15, b"")), "cannot be read"),
    "long decimal": (lambda record: record.update(lower_bounds=bound(7, b"\x01" * 17)), "cannot be read"),
    "decimal of more bytes": (
        lambda record: record.update(upper_bounds=bound(7, b"\x7f" + b"\xff" * 15)),
        "cannot be read",
    ),
    "decimal of more digits": (
        lambda record: record.update(upper_bounds=bound(7, b"\x7f\xff\xff\xff")),
        "cannot be read",
    ),
    "long fixed": (lambda record: record.update(upper_bounds=bound(14, b"zzzzzz")), "cannot be read"),
    "empty fixed": (lambda record: record.update(lower_bounds=bound(14, b"")), "cannot be read"),
    "no time": (lambda record: record.update(lower_bounds=bound(10, b"\xff" * 8)), "cannot be read"),
    "avro": (lambda record: record.update(file_format="AVRO"), "file format 'AVRO'"),
    "orc": (lambda record: record.update(file_format="ORC"), "file format 'ORC'"),
    "size of a column": (lambda record: record.update(column_sizes=counted(1, 10**9)), "column_sizes"),
    "few values": (lambda record: record.update(value_counts=counted(1, 0)), "value_counts"),
    "many values": (lambda record: record.update(value_counts=counted(16, 2)), "value_counts"),
    "nan of numbers": (lambda record: record.update(nan_value_counts=counted(1, 0)), "nan_value_counts"),
    "many nulls": (lambda record: record.update(null_value_counts=counted(2, 2)), "more nulls and NaN"),
    "nulls in a list": (
        lambda record: record.update(value_counts=counted(19, 1), null_value_counts=counted(19, 2)),
        "more nulls and NaN",
    ),
    "bounds of nulls": (
        lambda record: record.update(
            null_value_counts=counted(2, 1), nan_value_counts=[], lower_bounds=bound(2, b"n")
        ),
        "bounds without values",
    ),
    "bounds of nan": (
        lambda record: record.update(nan_value_counts=counted(6, 1), upper_bounds=bound(6, bytes(8))),
        "bounds without values",
    ),
    "counts of a struct": (lambda record: record.update(null_value_counts=counted(15, 1)), "column 15"),
    "crossed": (
        lambda record: record.update(
            lower_bounds=bound(1, b"\x02" + bytes(7)), upper_bounds=bound(1, b"\x01" + bytes(7))
        ),
        "above the upper",
    ),
    "bucket": (lambda record: record.update(partition=(4, 0, 0)), "buckets go from 0 to 3"),
    "negative bucket": (lambda record: record.update(partition=(-1, 0, 0)), "buckets go from 0 to 3"),
    "other partition": (lambda record: record.update(partition=(None, None, None)), "is in the partition"),
}


@pytest.mark.parametrize("name", SPOILERS)
def test_a_record_that_states_something_else_is_refused(lake: IcebergLake, name: str) -> None:
    change, words = SPOILERS[name]
    stream = Stream(lake)
    bad = changed(lake, lake.write(rich.rows([1])), change)
    with pytest.raises(BadFiles, match=words):
        stream.committer.check([bad])
    # Records of partitions that are known take another way.
    stream.committer.check([lake.write(rich.rows([1]))])
    stream.refuses(bad, words)
    assert lake.metadata.head("main") is None


KEPT = ("content", "file_path", "record_count", "file_size_in_bytes", "partition", "equality_ids")


def refusal_of(stream: Stream, event: FilesWritten) -> str | None:
    try:
        stream.committer.check([event])
    except BadFiles as error:
        return str(error)
    return None


def test_no_bytes_crash_the_check_or_change_what_is_committed(lake: IcebergLake) -> None:
    """Random damage: the check refuses it, or the record still describes the same file."""
    stream, event = Stream(lake), lake.write(rich.rows([1, 2]))
    layout, good = layout_of(lake), event.files[0]
    before = layout.decode(good.metadata)
    for seed in range(3_000):
        # Without any bytes, the footer describes the file.
        spoiled = damaged(good.metadata, random.Random(seed)) or b"\0"
        file = good.model_copy(update={"metadata": spoiled})
        refusal = refusal_of(stream, event.model_copy(update={"files": (file,)}))
        if refusal is not None:
            assert good.path in refusal
            continue
        after = layout.decode(file.metadata)
        for key in KEPT:
            assert after[key] == before[key]


def test_a_link_to_a_file_elsewhere_is_refused(lake: IcebergLake, tmp_path: Path) -> None:
    event = lake.write(rich.rows([1]))
    path, outside = lake.root / event.files[0].path, tmp_path / "outside"
    path.rename(outside)
    path.symlink_to(outside)
    Stream(lake).refuses(event, "is a link out of the table")


def named(lake: IcebergLake, file: FileInfo, path: str) -> FileInfo:
    """Return the file under another path, which its record has, too."""
    record = with_path(file.metadata, f"{TableView(lake.metadata).data_location}/{path}")
    return file.model_copy(update={"path": path, "metadata": record})


@pytest.mark.parametrize("between", ["./", "/", "x/../", "../data/"])
def test_another_spelling_of_a_path_is_refused(lake: IcebergLake, between: str) -> None:
    stream, event = Stream(lake), lake.write(rich.rows([1]))
    (file,) = event.files
    twin = named(lake, file, file.path.replace("data/", f"data/{between}", 1))
    for files in ((file, twin), (twin,)):
        # Of a partition that is known, and of one that is not.
        for each in (stream, Stream(lake)):
            with pytest.raises(BadFiles, match=r"empty part, dots, .* Write it without them"):
                each.committer.check([event.model_copy(update={"files": files})])
    stream.add(1, event)
    assert lake.maintenance().delete_unreferenced(twin.path) is not FileStatus.DELETED
    assert lake.ids() == [1]


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_another_name_by_a_link_is_refused(lake: IcebergLake, linked: str) -> None:
    event = lake.write(rich.rows([1]))
    (file,) = event.files
    if linked == "file":
        path = f"{file.path}.parquet"
        (lake.root / path).symlink_to(lake.root / file.path)
    else:
        path = file.path.replace("data/", "other/", 1)
        (lake.root / "other").symlink_to("data")
    twin = named(lake, file, path)
    stream = Stream(lake)
    head = stream.head(1)
    bad = event.model_copy(update={"files": (file, twin)})
    with pytest.raises(
        BadFiles, match=r"by a link\. Write files under their own names|a link to another file"
    ):
        stream.committer.check([bad])
    assert is_refused(stream.publish(1, head, [bad]))
