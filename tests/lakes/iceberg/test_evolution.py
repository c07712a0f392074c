"""Schemas and partition specs that change while files wait for their commit."""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, IsNaN
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
)

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import BadFiles, Published
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.lakes.iceberg.reading import avro_header, duck_rows, lines

SCHEMA = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "name", StringType()))


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(tmp_path, schema=SCHEMA)


def written(lake: IcebergLake, *ids: int) -> FilesWritten:
    names = pa.array([f"n{number}" for number in ids])
    return lake.write(pa.record_batch({"id": pa.array(ids, pa.int32()), "name": names}))


Change = Callable[[Any], object]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda update: update.add_column("more", LongType()),
        lambda update: update.add_column("counts", MapType(10, StringType(), 11, LongType())),
        lambda update: update.add_column(
            "place", StructType(NestedField(10, "x", LongType(), required=True))
        ),
        lambda update: update.rename_column("name", "title"),
        lambda update: update.update_column("id", LongType()),
    ],
    ids=["added", "map", "required part", "renamed", "widened"],
)
def test_files_of_an_older_schema_are_committed(lake: IcebergLake, change: Change) -> None:
    stream, waiting = Stream(lake), written(lake, 1, 2)
    with lake.table.update_schema() as update:
        change(update)
    stream.add(1, waiting)
    assert lake.fields()["snapshots"][-1]["schema-id"] == 1
    assert lake.ids() == [1, 2]
    assert duck_rows(lake, "id") == [(1,), (2,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "arrow", "value", "transform"),
    [
        (IntegerType(), LongType(), pa.int32(), -7, IdentityTransform()),
        (IntegerType(), LongType(), pa.int32(), -7, TruncateTransform(10)),
        (IntegerType(), LongType(), pa.int32(), -7, BucketTransform(4)),
        (FloatType(), DoubleType(), pa.float32(), 1.1, IdentityTransform()),
        (FloatType(), DoubleType(), pa.float32(), float("nan"), IdentityTransform()),
        (DecimalType(9, 2), DecimalType(18, 2), pa.decimal128(9, 2), Decimal("-12.34"), IdentityTransform()),
        (
            DecimalType(9, 2),
            DecimalType(10, 2),
            pa.decimal128(9, 2),
            Decimal("-12.34"),
            TruncateTransform(10),
        ),
        (DecimalType(9, 2), DecimalType(18, 2), pa.decimal128(9, 2), Decimal("-12.34"), BucketTransform(4)),
        (DecimalType(9, 2), DecimalType(18, 2), pa.decimal128(9, 2), None, IdentityTransform()),
    ],
    ids=str,
)
def test_files_are_committed_whose_partition_became_wider(
    tmp_path: Path,
    before: PrimitiveType,
    after: PrimitiveType,
    arrow: pa.DataType,
    value: object,
    transform: Transform[Any, Any],
) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", before))
    spec = PartitionSpec(PartitionField(2, 1000, transform, "p"))
    least = {"commit.manifest.min-count-to-merge": "2"}
    lake = IcebergLake(tmp_path, schema=schema, spec=spec, properties=least)

    def one(number: int) -> FilesWritten:
        return lake.write(pa.record_batch({"id": pa.array([number]), "x": pa.array([value], arrow)}))

    early, late = one(1), (one(2), one(3))
    stream = Stream(lake)
    stream.add(1, early)
    with lake.table.update_schema() as update:
        update.update_column("x", after)
    for decision, events in enumerate((late, (one(4),), (one(5),)), 2):
        stream.committer.check(events)
        assert isinstance(stream.publish(decision, stream.head(decision), list(events)), Published)
        stream.recorded = stream.committer.inspect().head
    assert lake.ids() == [1, 2, 3, 4, 5]
    if value is None:
        assert duck_rows(lake, "id", "x IS NULL") == [(1,), (2,), (3,), (4,), (5,)]
        return
    found = lake.read().column("x")[0].as_py()
    expected = [(1,), (2,), (3,), (4,), (5,)]
    assert duck_rows(lake, "id", "isnan(x)" if found != found else f"x = {found}") == expected
    predicate: Any = IsNaN if found != found else partial(EqualTo, literal=found)
    assert lake.table.scan(row_filter=predicate("x")).to_arrow().num_rows == 5


@pytest.mark.slow
def test_files_with_a_column_that_was_dropped_are_refused(lake: IcebergLake) -> None:
    stream, waiting = Stream(lake), written(lake, 1)
    with lake.table.update_schema() as update:
        update.delete_column("name")
    with pytest.raises(BadFiles, match="name were dropped"):
        stream.committer.check([waiting])


def test_files_that_lack_a_required_column_are_refused(lake: IcebergLake) -> None:
    stream, waiting = Stream(lake), written(lake, 1)
    with lake.table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("id", required=True)
    with pytest.raises(BadFiles, match="id is required"):
        stream.committer.check([waiting])


@pytest.mark.slow
def test_files_of_an_older_spec_get_a_manifest_of_that_spec(lake: IcebergLake) -> None:
    stream, old = Stream(lake), written(lake, 1, 2)
    with lake.table.update_spec() as update:
        update.add_field("name", IdentityTransform(), "by_name")
        update.add_field("id", BucketTransform(2), "by_id")
    new = written(lake, 3)
    assert (old.spec_id, new.spec_id) == (0, 1)
    assert new.files[0].partition.keys() == {"by_name", "by_id"}
    stream.add(1, old, new)
    specs = {line["partition_spec_id"]: line for line in lines(lake)}
    assert sorted(specs) == [0, 1]
    for spec_id, line in specs.items():
        header = avro_header(line["manifest_path"])
        assert header["partition-spec-id"] == str(spec_id)
        assert ("by_name" in header["partition-spec"]) == (spec_id == 1)
    assert lake.ids() == [1, 2, 3]
    assert duck_rows(lake, "id", "name = 'n3'") == [(3,)]
    assert duck_rows(lake, "id", "name = 'n1'") == [(1,)]
