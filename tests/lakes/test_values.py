"""What goes in comes out, and is found by a filter: types by formats by readers, at the edges of values."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from sluicegate.lakes.arrow import LOCAL_TIMES
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import SchemaMismatch, TableRefused
from sluicegate.writer_hooks.writer import _batches
from tests.lakes.values import (
    EACH_LAKE,
    FORMATS,
    KINDS,
    LAKES,
    READERS,
    Kind,
    Lake,
    is_refused,
    questions,
    stored,
    table,
    write,
)

pytestmark = pytest.mark.slow

CELLS = [
    pytest.param(lake, kind, id=f"{lake}-{kind.name}", marks=pytest.mark.matrix if "-" in lake else ())
    for lake, kind in itertools.product(LAKES, KINDS)
    if lake.partition("-")[0] in kind.formats
]


def rows_of(kind: Kind, numbers: list[int | None]) -> pa.RecordBatch:
    values = [None if number is None else kind.values[number] for number in numbers]
    return pa.record_batch({"row": pa.array(numbers, pa.int32()), "v": kind.array(values)})


@pytest.mark.parametrize(("lake", "kind"), CELLS)
def test_each_value_is_found_or_refused_by_the_name_of_its_column(
    lake: str, kind: Kind, tmp_path: Path
) -> None:
    made = table(lake, tmp_path, pa.schema([("row", pa.int32()), ("v", kind.arrow)]))
    taken = [value for value in kind.values if not is_refused(lake, kind, value)]
    for value in kind.values:
        if value not in taken:
            with pytest.raises((SchemaMismatch, TableRefused), match="column v"):
                write(made, [pa.record_batch({"v": kind.array([value])})])
    assert not any(made.root.rglob("data-*"))
    if not taken:
        return
    kind = replace(kind, values=taken)
    # Each value is the lowest one of a file, and the highest one of another.
    pairs = list(itertools.pairwise(range(len(taken))))
    write(made, [rows_of(kind, [low, high, None]) for low, high in pairs] + [rows_of(kind, [None, None])])
    times = {number: sum(number in pair for pair in pairs) for number in range(len(taken))}
    wrong = []
    for sign, value, numbers in questions(kind):
        expected = sorted(number for number in numbers for _ in range(times[number]))
        try:
            found: object = READERS[lake](made, kind, sign, value)
        except Exception as error:
            found = error
        if found is not None and found != expected:
            wrong.append(f"v {sign} {value!r:.60}: {found!r:.200}, not {expected}")
    assert not wrong, "\n".join(wrong[:5])


def not_utf8() -> pa.Array:
    """Return three texts. The one that is not UTF-8 is neither the lowest nor the highest one."""
    offsets = pa.array([0, 1, 3, 6], pa.int32()).buffers()[1]
    return pa.StringArray.from_buffers(3, offsets, pa.py_buffer(b"ab\xff\xe2\x82\xac"))


TEXTS: dict[str, tuple[pa.DataType, pa.Array]] = {
    "plain": (pa.string(), not_utf8()),
    "in a list": (pa.list_(pa.string()), pa.ListArray.from_arrays([0, 1, 2, 3], not_utf8())),
    "in a struct": (pa.struct([("x", pa.string())]), pa.StructArray.from_arrays([not_utf8()], ["x"])),
    "in a dictionary": (pa.string(), pa.DictionaryArray.from_arrays([0, 1, 2], not_utf8())),
    "in a view": (pa.string(), not_utf8().view(pa.binary()).cast(pa.binary_view()).view(pa.string_view())),
    "in a large text": (pa.string(), not_utf8().cast(pa.large_string())),
}


@pytest.mark.parametrize("lake", EACH_LAKE)
@pytest.mark.parametrize("place", TEXTS)
def test_text_that_is_not_utf8_is_refused_wherever_it_is(lake: str, place: str, tmp_path: Path) -> None:
    kind, texts = TEXTS[place]
    made = table(lake, tmp_path, pa.schema([("row", pa.int32()), ("v", kind)]))
    with pytest.raises(SchemaMismatch, match=r"the column v has values .* Invalid UTF8 sequence"):
        made.write(pa.record_batch({"row": pa.array([1, 2, 3], pa.int32()), "v": texts}))
    assert data_files(made) == []


def data_files(made: Lake) -> list[Path]:
    """Return the files of rows that are there, committed or not."""
    inside = [path for path in made.root.rglob("*") if path.is_file()]
    return [path for path in inside if path.name.startswith("data-") or "bucket-0" in path.parts]


REQUIRED = pa.schema(
    [
        ("row", pa.int32()),
        (
            "s",
            pa.struct(
                [
                    pa.field("x", pa.int32(), nullable=False),
                    pa.field("t", pa.struct([pa.field("y", pa.string(), nullable=False)]), nullable=False),
                ]
            ),
        ),
        ("l", pa.list_(pa.field("element", pa.int32(), nullable=False))),
    ]
)
"""Fields inside of others that must not be null; the columns themselves may be."""
LOOSE = {
    "row": pa.int32(),
    "s": pa.struct([("x", pa.int32()), ("t", pa.struct([("y", pa.string())]))]),
    "l": pa.list_(pa.int32()),
}
"""Types as rows bring them: all fields may be null by their type."""
WHOLE = {"x": 1, "t": {"y": "a"}}


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values, LOOSE[name]) for name, values in columns.items()})


@pytest.mark.parametrize("lake", EACH_LAKE)
def test_required_fields_inside_of_others_take_values_whatever_the_type_of_the_rows(
    lake: str, tmp_path: Path
) -> None:
    made = table(lake, tmp_path, REQUIRED)
    rows = batch(row=[1, 2, 3, 4], s=[WHOLE, None, WHOLE, None], l=[[1, 2], None, [], [3]])
    write(made, [rows, rows.slice(1, 2), batch(row=[5])])
    expected = rows.to_pylist()
    twice = expected[1:3]
    assert read(made) == sorted([*expected, *twice, {"row": 5, "s": None, "l": None}], key=by_row)


def by_row(row: dict[str, Any]) -> int:
    return int(row["row"])


def read(made: Lake) -> list[dict[str, Any]]:
    """Return all rows, as the files have them: pypaimon reads no required fields inside of ORC files."""
    found: list[dict[str, Any]] = []
    for path in data_files(made):
        if path.suffix == ".avro":
            with path.open("rb") as file:
                found += [dict(row) for row in fastavro.reader(file) if isinstance(row, dict)]
        else:
            content = orc.read_table(path) if path.suffix == ".orc" else pq.ParquetFile(path).read()
            found += content.to_pylist()
    return sorted(found, key=by_row)


@pytest.mark.parametrize("lake", EACH_LAKE)
@pytest.mark.parametrize(
    ("column", "value", "path"),
    [
        ("s", {**WHOLE, "x": None}, "s.x"),
        ("s", {**WHOLE, "t": None}, "s.t"),
        ("s", {**WHOLE, "t": {"y": None}}, "s.t.y"),
        ("l", [1, None], "l.(element|item)"),
    ],
)
def test_null_in_a_required_field_is_refused_by_its_path(
    lake: str, column: str, value: Any, path: str, tmp_path: Path
) -> None:
    made = table(lake, tmp_path, REQUIRED)
    with pytest.raises(SchemaMismatch, match=f"the column {path} must not be null, but 1 values are"):
        made.write(batch(row=[1, 2], **{column: [value, None]}))
    assert data_files(made) == []


@pytest.mark.parametrize("lake", FORMATS)
@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["n" * 300], "has a name of 300 characters, and an event at most 256. Rename the field"),
        ([f"c{number}" for number in range(101)], "has 101 partition fields, and an event at most 100"),
        ([f"{number:02}{'n' * 60}" for number in range(24)], "path is too long .* event at most 2048"),
    ],
    ids=["name", "number", "path"],
)
def test_partitions_that_no_event_can_have_are_refused(
    lake: str, names: list[str], reason: str, tmp_path: Path
) -> None:
    columns = [("row", pa.int32()), *((name, pa.string()) for name in names)]
    made = table(lake, tmp_path, pa.schema(columns), keys=names)
    rows = pa.record_batch({"row": pa.array([1], pa.int32()), **{name: ["v" * 60] for name in names}})
    with pytest.raises((TableRefused, SchemaMismatch), match=reason):
        made.write(rows)


@pytest.mark.parametrize("lake", [each for each in EACH_LAKE if "paimon" in str(each.values[0])])
@pytest.mark.parametrize("value", [1 << 62, -(1 << 63)])
def test_an_event_time_that_no_event_can_have_is_refused(lake: str, value: int, tmp_path: Path) -> None:
    made = table(lake, tmp_path, pa.schema([("at", pa.timestamp("s"))]))
    writer = made.adapter.open_writer(made.adapter.parse_table(made.location), "at")
    with pytest.raises(SchemaMismatch, match=r"the column at: an event time of .* is out of range"):
        writer.write(pa.record_batch({"at": stored([value], pa.timestamp("s"))}))
    writer.abort()
    assert data_files(made) == []


FRAME = pa.table(
    {
        "row": [0, 1, 2],
        "name": ["a", "b", None],
        "at": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("23.99")] * 3, pa.decimal128(15, 2)),
        "tags": [["a", "b"]] * 3,
        "s": [{"x": 1, "y": "y"}] * 3,
    }
)


def of_polars(kind: Any) -> Callable[[pa.Table], Any]:
    return lambda rows: pl.DataFrame(pl.from_arrow(rows)).with_columns(pl.col("name").cast(kind))


WAYS: dict[str, Callable[[pa.Table], Any]] = {
    "pyarrow": lambda rows: rows,
    "a dictionary": lambda rows: rows.set_column(1, "name", rows["name"].dictionary_encode()),
    "pandas": lambda rows: rows.to_pandas().astype({"name": "category"}),
    "polars": of_polars(pl.String),
    "polars categorical": of_polars(pl.Categorical),
    "polars enum": of_polars(pl.Enum(["b", "a"])),
}


@pytest.mark.parametrize("lake", FORMATS)
@pytest.mark.parametrize("way", WAYS)
def test_data_frames_of_each_library_are_taken(lake: str, way: str, tmp_path: Path) -> None:
    made = table(lake, tmp_path, FRAME.schema)
    write(made, [pa.Table.from_batches(_batches(WAYS[way](FRAME))).combine_chunks().to_batches()[0]])
    assert read(made) == FRAME.to_pylist()


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"row": [1], "v": pl.Series([1], dtype=pl.Int128)}),
        pl.DataFrame({"row": [1], "v": pl.Series([1], dtype=pl.UInt128)}),
        pa.table({"row": [1, 2]}).to_pandas().assign(v=[1, "a"]),
        pa.table({"row": [1]}).to_pandas().assign(v=[1j]),
    ],
    ids=["Int128", "UInt128", "mixed", "complex"],
)
def test_a_column_that_arrow_cannot_have_is_named(frame: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"cannot be given as Arrow data"):
        list(_batches(frame))


def test_times_of_an_unknown_zone_are_refused_where_the_table_has_one(tmp_path: Path) -> None:
    inside = pa.struct([("at", pa.timestamp("us", "UTC"))])
    made = table("delta", tmp_path, pa.schema([("at", pa.timestamp("us", "UTC")), ("s", inside)]))
    naive = pa.array([0], pa.timestamp("us"))
    rows = pa.record_batch({"at": naive, "s": pa.StructArray.from_arrays([naive], ["at"])})
    with pytest.raises(
        SchemaMismatch, match=r"the column at has .*CAST\(at AS TIMESTAMP\); the column s has"
    ):
        made.write(rows.replace_schema_metadata(LOCAL_TIMES))
    # A plain Python program states no zone: its times count as UTC.
    write(made, [rows])
    assert data_files(made)


VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)


@pytest.mark.parametrize("lake", FORMATS)
@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (pa.field("extra", pa.list_(VARIANT)), "the column extra is a VARIANT"),
        (pa.field("__index_level_0__", pa.int64()), r"reset_index\(drop=True\)"),
        (pa.field("Row", pa.int32()), "differs from the column row only in its case"),
    ],
    ids=["variant in a list", "index of pandas", "case"],
)
def test_columns_that_no_table_gets_are_not_advised_to_be_added(
    lake: str, field: pa.Field, reason: str, tmp_path: Path
) -> None:
    made = table(lake, tmp_path, pa.schema([("row", pa.int32())]))
    schema = pa.schema([pa.field("row", pa.int32()), field])
    with pytest.raises(SchemaMismatch, match=reason) as refused:
        made.write(empty(schema))
    assert "set evolve to add-columns" not in str(refused.value)
    with pytest.raises(SchemaMismatch, match=reason):
        evolve(made.adapter, made.adapter.parse_table(made.location), schema)


def empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
