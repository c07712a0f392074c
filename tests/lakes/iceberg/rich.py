"""A table with columns of every type that can be written, and rows for it."""

import datetime
import decimal
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

RICH = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "on", BooleanType()),
    NestedField(4, "small", IntegerType()),
    NestedField(5, "single", FloatType()),
    NestedField(6, "real", DoubleType()),
    NestedField(7, "price", DecimalType(9, 2)),
    NestedField(8, "amount", DecimalType(38, 10)),
    NestedField(9, "day", DateType()),
    NestedField(10, "clock", TimeType()),
    NestedField(11, "at", TimestampType()),
    NestedField(12, "instant", TimestamptzType()),
    NestedField(13, "raw", BinaryType()),
    NestedField(14, "code", FixedType(4)),
    NestedField(
        15,
        "place",
        StructType(NestedField(16, "city", StringType()), NestedField(17, "zip", IntegerType())),
    ),
    NestedField(18, "tags", ListType(19, StringType(), element_required=False)),
    NestedField(20, "counts", MapType(21, StringType(), 22, LongType(), value_required=False)),
)
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("on", pa.bool_()),
        pa.field("small", pa.int32()),
        pa.field("single", pa.float32()),
        pa.field("real", pa.float64()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("amount", pa.decimal128(38, 10)),
        pa.field("day", pa.date32()),
        pa.field("clock", pa.time64("us")),
        pa.field("at", pa.timestamp("us")),
        pa.field("instant", pa.timestamp("us", "UTC")),
        pa.field("raw", pa.binary()),
        pa.field("code", pa.binary(4)),
        pa.field("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
SOURCES = {field.name: field.field_id for field in RICH.fields}
PARTITIONS: dict[str, tuple[tuple[str, Transform[Any, Any]], ...]] = {
    "name": (("name", IdentityTransform()),),
    "day and number": (("day", IdentityTransform()), ("small", IdentityTransform())),
    "decimal": (("price", IdentityTransform()),),
    "large decimal": (("amount", TruncateTransform(1_000)),),
    "times": (("at", IdentityTransform()), ("clock", IdentityTransform())),
    "buckets": (("id", BucketTransform(4)), ("name", BucketTransform(3)), ("instant", BucketTransform(2))),
    "truncated": (
        ("name", TruncateTransform(2)),
        ("small", TruncateTransform(10)),
        ("raw", TruncateTransform(1)),
    ),
    "year": (("at", YearTransform()), ("day", MonthTransform())),
    "day": (("instant", DayTransform()),),
    "hour": (("at", HourTransform()), ("on", IdentityTransform())),
    "bytes": (("raw", IdentityTransform()), ("code", BucketTransform(2))),
    "void": (("name", VoidTransform()), ("on", IdentityTransform())),
    "real": (("real", IdentityTransform()),),
}


def spec(name: str) -> PartitionSpec:
    """One of the specs of PARTITIONS."""
    return PartitionSpec(
        *(
            PartitionField(SOURCES[column], 1000 + at, transform, f"p{at}_{column}")
            for at, (column, transform) in enumerate(PARTITIONS[name])
        )
    )


def rows(numbers: Sequence[int]) -> pa.RecordBatch:
    """One row for each number; every seventh has nulls."""
    start = datetime.datetime(1969, 12, 30, 22, 15, 7, 250_001)

    def each(number: int) -> dict[str, object]:
        at = start + datetime.timedelta(hours=7 * number)
        if number % 7 == 6:
            return {"id": number}
        return {
            "id": number,
            "name": f"näme {number % 3}",
            "on": number % 2 == 0,
            "small": number % 5 - 2,
            "single": number / 4,
            "real": -number / 8,
            "price": decimal.Decimal(number - 3) / 4,
            "amount": decimal.Decimal(number) * decimal.Decimal("123456789012345.0000000001"),
            "day": at.date(),
            "clock": at.time(),
            "at": at,
            "instant": at.replace(tzinfo=datetime.UTC),
            "raw": bytes([number % 3, 255]),
            "code": b"%04d" % (number % 2),
            "place": {"city": f"c{number}", "zip": number},
            "tags": [f"t{number}", None],
            "counts": {"a": number},
        }

    return pa.RecordBatch.from_pylist([each(number) for number in numbers], schema=ARROW)
