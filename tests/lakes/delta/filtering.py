"""A table of all types with bounds; filters at the edges of its files, with the rows that they must find."""

import datetime
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.lakes.delta.making import column, info, metadata, protocol, put
from tests.lakes.delta.test_commits import commit, written

Literal = Callable[[Any], str]
UTC = datetime.UTC


def cast(kind: str) -> Literal:
    return lambda value: f"CAST('{value}' AS {kind})"


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def day(value: datetime.date) -> str:
    return f"DATE '{value.isoformat()}'"


@dataclass(frozen=True)
class Filtered:
    """A column of three files: their values, and values that no file has."""

    name: str
    kind: Any
    """Type of Delta."""
    arrow: pa.DataType
    files: Sequence[Sequence[Any]]
    outside: Sequence[Any]
    """Values just below the lowest one, and just above the highest one."""
    literal: Literal
    bounded: bool = True
    """True if statistics have bounds of the column, at least of one file."""
    path: str = ""
    """How a filter names it; empty: by its name."""
    literals: Mapping[str, Literal] = field(default_factory=dict)
    """By the name of a judge, where they differ."""

    @property
    def place(self) -> str:
        """Return the column as filters name it."""
        return self.path or self.name


def moments(zone: datetime.tzinfo | None) -> list[list[Any]]:
    def at(*parts: int) -> datetime.datetime:
        return datetime.datetime(*parts, tzinfo=zone)  # type: ignore[arg-type,misc]

    return [
        [at(1, 1, 1, 0, 0, 0, 1), at(1969, 12, 31, 23, 59, 59, 999_999), None],
        [at(1970, 1, 1), at(2026, 7, 1, 1, 2, 3, 4), at(2026, 7, 1, 1, 2, 3, 999)],
        [at(2026, 7, 1, 1, 2, 3, 1_001), at(9999, 12, 31, 23, 59, 59, 998_001), None],
    ]


def outside(zone: datetime.tzinfo | None) -> list[Any]:
    first, _, last = moments(zone)
    tick = datetime.timedelta(microseconds=1)
    return [first[0] - tick, last[1] + tick]


