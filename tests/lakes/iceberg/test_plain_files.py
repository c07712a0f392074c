"""Files of other programs in Iceberg tables: field ids, and partitions that the footer must prove."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import (
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.port import BadFiles, Published
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.lakes.iceberg.reading import duck_rows

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType()),
    NestedField(3, "at", TimestamptzType()),
    NestedField(4, "score", DoubleType()),
    NestedField(5, "tags", ListType(7, StringType(), element_required=False)),
    NestedField(6, "s", StructType(NestedField(8, "inner", LongType()))),
)
NOON = datetime.datetime(2024, 5, 17, 12, tzinfo=datetime.UTC)


def numbered(name: str, kind: pa.DataType, number: int | None, *, nullable: bool = True) -> pa.Field:
    ids = {"PARQUET:field_id": str(number)} if number is not None else None
    return pa.field(name, kind, nullable, ids)


def columns(**ids: int | None) -> pa.Schema:
    """Return the columns of files, some of them with other field ids."""
    at = {"id": 1, "text": 2, "at": 3, "score": 4, "tags": 5, "element": 7, "s": 6, "inner": 8} | ids
    kinds: dict[str, pa.DataType] = {
        "id": pa.int64(),
        "text": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "score": pa.float64(),
        "tags": pa.list_(numbered("element", pa.string(), at["element"])),
        "s": pa.struct([numbered("inner", pa.int64(), at["inner"])]),
    }
    return pa.schema([numbered(name, kind, at[name]) for name, kind in kinds.items()])


def row(number: int | None, text: str | None = "a", at: datetime.datetime | None = NOON) -> dict[str, Any]:
    return {"id": number, "text": text, "at": at, "score": 1.0, "tags": ["x", None], "s": {"inner": 1}}


def made(folder: Path, *fields: tuple[int, Transform[Any, Any]]) -> IcebergLake:
    spec = [
        PartitionField(source, 1000 + at, transform, f"p{at}")
        for at, (source, transform) in enumerate(fields)
    ]
    return IcebergLake(folder, schema=SCHEMA, spec=PartitionSpec(*spec))


def event(
    lake: IcebergLake,
    rows: list[dict[str, Any]],
    partition: dict[str, str | None] | None = None,
    schema: pa.Schema | None = None,
    **options: Any,
) -> FilesWritten:
    path = "data/data-0-x.parquet"
    (lake.root / "data").mkdir(exist_ok=True)
    table = pa.Table.from_pylist(rows, schema=schema or columns())
    pq.write_table(table, lake.root / path, store_schema=False, **options)
    size = (lake.root / path).stat().st_size
    file = FileInfo(path=path, size=size, rows=len(rows), partition=partition or {})
    return FilesWritten(format="iceberg", location=lake.root.as_uri(), schema_id=0, files=(file,))


def commit(lake: IcebergLake, *events: FilesWritten) -> None:
    stream = Stream(lake)
    checked = stream.committer.check(events)
    assert isinstance(stream.publish(1, stream.head(1), checked), Published)


PROVEN: list[tuple[tuple[int, Transform[Any, Any]], list[dict[str, Any]], str | None]] = [
    ((2, IdentityTransform()), [row(1), row(2)], "a"),
    ((2, IdentityTransform()), [row(1, None), row(2, None)], None),
    ((3, DayTransform()), [row(1), row(2, at=NOON + datetime.timedelta(hours=11))], "2024-05-17"),
    ((1, TruncateTransform(10)), [row(-9), row(-1)], "-10"),
    ((2, TruncateTransform(2)), [row(1, "äöa"), row(2, "äöz")], "äö"),
    ((1, BucketTransform(4)), [row(7), row(7)], "3"),
    ((3, VoidTransform()), [row(1), row(2, at=None)], None),
    ((4, IdentityTransform()), [{**row(1), "score": None}], None),
]


@pytest.mark.slow
@pytest.mark.parametrize(("field", "rows", "text"), PROVEN)
def test_a_partition_that_the_footer_proves_is_taken(
    tmp_path: Path, field: tuple[int, Transform[Any, Any]], rows: list[dict[str, Any]], text: str | None
) -> None:
    lake = made(tmp_path, field)
    commit(lake, event(lake, rows, {"p0": text}))
    ids = sorted(each["id"] for each in rows)
    assert [number for (number,) in duck_rows(lake, "id")] == ids
    assert lake.ids() == ids


UNPROVEN: list[tuple[tuple[int, Transform[Any, Any]], list[dict[str, Any]], str | None, str]] = [
    ((2, IdentityTransform()), [row(1), row(2, "b")], "a", "several partitions"),
    ((2, IdentityTransform()), [row(1), row(2, None)], "a", "values and nulls"),
    ((2, IdentityTransform()), [row(1)], "b", "is in the partition"),
    ((3, DayTransform()), [row(1), row(2, at=NOON + datetime.timedelta(hours=12))], "2024-05-17", "several"),
    ((1, BucketTransform(4)), [row(7), row(8)], "2", "do not prove one bucket"),
    ((1, BucketTransform(4)), [row(7)], "2", "is in the partition"),
    ((4, IdentityTransform()), [row(1)], "1.0", "no bounds"),
    ((8, IdentityTransform()), [row(1)], "1", "part of s"),
]


@pytest.mark.parametrize(("field", "rows", "text", "why"), UNPROVEN)
def test_a_partition_that_the_footer_does_not_prove_is_refused(
    tmp_path: Path,
    field: tuple[int, Transform[Any, Any]],
    rows: list[dict[str, Any]],
    text: str | None,
    why: str,
) -> None:
    lake = made(tmp_path, field)
    with pytest.raises(BadFiles, match=why):
        Stream(lake).committer.check([event(lake, rows, {"p0": text})])


@pytest.mark.slow
def test_a_partition_needs_statistics(tmp_path: Path) -> None:
    lake = made(tmp_path, (2, IdentityTransform()))
    with pytest.raises(BadFiles, match="Write statistics"):
        Stream(lake).committer.check([event(lake, [row(1)], {"p0": "a"}, write_statistics=["id"])])


@pytest.mark.parametrize(
    ("rows", "options"), [([row(1), row(None)], {}), ([row(1)], {"write_statistics": False})]
)
def test_a_required_column_that_may_have_nulls_is_refused(
    tmp_path: Path, rows: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    lake = made(tmp_path)
    with pytest.raises(BadFiles, match="must not be null"):
        Stream(lake).committer.check([event(lake, rows, **options)])


@pytest.mark.parametrize("ids", [{"text": None}, {"text": 3, "at": 2}, {"element": None}, {"inner": 2}])
def test_a_file_needs_the_field_ids_of_the_table(tmp_path: Path, ids: dict[str, int | None]) -> None:
    lake = made(tmp_path)
    with pytest.raises(BadFiles, match="field ids"):
        Stream(lake).committer.check([event(lake, [row(1)], schema=columns(**ids))])


def test_a_file_outside_of_the_folder_of_data_is_refused(tmp_path: Path) -> None:
    lake = made(tmp_path)
    good = event(lake, [row(1)])
    (lake.root / "data" / "data-0-x.parquet").rename(lake.root / "metadata" / "x.parquet")
    moved = good.files[0].model_copy(update={"path": "metadata/x.parquet"})
    with pytest.raises(BadFiles, match="does not start with data/"):
        Stream(lake).committer.check([good.model_copy(update={"files": (moved,)})])


def test_columns_that_no_footer_describes_are_refused(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path, schema=Schema(NestedField(1, "key", UUIDType())))
    with pytest.raises(BadFiles, match=r"type uuid.* Describe them by the adapter's metadata"):
        Stream(lake).committer.check([event(lake, [row(1)])])
