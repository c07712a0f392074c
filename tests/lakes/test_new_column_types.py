"""Types of new columns in each format: older rows have null, newer ones their value; others are refused."""

import datetime
import decimal
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import SchemaMismatch
from tests.contracts.lakes.harness import Stream
from tests.lakes.delta.making import info, protocol, put
from tests.lakes.values import FORMATS, Lake, table

ID: Final = pa.field("id", pa.int64())
AT: Final = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)

TAKEN: Final[list[tuple[str, pa.DataType, Any]]] = [
    ("all", pa.int8(), -3),
    ("all", pa.uint8(), 200),
    ("all", pa.uint32(), 2**32 - 1),
    ("all", pa.float16(), np.float16(0.5)),
    ("all", pa.bool_(), True),
    ("all", pa.decimal128(38, 10), decimal.Decimal("1.5000000000")),
    ("delta", pa.decimal256(5, 2), decimal.Decimal("1.50")),
    ("all", pa.large_string(), "text"),
    ("all", pa.large_binary(), b"bytes"),
    ("iceberg delta", pa.binary(3), b"abc"),
    ("all", pa.dictionary(pa.int32(), pa.string()), "one of few"),
    ("all", pa.date32(), AT.date()),
    ("iceberg", pa.time64("us"), AT.time()),
    ("all", pa.timestamp("ms"), AT.replace(tzinfo=None)),
    ("all", pa.timestamp("us", tz="Europe/Berlin"), AT),
    ("all", pa.large_list(pa.large_string()), ["a", None]),
    ("iceberg delta", pa.list_(pa.field("item", pa.int64(), nullable=False)), [1]),
    ("all", pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    ("all", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]), {"x": 1, "y": ["a"]}),
]
"""Formats that take a type, and a value."""
REFUSED: Final[list[tuple[str, pa.DataType]]] = [
    ("all", pa.uint64()),
    ("all", pa.decimal256(50, 2)),
    ("delta", pa.decimal128(5, -2)),
    ("all", pa.date64()),
    ("iceberg", pa.time32("s")),
    ("paimon delta", pa.time64("us")),
    ("iceberg delta", pa.timestamp("ns")),
    ("iceberg delta", pa.timestamp("ns", tz="UTC")),
    ("all", pa.duration("us")),
    ("all", pa.month_day_nano_interval()),
    ("all", pa.list_(pa.float32(), 3)),
    ("iceberg", pa.uuid()),
    ("iceberg", pa.list_(pa.struct([]))),
    ("delta", pa.struct([])),
    ("iceberg", pa.struct([("a b", pa.int64())])),
    ("delta", pa.struct([("x", pa.int64()), ("X", pa.int64())])),
    ("paimon", pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])),
]


def cells(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return each row of a table for each of its formats. Tables of Iceberg take more time."""
    return [
        pytest.param(
            lake, *row[1:], id=f"{lake}-{row[1]}", marks=pytest.mark.slow if lake == "iceberg" else ()
        )
        for row, lake in itertools.product(rows, FORMATS)
        if lake in row[0] or row[0] == "all"
    ]


def made(lake: str, root: Path) -> Lake:
    """Make a table that can have times without a zone."""
    found = table(lake, root, pa.schema([ID]))
    if lake == "delta":
        put(found.root, 1, info(), protocol(["timestampNtz"], ["timestampNtz"]))
    return found


def gain(lake: Lake, schema: pa.Schema) -> None:
    evolve(lake.adapter, lake.adapter.parse_table(lake.location), schema)


@pytest.mark.parametrize(("lake", "kind", "value"), cells(TAKEN))
def test_a_table_gets_a_column_of_this_type(
    lake: str, kind: pa.DataType, value: object, tmp_path: Path
) -> None:
    table = made(lake, tmp_path)
    schema = pa.schema([ID, pa.field("new", kind)])
    older = table.event([1])
    gain(table, schema)
    newer = table.write(pa.record_batch([pa.array([2]), pa.array([value], kind)], schema=schema))
    Stream(table).add(1, older, newer)
    assert table.rows() == [{"id": 1, "new": None}, {"id": 2, "new": value}]


@pytest.mark.parametrize(("lake", "kind"), cells(REFUSED))
def test_another_type_is_refused_and_leaves_the_table_as_it_is(
    lake: str, kind: pa.DataType, tmp_path: Path
) -> None:
    table = made(lake, tmp_path)
    schema = pa.schema([ID, pa.field("new", kind)])
    with pytest.raises(SchemaMismatch, match=r"onvert (it|the column) to another type"):
        gain(table, schema)
    assert table.schemas() == 1
    gain(table, schema.set(1, pa.field("new", pa.string())))
    Stream(table).commit(1, [1])