LONG = "l" * 32
D = Decimal
COLUMNS = (
    Filtered("byte", "byte", pa.int8(), [[-128, 0, None], [1, 1, 2], [3, None, 126]], [127], cast("TINYINT")),
    Filtered(
        "short",
        "short",
        pa.int16(),
        [[-32767, 0, None], [1, 1, 2], [3, None, 32766]],
        [-32768, 32767],
        cast("SMALLINT"),
    ),
    Filtered(
        "integer",
        "integer",
        pa.int32(),
        [[-(1 << 31) + 1, 0, None], [1, 1, 2], [3, None, (1 << 31) - 2]],
        [-(1 << 31), (1 << 31) - 1],
        cast("INTEGER"),
    ),
    Filtered(
        "long",
        "long",
        pa.int64(),
        [[-(1 << 63) + 1, -(1 << 53) - 1, None], [1, 1, 2], [(1 << 53) + 1, None, (1 << 63) - 2]],
        [-(1 << 63), (1 << 63) - 1],
        cast("BIGINT"),
    ),
    Filtered(
        "float",
        "float",
        pa.float32(),
        [[-2.5, -0.0, None], [0.0, 0.5, 1.5], [1.75, None, 3e38]],
        [-2.75, 3.25e38],
        cast("FLOAT"),
    ),
    Filtered(
        "double",
        "double",
        pa.float64(),
        [[-1.7e308, -0.0, None], [0.0, 0.1, 0.3], [0.30000000000000004, None, 5e-324 + 1e17]],
        [-1.75e308, 1.1e17],
        cast("DOUBLE"),
    ),
    Filtered(
        "strange",
        "double",
        pa.float64(),
        [[-1.0, math.nan, None], [-math.inf, 2.0, 3.0], [4.0, 5.0, math.inf]],
        [],
        cast("DOUBLE"),
    ),
    Filtered(
        "money",
        "decimal(5,2)",
        pa.decimal128(5, 2),
        [[D("-999.99"), D("-0.01"), None], [D("0.00"), D("0.10"), D("1.00")], [D("1.01"), D("999.98"), None]],
        [D("999.99")],
        cast("DECIMAL(5,2)"),
    ),
    Filtered(
        "exact",
        "decimal(15,3)",
        pa.decimal128(15, 3),
        [
            [D("-999999999999.998"), D("-0.001"), None],
            [D("0.000"), D("0.001"), D("7.000")],
            [D("999999999999.997"), D("999999999999.998"), None],
        ],
        [D("-999999999999.999"), D("999999999999.999")],
        cast("DECIMAL(15,3)"),
    ),
    Filtered(
        "wide",
        "decimal(38,10)",
        pa.decimal128(38, 10),
        [
            [D("-1234567890123456789012345678.0000000001"), None, D(0)],
            [D("0.0000000001"), D(1), D(2)],
            [D("3.0000000001"), None, D("1234567890123456789012345678.9999999999")],
        ],
        [D("-1234567890123456789012345679"), D("1234567890123456789012345679")],
        cast("DECIMAL(38,10)"),
        bounded=False,
    ),
    Filtered(
        "text",
        "string",
        pa.string(),
        [["", "a", None], [LONG, LONG + "b", LONG + "\U0001f600"], ["z", "\uffee", "\U0001f600" * 40]],
        ["\U0010ffff"],
        quoted,
    ),
    Filtered(
        "date",
        "date",
        pa.date32(),
        [
            [datetime.date(1, 1, 2), datetime.date(1969, 12, 31), None],
            [datetime.date(1970, 1, 1), datetime.date(2026, 7, 1), None],
            [datetime.date(2026, 7, 2), datetime.date(9999, 12, 30), None],
        ],
        [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
        day,
    ),
    Filtered(
        "moment",
        "timestamp",
        pa.timestamp("us", "UTC"),
        moments(UTC),
        [outside(UTC)[1]],
        lambda value: f"TIMESTAMP '{value.isoformat(sep=' ', timespec='microseconds')}'",
        literals={
            "duckdb": lambda value: f"TIMESTAMPTZ '{value.isoformat(sep=' ', timespec='microseconds')}'"
        },
    ),
    Filtered(
        "local",
        "timestamp_ntz",
        pa.timestamp("us"),
        moments(None),
        [outside(None)[1]],
        lambda value: f"TIMESTAMP_NTZ '{value.isoformat(sep=' ', timespec='microseconds')}'",
        literals={"duckdb": lambda value: f"TIMESTAMP '{value.isoformat(sep=' ', timespec='microseconds')}'"},
    ),
    Filtered(
        "flag",
        "boolean",
        pa.bool_(),
        [[False, None, False], [True, None, True], [False, True, None]],
        [],
        str,
        bounded=False,
    ),
    Filtered(
        "nothing", "long", pa.int64(), [[None, None, None], [None, None, None], [7, None, 8]], [6, 9], str
    ),
)
NESTED = tuple(
    Filtered(
        f"{each.name}_inside",
        each.kind,
        each.arrow,
        each.files,
        each.outside,
        each.literal,
        each.bounded,
        f"s.{each.name}",
        each.literals,
    )
    for each in COLUMNS
    if each.name in ("long", "text", "date", "money", "moment", "flag")
)
ALL = (*COLUMNS, *NESTED)


def rank(value: Any) -> tuple[bool, Any]:
    """Return the place of a value in the order of readers, where NaN is the highest number."""
    strange = isinstance(value, float) and math.isnan(value)
    return strange, 0 if strange else value


def questions(each: Filtered, judge: str, *, few: bool = False) -> Iterator[tuple[str, list[int]]]:
    """Yield filters, and the numbers of the rows that they must find.

    `few` leaves ranges out, except for those of the lowest and the highest value: a slow judge takes seconds.
    """
    values = [value for file in each.files for value in file]
    literal = each.literals.get(judge, each.literal)
    known = {rank(value): value for value in [*values, *each.outside] if value is not None}
    tests: Sequence[tuple[str, Callable[[Any, Any], bool]]] = (
        ("=", lambda one, other: one == other),
        ("<", lambda one, other: one < other),
        (">=", lambda one, other: one >= other),
    )
    for bound in known:
        inside = few and bound not in (min(known), max(known))
        for operator, test in tests[:1] if inside else tests:
            rows = [row for row, value in enumerate(values) if value is not None and test(rank(value), bound)]
            yield f"{each.place} {operator} {literal(known[bound])}", rows
    yield f"{each.place} IS NULL", [row for row, value in enumerate(values) if value is None]
    yield f"{each.place} IS NOT NULL", [row for row, value in enumerate(values) if value is not None]


def batches() -> Iterator[pa.RecordBatch]:
    """Yield the rows of each file. In nested columns, null is sometimes the whole group."""
    for number in range(3):
        ids = pa.array(range(3 * number, 3 * number + 3), pa.int32())
        flat = {each.name: pa.array(each.files[number], each.arrow) for each in COLUMNS}
        names = [each.place.removeprefix("s.") for each in NESTED]
        group = pa.StructArray.from_arrays([flat[name] for name in names], names)
        yield pa.record_batch({"row": ids, **flat, "s": group})


def schema() -> list[Mapping[str, Any]]:
    """Return the columns as a table's metadata has them."""
    fields = [column(each.place.removeprefix("s."), each.kind) for each in NESTED]
    nested = column("s", {"type": "struct", "fields": fields})
    return [column("row", "integer"), *(column(each.name, each.kind) for each in COLUMNS), nested]


def make(root: Path) -> None:
    """Make the table, with three files in one commit."""
    said = metadata(schema(), properties={"delta.dataSkippingNumIndexedCols": "-1"})
    put(root, 0, info(), protocol(["timestampNtz"], ["timestampNtz"]), said)
    commit(root, 1, *(written(root, rows) for rows in batches()))


def _replace(tree: dict[str, Any], lowest: Mapping[str, Any], before: str = "") -> None:
    for name, value in tree.items():
        if isinstance(value, dict):
            _replace(value, lowest, f"{before}{name}.")
        else:
            tree[name] = lowest[before + name]


def highest(each: Filtered, judge: str) -> str:
    """Return a filter for the highest value of a column."""
    top = max((value for file in each.files for value in file if value is not None), key=rank)
    return f"{each.place} = {each.literals.get(judge, each.literal)(top)}"
