"""Types with their values, tables of one column of them, and readers that filter by it.

Values are as the files store them: a time is a number of its unit, a date one of days. So values that Python
has no objects for can be asked for too.
"""

import importlib.util
import math
import operator
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.transforms import IdentityTransform

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import Published
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake, local
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.iceberg_duck import duck

Lake = PaimonLake | IcebergLake | DeltaLake
FORMATS: Final = ("paimon", "iceberg", "delta")
LAKES: Final[Mapping[str, Mapping[str, str]]] = {
    "paimon": {"metadata.stats-mode": "full"},
    "paimon-orc": {"metadata.stats-mode": "full", "file.format": "orc"},
    "paimon-avro": {"metadata.stats-mode": "full", "file.format": "avro"},
    "iceberg": {},
    "delta": {},
}
"""Properties of the tables of each format, with the formats of the files."""
EACH_LAKE: Final = [pytest.param(name, marks=pytest.mark.matrix if "-" in name else ()) for name in LAKES]
"""Names of these tables; files that are no Parquet belong to the matrix."""
YEAR_0: Final = -719_528
"""Days: 0000-01-01, which Python has no date for."""
NINES: Final = 2_932_896
"""Days: 9999-12-31."""
DAY: Final = 86_400
NEW_YORK: Final = 5 * 3_600
"""Seconds: 9999-12-31 in New York ends in a year that Python has no time for."""
NOON: Final = 1_785_585_600
"""Seconds: 2026-08-01T12:00:00Z."""


@dataclass(frozen=True)
class Kind:
    """A type of a column."""

    name: str
    arrow: pa.DataType
    values: Sequence[Any]
    """Rising."""
    near: Callable[[Any], tuple[Any, Any]] | None = None
    """Returns the values just below and just above one; None: there are none."""
    formats: tuple[str, ...] = FORMATS

    def array(self, values: Iterable[Any]) -> pa.Array:
        """Return values as rows have them."""
        return stored(list(values), self.arrow)


