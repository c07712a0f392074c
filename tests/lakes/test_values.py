"""What goes in comes out, and is found by a filter: types by formats by readers, at the edges of values."""

import datetime
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


@pytest.mark.slow
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
    for name, reader in READERS[lake].items():
        for sign, value, numbers in questions(kind):
            expected = sorted(number for number in numbers for _ in range(times[number]))
            try:
                found: object = reader(made, kind, sign, value)
            except Exception as error:
                found = error
            if found is not None and found != expected:
                wrong.append(f"{name}: v {sign} {value!r:.60}: {found!r:.200}, not {expected}")
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
                    pa.field("day", pa.date32(), nullable=False),
                    pa.field("t", pa.struct([pa.field("y", pa.string(), nullable=False)]), nullable=False),
                ]
            ),
        ),
        ("l", pa.list_(pa.field("element", pa.int32(), nullable=False))),
    ]
)
"""Fields inside of others that must not be null; the columns themselves may be."""


def loose(kind: pa.DataType) -> pa.DataType:
    """Return a type as rows bring it: all fields may be null by their type."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, loose(field.type)) for field in kind])
    return pa.list_(loose(kind.value_type)) if pa.types.is_list(kind) else kind


def batch(**columns: list[Any]) -> pa.RecordBatch:
    arrays = {name: pa.array(values, loose(REQUIRED.field(name).type)) for name, values in columns.items()}
    return pa.record_batch(arrays)


DAY_1 = datetime.date(2026, 8, 1)
WHOLE = {"x": 1, "day": DAY_1, "t": {"y": "a"}}


@pytest.mark.parametrize("lake", EACH_LAKE)
def test_required_fields_inside_of_others_take_values_whatever_the_type_of_the_rows(
    lake: str, tmp_path: Path
) -> None:
    made = table(lake, tmp_path, REQUIRED)
    rows = batch(row=[1, 2, 3, 4], s=[WHOLE, None, WHOLE, None], l=[[1, 2], None, [], [3]])
    lacking = batch(row=[5])
    write(made, [rows, rows.slice(1, 2), lacking])
    assert read(made) == [
        *({"row": 1, "s": WHOLE, "l": [1, 2]},),
        *({"row": 2, "s": None, "l": None} for _ in range(2)),
        *({"row": 3, "s": WHOLE, "l": []} for _ in range(2)),
        *({"row": 4, "s": None, "l": [3]}, {"row": 5, "s": None, "l": None}),
    ]


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
    return sorted(found, key=lambda row: row["row"])


@pytest.mark.parametrize("lake", EACH_LAKE)
@pytest.mark.parametrize(
    ("column", "value", "path"),
    [
        ("s", {**WHOLE, "x": None}, "s.x"),
        ("s", {**WHOLE, "t": None}, "s.t"),
        ("s", {**WHOLE, "t": {"y": None}}, "s.t.y"),
        ("l", [1, None], "l.(element|item)"),
    ],
    ids=["field", "struct", "field of a struct", "element"],
)
def test_null_in_a_required_field_is_refused_by_its_path(
    lake: str, column: str, value: Any, path: str, tmp_path: Path
) -> None:
    made = table(lake, tmp_path, REQUIRED)
    with pytest.raises(SchemaMismatch, match=f"the column {path} must not be null, but 1 values are"):
        made.write(batch(row=[1, 2], **{column: [value, None]}))
    assert data_files(made) == []


@pytest.mark.parametrize("lake", ["iceberg", "delta"])
def test_an_attempt_that_is_given_up_in_the_middle_of_a_file_leaves_none(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the true error")

    def fail_to_close(*_: Any) -> None:
        raise RuntimeError("file metadata is only available after writer close")

    made = table(lake, tmp_path, pa.schema([("row", pa.int32())]))
    writer = made.adapter.open_writer(made.adapter.parse_table(made.location), None)
    writer.write(pa.record_batch({"row": pa.array([1], pa.int32())}))
    monkeypatch.setattr(pq.ParquetWriter, "write_table", fail)
    monkeypatch.setattr(pq.ParquetWriter, "close", fail_to_close)
    with pytest.raises(RuntimeError, match="the true error"):
        writer.finish()
    assert data_files(made)
    writer.abort()
    assert data_files(made) == []


@pytest.mark.parametrize("lake", ["paimon", "iceberg", "delta"])
@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["n" * 300], "has a name of 300 characters, and an event at most 256. Rename the field"),
        ([f"c{number}" for number in range(101)], "has 101 partition fields, and an event at most 100"),
    ],
    ids=["name", "number"],
)
def test_partition_fields_that_no_event_can_have_are_refused(
    lake: str, names: list[str], reason: str, tmp_path: Path
) -> None:
    columns = [("row", pa.int32()), *((name, pa.string()) for name in names)]
    made = table(lake, tmp_path, pa.schema(columns), keys=names)
    with pytest.raises(TableRefused, match=reason):
        made.write(pa.record_batch({"row": pa.array([1], pa.int32()), **{name: ["a"] for name in names}}))
    assert data_files(made) == []


@pytest.mark.parametrize("lake", ["paimon", "iceberg", "delta"])
def test_a_path_that_no_event_can_have_is_refused(lake: str, tmp_path: Path) -> None:
    names = [f"{number:02}{'n' * 60}" for number in range(24)]
    columns = [("row", pa.int32()), *((name, pa.string()) for name in names)]
    made = table(lake, tmp_path, pa.schema(columns), keys=names)
    rows = pa.record_batch({"row": pa.array([1], pa.int32()), **{name: ["v" * 60] for name in names}})
    writer = made.adapter.open_writer(made.adapter.parse_table(made.location), None)
    writer.write(rows)
    with pytest.raises(SchemaMismatch, match=r"folder whose path is too long .* and an event at most 2048"):
        list(writer.finish())
    writer.abort()
    assert data_files(made) == []


@pytest.mark.parametrize("lake", ["iceberg", "delta"])
def test_a_partition_field_with_a_long_name_is_written(lake: str, tmp_path: Path) -> None:
    """Paimon's readers take the folder for the partition, so its names are as they are."""
    made = table(lake, tmp_path, pa.schema([("row", pa.int32()), ("n" * 250, pa.string())]), keys=["n" * 250])
    rows = {"row": pa.array([1, 2, 3], pa.int32()), "n" * 250: ["v" * 400, "w", None]}
    (event,) = write(made, [pa.record_batch(rows)])
    assert len({file.path.partition("/")[0] for file in event.files}) == 1 + 2 * (lake == "delta")


