"""Entries that lie about their files never reach a manifest."""

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA
from pypaimon.schema.data_types import AtomicType, DataField, RowType
from pypaimon.table.row.generic_row import GenericRow, GenericRowDeserializer, GenericRowSerializer

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.paimon.entries import Statistics
from sluicegate.lakes.port import Absent, BadFiles
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.paimon_lake import PaimonLake


def spoiled(event: FilesWritten, change: Callable[[bytes], bytes]) -> FilesWritten:
    (file,) = event.files
    return event.model_copy(update={"files": (file.model_copy(update={"metadata": change(file.metadata)}),)})


def edited(event: FilesWritten, **changes: Any) -> FilesWritten:
    """The event with an entry that says something else; keys of _FILE are looked up there.

    A change of several fields of a record changes these alone.
    """

    def edit(raw: bytes) -> bytes:
        record = fastavro.schemaless_reader(BytesIO(raw), MANIFEST_ENTRY_SCHEMA)
        assert isinstance(record, dict)
        for key, value in changes.items():
            inside = record["_FILE"] if key in record["_FILE"] else record
            inside[key] = {**inside[key], **value} if isinstance(value, dict) else value
        out = BytesIO()
        fastavro.schemaless_writer(out, MANIFEST_ENTRY_SCHEMA, record)
        return out.getvalue()

    return spoiled(event, edit)


@pytest.mark.parametrize(
    "changes",
    [
        {"_KIND": 1},
        {"_VERSION": 3},
        {"_BUCKET": 1},
        {"_TOTAL_BUCKETS": 4},
        {"_ROW_COUNT": 5},
        {"_FILE_SIZE": 5},
        {"_SCHEMA_ID": 5},
        {"_LEVEL": 1},
        {"_FILE_NAME": "other.parquet"},
        {"_FILE_NAME": "../../escape.parquet"},
        {"_EXTERNAL_PATH": "file:///etc/passwd"},
        {"_EXTRA_FILES": ["extra"]},
        {"_FIRST_ROW_ID": 0},
        {"_MIN_KEY": b"xx"},
        {"_MAX_KEY": b""},
        {"_KEY_STATS": {"_MIN_VALUES": b"\0\1"}},
        {"_KEY_STATS": {"_NULL_COUNTS": [0]}},
        {"_DELETE_ROW_COUNT": 2},
        {"_EMBEDDED_FILE_INDEX": b"garbage"},
        {"_FILE_SOURCE": 7},
        {"_WRITE_COLS": ["nope"]},
        {"_WRITE_COLS_SEQUENCES": [1]},
        {"_MIN_SEQUENCE_NUMBER": 5},
        {"_MIN_SEQUENCE_NUMBER": -1},
        {"_VALUE_STATS": {"_MIN_VALUES": b"\0\1"}},
        {"_VALUE_STATS": {"_MIN_VALUES": b"", "_MAX_VALUES": b""}},
        {"_VALUE_STATS": {"_NULL_COUNTS": []}},
        {"_VALUE_STATS": {"_NULL_COUNTS": [2]}},
        {"_VALUE_STATS": {"_NULL_COUNTS": [1]}},
        {"_VALUE_STATS_COLS": []},
        {"_VALUE_STATS_COLS": ["nope"]},
        {"_VALUE_STATS_COLS": ["id", "id"]},
    ],
    ids=str,
)
def test_an_entry_that_contradicts_its_event_is_refused(lake: PaimonLake, changes: dict[str, Any]) -> None:
    bad = edited(lake.event([1]), **changes)
    stream = Stream(lake)
    stream.refuses(bad)
    assert stream.ask(1) == Absent(None)


@pytest.mark.parametrize(
    "partition",
    [
        # The fields of a row with the text "ab": arity, header, slot, and the part for longer values.
        b"\0\0\0\1" + b"\0" * 8 + b"ab\0\0\0\0\0\x82" + b"\0",
        b"\0\0\0\2" + b"\0" * 8 + b"ab\0\0\0\0\0\x82",
        b"\0\0\0\1" + b"\1" + b"\0" * 7 + b"ab\0\0\0\0\0\x82",
        b"\0\0\0\1" + b"\0" * 8 + b"ab\0\0\0\0x\x82",
        b"\0\0\0\1" + b"\0" * 8 + b"\2\0\0\0\x10\0\0\0" + b"ab\0\0\0\0\0\0",
        b"",
    ],
    ids=["longer", "arity", "kind", "rest of a slot", "not in the slot", "empty"],
)
def test_another_form_of_a_partition_is_refused(tmp_path: Path, partition: bytes) -> None:
    lake = PaimonLake(tmp_path, pa.schema([("id", pa.int64()), ("p", pa.string())]), ["p"])
    event = lake.write(pa.record_batch({"id": pa.array([1]), "p": ["ab"]}))
    lake.committer().check([event])
    with pytest.raises(BadFiles, match="partition"):
        lake.committer().check([edited(event, _PARTITION=partition)])


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:-1],
        lambda raw: raw + b"\0",
        lambda raw: raw * 2,
        lambda raw: b"\xff" * 40,
        # The first number with a byte more.
        lambda raw: bytes([raw[0] | 0x80, 0]) + raw[1:],
    ],
)
def test_a_malformed_entry_is_refused(lake: PaimonLake, change: Callable[[bytes], bytes]) -> None:
    bad = spoiled(lake.event([1]), change)
    Stream(lake).refuses(bad)


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_no_bytes_break_the_check(lake: PaimonLake, data: st.DataObject) -> None:
    event = lake.event([1])
    raw = bytearray(event.files[0].metadata)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        lake.committer().check([spoiled(event, lambda _: bytes(raw))])
    except BadFiles:
        return