def stored(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values of a type from what files store."""
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, kind)


def whole(value: int) -> tuple[int, int]:
    return value - 1, value + 1


def of_scale(scale: int) -> Callable[[Decimal], tuple[Decimal, Decimal]]:
    step = Decimal(1).scaleb(-scale)
    return lambda value: (value - step, value + step)


def of_float(pattern: str) -> Callable[[float], tuple[float, float]]:
    """Return the neighbours among the floats of a format of `struct`."""
    whole = {"f": "i", "d": "q"}[pattern]

    def moved(value: float, step: int) -> float:
        bits = struct.unpack(whole, struct.pack(pattern, value))[0]
        found: float = struct.unpack(pattern, struct.pack(whole, bits + (step if value > 0 else -step)))[0]
        return found

    def near(value: float) -> tuple[float, float]:
        if math.isinf(value) or value == 0:
            return value, value
        return moved(value, -1), moved(value, 1)

    return near


def of_text(value: str) -> tuple[str, str]:
    below = value[:-1] if value else value
    return below, value + "\0"


def of_bytes(value: bytes) -> tuple[bytes, bytes]:
    return value[:-1], value + b"\0"


def of_nanos(value: int) -> tuple[int, int]:
    """Return the next microseconds: Python, and so pypaimon, has nothing between them."""
    return (value - 1) // 1_000 * 1_000, (value // 1_000 + 1) * 1_000


def moments(per_second: int) -> list[int]:
    """Times of a unit, with the sentinels of both ends, and with the last digit that the unit has."""
    return [
        YEAR_0 * DAY * per_second,
        -62_135_596_800 * per_second - 1,
        -1,
        NOON * per_second,
        NOON * per_second + 123_456_789 * per_second // 10**9,
        (NINES * DAY + DAY - 1) * per_second + (per_second - 1),
        (NINES * DAY + DAY + NEW_YORK) * per_second,
    ]


NANOS: Final = [-9_000_000_000_000_000_123, -1, NOON * 10**9, NOON * 10**9 + 123_456_789, (1 << 63) - 1_002]
LONG: Final = "l" * 32
D: Final = Decimal
KINDS: Final = (
    Kind("tiny", pa.int8(), [-128, -1, 5, 127], None, ("paimon", "delta")),
    Kind("small", pa.int16(), [-32767, -1, 5, 32766], whole, ("paimon", "delta")),
    Kind("int", pa.int32(), [-(1 << 31) + 1, -1, 24, (1 << 31) - 2], whole),
    Kind("long", pa.int64(), [-(1 << 63) + 1, -(1 << 53) - 1, (1 << 53) + 1, (1 << 63) - 2], whole),
    Kind("bool", pa.bool_(), [False, True]),
    Kind("float", pa.float32(), [-math.inf, -2.5, -0.0, 1.25, 2.0**100, math.inf], of_float("f")),
    Kind("double", pa.float64(), [-1.7e308, -0.0, 0.1, 0.30000000000000004, math.inf], of_float("d")),
    Kind("money", pa.decimal128(5, 2), [D("-999.98"), D("-0.01"), D("0.10"), D("999.98")], of_scale(2)),
    Kind(
        "price", pa.decimal128(15, 2), [D("-7.25"), D("2.00"), D("23.99"), D("9999999999999.98")], of_scale(2)
    ),
    Kind("count", pa.decimal128(18, 0), [D(-(10**17)), D(0), D(10**17), D(10**18 - 2)], of_scale(0)),
    Kind("wide", pa.decimal128(38, 10), [D("-1e27"), D("1e-10"), D("12345678901234567890.5")], of_scale(10)),
    Kind(
        "text",
        pa.string(),
        ["", "a", LONG + "b", LONG + "\U0001f600", "\ud7ff" * 40, "\U0010ffff" * 40],
        of_text,
    ),
    Kind("letter", pa.string(), ["m" * 400_000, "n" * 400_000 + "z"], of_text),
    Kind("bytes", pa.binary(), [b"", b"\0\x01", b"a" * 40, b"\xff" * 20, b"\xff" * 40 + b"\0"], of_bytes),
    Kind("date", pa.date32(), [YEAR_0, -719_163, -1, 20_000, NINES, NINES + 1], whole),
    Kind("moment", pa.timestamp("us", "UTC"), moments(10**6), whole),
    Kind("local", pa.timestamp("us"), moments(10**6), whole),
    Kind("seconds", pa.timestamp("s"), moments(1), whole, ("paimon",)),
    Kind("millis", pa.timestamp("ms", "UTC"), moments(10**3), whole, ("paimon",)),
    Kind("nanos", pa.timestamp("ns"), NANOS, of_nanos, ("paimon",)),
    Kind("zoned_nanos", pa.timestamp("ns", "UTC"), NANOS, of_nanos, ("paimon",)),
    Kind("time", pa.time32("ms"), [0, 1, 43_200_001, 86_399_999], None, ("paimon",)),
    Kind("clock", pa.time64("us"), [0, 1, 43_200_000_001, 86_399_999_999], None, ("iceberg",)),
    Kind("fixed", pa.binary(4), [b"\0\0\0\0", b"a\0\0\0", b"\xff\xff\xff\xff"], None, ("iceberg",)),
)


def is_refused(lake: str, kind: Kind, value: Any) -> bool:
    """Return True for a value that the writer refuses by the name of its column."""
    if not pa.types.is_temporal(kind.arrow) or pa.types.is_time(kind.arrow):
        return False
    if lake == "paimon-avro":
        return _has_nanos(kind) or not _has_python(kind, value)
    if lake == "paimon-orc" and pa.types.is_timestamp(kind.arrow):
        per_unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.arrow.unit]
        return bool(abs(value * per_unit) >= 1 << 63)
    return False


def _has_nanos(kind: Kind) -> bool:
    return bool(pa.types.is_timestamp(kind.arrow) and kind.arrow.unit == "ns")


def _has_python(kind: Kind, value: Any) -> bool:
    try:
        kind.array([value])[0].as_py()
    except OverflowError:
        return False
    return True


def table(
    lake: str,
    root: Path,
    schema: pa.Schema,
    properties: Mapping[str, str] | None = None,
    keys: Sequence[str] = (),
) -> Lake:
    """Make an empty table, partitioned by the values of some columns."""
    given = {**LAKES[lake], **(properties or {})}
    if lake == "iceberg":
        fields: Schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
        sources = [(fields.find_field(key).field_id, key) for key in keys]
        spec = PartitionSpec(
            *(PartitionField(source, 1_000 + source, IdentityTransform(), key) for source, key in sources)
        )
        return IcebergLake(root, schema=fields, spec=spec, properties=given)
    return (PaimonLake if lake.startswith("paimon") else DeltaLake)(root, schema, keys, given)


def write(made: Lake, files: Iterable[pa.RecordBatch]) -> list[FilesWritten]:
    """Write each batch as a file of its own, and commit all of them at once."""
    events = [made.write(rows) for rows in files]
    stream = Stream(made)
    outcome = stream.publish(1, stream.head(1), stream.committer.check(events))
    assert isinstance(outcome, Published), outcome
    return events


Reader = Callable[[Lake, Kind, str, Any], list[int] | None]
"""Returns the rows for which a comparison (`=`, `<` or `>`) of the column `v` with a value holds.

None: its language has no such value.
"""


def by_pypaimon(made: Lake, kind: Kind, sign: str, value: Any) -> list[int] | None:
    assert isinstance(made, PaimonLake)
    builder = made.table.new_read_builder()
    predicates = builder.new_predicate_builder()
    make = {"=": predicates.equal, "<": predicates.less_than, ">": predicates.greater_than}[sign]
    is_orc = made.table.table_schema.options.get("file.format") == "orc"
    if not _has_python(kind, value) or (_has_nanos(kind) and value % 1_000):
        return None
    if is_orc and (pa.types.is_time(kind.arrow) or is_refused("paimon-orc", kind, value)):
        return None
    builder.with_filter(make("v", kind.array([value])[0].as_py()))
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(found["row"].to_pylist())


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@cache
def duck_of_delta() -> duckdb.DuckDBPyConnection:
    """Return DuckDB with its Delta reader, which is built on another library than deltalake's writer."""
    found = importlib.util.find_spec("duckdb_extension_delta")
    assert found is not None
    assert found.origin is not None
    (extension,) = Path(found.origin).parent.rglob("*.duckdb_extension")
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    return connection


def by_duckdb(made: Lake, kind: Kind, sign: str, value: Any) -> list[int] | None:
    if isinstance(made, IcebergLake):
        connection, source = duck(), f"iceberg_scan('{local(made.metadata.location)}')"
    else:
        connection, source = duck_of_delta(), f"delta_scan('{made.root}')"
    query = f"SELECT row FROM {source} WHERE v {sign} {_duck(kind.arrow, value)}"  # noqa: S608
    return sorted(row for (row,) in connection.execute(query).fetchall())


def _duck(kind: pa.DataType, value: Any) -> str:
    """Return a literal of DuckDB."""
    if pa.types.is_timestamp(kind):
        return f"make_timestamp({value}::BIGINT)" + ("::TIMESTAMP AT TIME ZONE 'UTC'" if kind.tz else "")
    if pa.types.is_date32(kind):
        return f"(DATE '1970-01-01' + ({value})::INTEGER)"
    if pa.types.is_time(kind):
        return f"(TIME '00:00:00' + to_microseconds({value}))"
    if pa.types.is_decimal(kind):
        return f"'{value:f}'::DECIMAL({kind.precision},{kind.scale})"
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if isinstance(value, float):
        return f"'{value!r}'::{'FLOAT' if kind == pa.float32() else 'DOUBLE'}"
    if isinstance(value, str):
        return "||".join(f"chr({ord(each)})" if each == "\0" else quoted(each) for each in _runs(value))
    return str(value)


def _runs(text: str) -> list[str]:
    """Return a text in parts; a part is a NUL, which no literal of SQL has, or has none."""
    start, *rest = text.split("\0")
    return [start, *(part for each in rest for part in ("\0", each))]


READERS: Final[Mapping[str, Reader]] = {
    "paimon": by_pypaimon,
    "paimon-orc": by_pypaimon,
    "paimon-avro": by_pypaimon,
    "iceberg": by_duckdb,
    "delta": by_duckdb,
}


def questions(kind: Kind) -> list[tuple[str, Any, list[int]]]:
    """Return comparisons at, just below and just above each value, with the numbers of those that match."""
    asked: list[tuple[str, Any]] = []
    for value in kind.values:
        below, above = kind.near(value) if kind.near is not None else (value, value)
        asked += [("=", value), (">", below), ("<", above)]
    asked += [("<", kind.values[0]), (">", kind.values[-1])]
    tests = {"=": operator.eq, "<": operator.lt, ">": operator.gt}
    return [
        (sign, bound, [number for number, value in enumerate(kind.values) if tests[sign](value, bound)])
        for sign, bound in dict.fromkeys(asked)
    ]
