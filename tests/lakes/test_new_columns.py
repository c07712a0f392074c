"""The rule for columns that rows have gained."""

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


def test_new_columns_are_nullable_and_carry_nothing_else() -> None:
    new = pa.field("more", pa.uint8(), metadata={"spark": "metadata"})
    (found,) = gained(TABLE.append(new), TABLE)
    assert found.equals(pa.field("more", pa.int16()), check_metadata=True)


def test_the_order_is_that_of_the_rows() -> None:
    rows = pa.schema([("b", pa.int8()), ("note", pa.string()), ("a", pa.int8()), ("id", pa.int16())])
    assert [field.name for field in gained(rows, TABLE)] == ["b", "a"]


def test_rows_without_new_columns_are_left_to_the_writer() -> None:
    assert gained(pa.schema([("id", pa.string())]), TABLE) == []


def test_all_reasons_are_in_one_error() -> None:
    rows = pa.schema([("id", pa.string()), ("ID", pa.null()), pa.field("x", pa.int8(), nullable=False)])
    with pytest.raises(SchemaMismatch) as refused:
        gained(rows, TABLE)
    text = str(refused.value)
    assert text.startswith("no column is added to the table (ID, x): ")
    for part in ("id is int64", r"columns (note)", "only in its case", "no type (null)", "x is not nullable"):
        assert part in text


@pytest.mark.parametrize(
    "kind",
    [pa.null(), pa.list_(pa.null()), pa.struct([("x", pa.map_(pa.string(), pa.null()))])],
    ids=str,
)
def test_a_column_needs_a_type_at_every_depth(kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match="has no type"):
        gained(TABLE.append(pa.field("x", kind)), TABLE)


def test_columns_of_others_are_compared_again() -> None:
    added = [pa.field("a", pa.int32()), pa.field("b", pa.int32())]
    assert still_missing(added, TABLE) == added
    assert still_missing(added, TABLE.append(pa.field("a", pa.int64()))) == added[1:]
    assert still_missing(added, pa.schema(added)) == []
    with pytest.raises(SchemaMismatch, match="a is int16 in the table, not int32; convert the rows to int16"):
        still_missing(added, TABLE.append(pa.field("a", pa.int16())))
    with pytest.raises(SchemaMismatch, match="the new column a differs from the column A only in its case"):
        still_missing(added, TABLE.append(pa.field("A", pa.int32())))