@pytest.mark.parametrize("lake", [each for each in EACH_LAKE if "paimon" in str(each.values[0])])
@pytest.mark.parametrize("value", [1 << 62, -(1 << 63)])
def test_an_event_time_that_no_event_can_have_is_refused(lake: str, value: int, tmp_path: Path) -> None:
    made = table(lake, tmp_path, pa.schema([("at", pa.timestamp("s"))]))
    writer = made.adapter.open_writer(made.adapter.parse_table(made.location), "at")
    with pytest.raises(SchemaMismatch, match=r"the column at: an event time of .* is out of range"):
        writer.write(pa.record_batch({"at": stored([value], pa.timestamp("s"))}))
    writer.abort()
    assert data_files(made) == []


FRAMES = pa.schema(
    [
        ("row", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("price", pa.decimal128(15, 2)),
        ("bytes", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ]
)
FRAME_ROWS: list[dict[str, Any]] = [
    {
        "row": number,
        "name": name,
        "at": datetime.datetime(2026, 8, 1, 12, 0, 0, number, tzinfo=datetime.UTC),
        "local": datetime.datetime(2026, 8, 1, 12, 0, 0, number),
        "day": DAY_1,
        "price": Decimal("23.99"),
        "bytes": b"\xff",
        "tags": ["a", "b"],
        "s": {"x": number, "y": "y"},
    }
    for number, name in enumerate(["a", "b", None, "a"])
]


def of_pandas(rows: pa.Table) -> Any:
    found = rows.to_pandas()
    # Its numbers are floats as soon as one is null; the others are as pyarrow makes them.
    return found.astype({"name": "category"})


def of_polars(kind: Any) -> Callable[[pa.Table], Any]:
    def made(rows: pa.Table) -> Any:
        frame: Any = pl.from_arrow(rows)
        return frame.with_columns(pl.col("name").cast(kind))

    return made


WAYS: dict[str, Callable[[pa.Table], Any]] = {
    "pyarrow": lambda rows: rows,
    "a dictionary": lambda rows: rows.set_column(1, "name", rows["name"].dictionary_encode()),
    "pandas": of_pandas,
    "polars": of_polars(pl.String),
    "polars categorical": of_polars(pl.Categorical),
    "polars enum": of_polars(pl.Enum(["b", "a"])),
}


@pytest.mark.parametrize("lake", ["paimon", "iceberg", "delta"])
@pytest.mark.parametrize("way", WAYS)
def test_data_frames_of_each_library_are_taken(lake: str, way: str, tmp_path: Path) -> None:
    made = table(lake, tmp_path, FRAMES)
    rows = WAYS[way](pa.Table.from_pylist(FRAME_ROWS, FRAMES))
    write(made, [pa.Table.from_batches(_batches(rows)).combine_chunks().to_batches()[0]])
    assert read(made) == FRAME_ROWS


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
    with pytest.raises(
        SchemaMismatch, match=r"the columns \['v'\] of the data frame cannot be given as Arrow data"
    ):
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


@pytest.mark.parametrize("lake", ["paimon", "iceberg", "delta"])
@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (pa.field("extra", VARIANT), "the column extra is a VARIANT"),
        (pa.field("extra", pa.list_(VARIANT)), "the column extra is a VARIANT"),
        (pa.field("__index_level_0__", pa.int64()), r"reset_index\(drop=True\)"),
        (pa.field("Row", pa.int32()), "differs from the column row only in its case"),
        (pa.field("extra", pa.null()), "has no type"),
    ],
    ids=["variant", "variant in a list", "index of pandas", "case", "no type"],
)
def test_columns_that_no_table_gets_are_not_advised_to_be_added(
    lake: str, field: pa.Field, reason: str, tmp_path: Path
) -> None:
    made = table(lake, tmp_path, pa.schema([("row", pa.int32())]))
    rows = pa.schema([pa.field("row", pa.int32()), field])
    with pytest.raises(SchemaMismatch, match=reason) as refused:
        made.write(empty(rows))
    assert "set evolve to add-columns" not in str(refused.value)
    with pytest.raises(SchemaMismatch, match=reason):
        evolve(made.adapter, made.adapter.parse_table(made.location), rows)
    assert made.adapter.read_columns(made.adapter.parse_table(made.location)).schema.names == ["row"]


def empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