COLUMNS = [
    DataField(number, name, AtomicType(kind))
    for number, (name, kind) in enumerate(
        {
            "bool": "BOOLEAN",
            "tiny": "TINYINT",
            "small": "SMALLINT",
            "int": "INT",
            "long": "BIGINT",
            "float": "FLOAT",
            "double": "DOUBLE",
            "money": "DECIMAL(5, 2)",
            "wide": "DECIMAL(38, 10)",
            "text": "STRING",
            "letters": "CHAR(3)",
            "bytes": "VARBINARY(20)",
            "date": "DATE",
            "time": "TIME(3)",
            "millis": "TIMESTAMP(3)",
            "moment": "TIMESTAMP(6)",
            "zoned": "TIMESTAMP(9) WITH LOCAL TIME ZONE",
        }.items()
    )
]
NOON = datetime.datetime(2026, 8, 1, 12, 0, 0, 123_456)
LOWER = [
    *(False, -128, -1, -(1 << 31), -(1 << 63), -1.5, -math.inf, Decimal("-999.99"), Decimal("-1e27")),
    *("", "abc", b"", datetime.date(1, 1, 1), datetime.time(0), datetime.datetime(1, 1, 1)),
    *(NOON, datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)),
]
UPPER = [
    *(True, 127, 5, (1 << 31) - 1, (1 << 63) - 1, 2.5, math.inf, Decimal("999.99"), Decimal("1e-10")),
    *("z" * 8, "\ud7ff", b"\xff" * 20, datetime.date(9999, 12, 31), datetime.time(23, 59, 59, 999_000)),
    *(datetime.datetime(9999, 12, 31, 23, 59, 59, 999_000), NOON),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC),
]


def encoded(values: list[Any]) -> bytes:
    raw: bytes = GenericRowSerializer.to_bytes(GenericRow(values, COLUMNS))
    return raw


def stats(lower: bytes, upper: bytes, nulls: list[int | None] | None = None) -> dict[str, Any]:
    return {"_MIN_VALUES": lower, "_MAX_VALUES": upper, "_NULL_COUNTS": nulls}


def test_bounds_of_every_type_are_read_and_compared() -> None:
    examined = Statistics(COLUMNS)
    for lower, upper in ((LOWER, UPPER), (LOWER, LOWER), (UPPER, UPPER)):
        assert examined.problem(stats(encoded(lower), encoded(upper), [0] * 17), 3) is None
    nothing = [None] * len(COLUMNS)
    assert examined.problem(stats(encoded(nothing), encoded(nothing), [3, None, *[1] * 15]), 3) is None
    for at, column in enumerate(COLUMNS):
        high, low = ([*nothing[:at], values[at], *nothing[at + 1 :]] for values in (UPPER, LOWER))
        problem = examined.problem(stats(encoded(high), encoded(low)), 3)
        expected = f"has a lower bound above the upper one for the column {column.name}"
        assert problem == (None if UPPER[at] == LOWER[at] else expected)
    inside = Statistics([DataField(0, "s", RowType(True, []))])
    some = GenericRowSerializer.to_bytes(GenericRow([1], [COLUMNS[3]]))
    assert "s: a column of its type has no bounds" in str(inside.problem(stats(some, some), 3))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_bounds_that_pass_the_check_are_read_by_the_library(data: st.DataObject) -> None:
    raw = bytearray(encoded(data.draw(st.sampled_from([LOWER, UPPER]))))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    try:
        GenericRowDeserializer.from_bytes(bytes(raw), COLUMNS)
    except Exception:
        assert Statistics(COLUMNS).problem(stats(bytes(raw), bytes(raw)), 3) is not None
