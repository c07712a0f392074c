"""The rule for columns that rows have gained."""

import re

import pyarrow as pa
import pytest

from sluicegate.lakes.new_columns import gained, still_missing, storable
from sluicegate.lakes.port import SchemaMismatch

TABLE = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int32(), pa.int32()),
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.uint64()),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(4), pa.binary(4)),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.large_list(pa.field("item", pa.uint8(), False)), pa.list_(pa.field("item", pa.int16(), False))),
        (pa.map_(pa.large_string(), pa.float16()), pa.map_(pa.string(), pa.float32())),
        (pa.struct([("x", pa.list_(pa.large_binary()))]), pa.struct([("x", pa.list_(pa.binary()))])),
        (pa.timestamp("ns", tz="UTC"), pa.timestamp("ns", tz="UTC")),
    ],
    ids=str,
)
def test_variants_of_a_type_are_stored_as_that_type(kind: pa.DataType, expected: pa.DataType) -> None:
    assert storable(kind).equals(expected)


ID, NOTE = TABLE
NULL = pa.field("x", pa.map_(pa.string(), pa.null()))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            [pa.field("id", pa.string()), NOTE, pa.field("x", pa.int8())],
            "id is int64 in the table, and string in the rows;",
        ),
        (
            [pa.field("number", pa.int64()), NOTE],
            r"columns \(id\), as if .* give the columns of the rows the table's names",
        ),
        (
            [ID, NOTE, pa.field("x", pa.int8(), nullable=False)],
            "column x is not nullable, .* or add it to the",
        ),
        ([ID, NOTE, pa.field("ID", pa.int64())], "from the column id only in its case; give it another name"),
        (
            [ID, NOTE, pa.field("X", pa.int8()), pa.field("x", pa.int8())],
            "X differs from the column x only in",
        ),
        ([ID, NOTE, NULL], "the new column x has no type .*; convert it to one"),
        ([ID, NOTE, ID, pa.field("x", pa.int8())], "the rows have the column id twice; leave one out"),
    ],
)
def test_rows_that_differ_otherwise_add_no_column(fields: list[pa.Field], says: str) -> None:
    with pytest.raises(SchemaMismatch, match=says):
        gained(pa.schema(fields), TABLE)


def test_all_reasons_are_in_one_error() -> None:
    rows = pa.schema([("id", pa.string()), ("ID", pa.null()), pa.field("x", pa.int8(), nullable=False)])
    reasons = (
        r"\(ID, x\): ",
        "id is int64",
        r"columns \(note\)",
        "in its case",
        "no type",
        "x is not nullable",
    )
    with pytest.raises(SchemaMismatch) as refused:
        gained(rows, TABLE)
    assert all(re.search(reason, str(refused.value)) for reason in reasons)


def test_columns_of_others_are_compared_again() -> None:
    added = [pa.field("a", pa.int32()), pa.field("b", pa.int32())]
    assert still_missing(added, TABLE) == added
    assert still_missing(added, TABLE.append(pa.field("a", pa.int64()))) == added[1:]
    assert still_missing(added, pa.schema(added)) == []
    with pytest.raises(
        SchemaMismatch, match="a is int16 in the table, and int32 in the rows; convert these to int16"
    ):
        still_missing(added, TABLE.append(pa.field("a", pa.int16())))
    with pytest.raises(SchemaMismatch, match="the new column a differs from the column A only in its case"):
        still_missing(added, TABLE.append(pa.field("A", pa.int32())))
