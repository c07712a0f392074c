"""Footers that the Parquet library must not see, and files that do not fit a table."""

import base64
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest

from sluicegate.events.models import FileInfo
from sluicegate.lakes import footers
from sluicegate.lakes.footers import STRUCT, Reader, Typed
from sluicegate.lakes.parquet import FileColumns
from sluicegate.lakes.port import BadFiles
from tests.contracts.lakes.harness import Stream
from tests.lakes.plain_files import PaimonPlace, event

I16, I32, I64, BINARY, LIST = 4, 5, 6, 8, 9
BYTE_ARRAY, FIXED, INT32 = 6, 7, 1


def varint(number: int) -> bytes:
    found = b""
    while number >= 0x80:
        found, number = found + bytes([number & 0x7F | 0x80]), number >> 7
    return found + bytes([number])


def zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


@pytest.mark.parametrize(
    "message",
    [
        bytes([I32]) + zigzag(65_536 + 12) + zigzag(1) + b"\0",
        bytes([0x10 | I32]) + zigzag(1 << 32) + b"\0",
        bytes([0x10 | I16]) + zigzag(1 << 15) + b"\0",
        bytes([0x10 | I64]) + zigzag(1 << 63) + b"\0",
    ],
)
def test_a_number_that_the_library_would_cut_off_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match="a number has more than"):
        Reader(message).message()


def test_the_widest_numbers_are_read() -> None:
    numbers = [(I16, -(1 << 15)), (I32, (1 << 31) - 1), (I64, -(1 << 63))]
    message = b"".join(bytes([0x10 | kind]) + zigzag(number) for kind, number in numbers) + b"\0"
    assert [each.value for each in Reader(message).message().values()] == [number for _, number in numbers]


def test_a_footer_of_very_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footers, "_MOST_VALUES", 1_000)
    message = bytes([0x10 | LIST, 0xF0 | STRUCT]) + varint(1_001) + b"\0" * 1_001 + b"\0"
    with pytest.raises(ValueError, match="Write fewer row groups"):
        Reader(message).message()


class Keys(encryption.KmsClient):  # type: ignore[misc]
    """Keys that are no secret."""

    def __init__(self, _: object) -> None:
        encryption.KmsClient.__init__(self)

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)


def test_encrypted_columns_with_a_plain_footer_are_named(tmp_path: Path) -> None:
    wanted = encryption.EncryptionConfiguration("key", column_keys={"key": ["v"]}, plaintext_footer=True)
    keys = encryption.CryptoFactory(Keys).file_encryption_properties(encryption.KmsConnectionConfig(), wanted)
    file = tmp_path / "rows.parquet"
    rows = pa.table({"id": [1], "v": [1]})
    with pq.ParquetWriter(file, rows.schema, encryption_properties=keys) as writer:
        writer.write_table(rows)
    raw = file.read_bytes()
    length = int.from_bytes(raw[-8:-4], "little")
    with pytest.raises(ValueError, match="columns of the file are encrypted"):
        footers.check_footer(raw[-8 - length : -8])


@pytest.mark.parametrize(
    ("fields", "kind", "has_orders", "refused"),
    [
        ((1, 2), BYTE_ARRAY, True, True),
        ((1, 2), FIXED, True, True),
        ((1, 2, 5, 6), BYTE_ARRAY, False, True),
        ((1, 2, 5, 6), BYTE_ARRAY, True, False),
        ((5, 6), BYTE_ARRAY, False, False),
        ((1, 2), INT32, True, False),
    ],
)
def test_bounds_of_texts_without_a_known_order_are_refused(
    fields: tuple[int, ...], kind: int, has_orders: bool, refused: bool
) -> None:
    statistics = {field: Typed(BINARY, b"a") for field in fields}
    if not refused:
        footers._check_order(statistics, kind, has_orders=has_orders)
        return
    with pytest.raises(ValueError, match="Write min_value and max_value with column orders, or no bounds"):
        footers._check_order(statistics, kind, has_orders=has_orders)


def nested(outer: bool, inner: bool) -> pa.Schema:
    """A column of structs; each is True if it may be null."""
    return pa.schema([pa.field("s", pa.struct([pa.field("x", pa.int32(), inner)]), outer)])


@pytest.mark.parametrize("listed", [False, True])
def test_a_nested_column_that_may_be_null_does_not_fit_one_that_may_not(tmp_path: Path, listed: bool) -> None:
    def schema(outer: bool, inner: bool) -> pa.Schema:
        if not listed:
            return nested(outer, inner)
        return pa.schema([pa.field("s", pa.list_(pa.field("element", pa.int32(), inner)), outer)])

    def check(table: pa.Schema, file: pa.Schema) -> None:
        value = [[1]] if listed else [{"x": 1}]
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"s": pa.array(value, file.field("s").type)}, schema=file), path)
        FileColumns(table, 0).check("a.parquet", pq.read_metadata(path))

    check(schema(True, True), schema(True, True))
    check(schema(True, True), schema(False, False))
    for table, file in (((False, True), (True, False)), ((True, False), (False, True))):
        with pytest.raises(BadFiles, match="must not be null, and the file"):
            check(schema(*table), schema(*file))


def test_a_folder_with_the_name_of_a_file_is_refused(tmp_path: Path) -> None:
    table = PaimonPlace(tmp_path)
    path = f"{table.folder}data-0-folder.parquet"
    (table.root / path).mkdir(parents=True)
    size = (table.root / path).stat().st_size
    file = FileInfo(path=path, size=size, rows=1, partition={"region": "EU"})
    with pytest.raises(BadFiles, match=r"Is a directory\. Write a file there that coordinators"):
        Stream(table.lake).committer.check([event(table, file)])


FLAG = (
    b"\x15\x04\x19,5\x00\x18\x06schema\x15\x02\x00\x15\x00%\x02\x18\x01f\x00\x16\x04\x19\x1c\x19\x1c&\x00\x1c\x15\x00"
    b"\x19%\x06\x00\x19\x18\x01f\x15\x00\x16\x04\x16T\x16T&\x08<\x18\x01\x01\x18\x01\x01\x16\x02(\x01\x01\x18\x01\x01"
    b"\x11\x11\x00\x19\x1c\x15\x00\x15\x00\x15\x02\x00<)\x06\x19&\x02\x02\x00\x00\x00\x16T\x16\x04&\x08\x16T\x00"
    b"( parquet-cpp-arrow version 26.0.1\x19\x1c\x1c\x00\x00\x00"
)
"""The footer of pyarrow 26 for a column of booleans that may be null, with statistics of sizes."""
NUMBERS = (
    b"\x15\x04\x19L5\x00\x18\x06schema\x15\x02\x005\x02\x18\x01l\x15\x02\x15\x06L<\x00\x00\x005\x04\x18\x04list"
    b"\x15\x02\x00\x15\x02%\x02\x18\x07element\x00\x16\x04\x19\x1c\x19\x1c&\x00\x1c\x15\x02\x19%\x06\x00\x198\x01l"
    b"\x04list\x07element\x15\x00\x16\x04\x16H\x16H&\x08I\x1c\x15\x00\x15\x00\x15\x02\x00<)&\x04\x00\x19F\x00\x02"
    b"\x00\x02\x00\x00\x00\x16H\x16\x04&\x08\x16H\x00( parquet-cpp-arrow version 26.0.1\x19\x1c\x1c"
    b"\x00\x00\x00"
)
"""The same for a column of lists of numbers."""


# Each of these ends the process of pyarrow 26, which checks them in code that cannot raise.
@pytest.mark.parametrize(
    ("footer", "part", "changed", "problem"),
    [
        (
            FLAG,
            b"\x19&\x02\x02\x00",
            b"\x196\x02\x02\x00\x00",
            "definition levels has 3 entries instead of 2",
        ),
        (FLAG, b"\x19&\x02\x02\x00", b"\x19\x16\x04\x00", "definition levels has 1 entries instead of 2"),
        (FLAG, b")\x06\x19&", b")&\x04\x00\x19&", "repetition levels has 2 entries instead of 1"),
        (NUMBERS, b")&\x04\x00", b")6\x04\x00\x00", "repetition levels has 3 entries instead of 2"),
        (NUMBERS, b")&\x04\x00", b")\x16\x04", "repetition levels has 1 entries instead of 2"),
        (
            NUMBERS,
            b"\x19F\x00\x02\x00\x02",
            b"\x196\x00\x02\x02",
            "definition levels has 3 entries instead of 4",
        ),
        (FLAG, b"%\x02\x18\x01f", b"%\x00\x18\x01f", "definition levels has 2 entries instead of 1"),
        (FLAG, b"%\x02\x18\x01f", b"%\x06\x18\x01f", "no repetition that Parquet has"),
        (FLAG, b"<)\x06\x19", b"<\x16\x02\x19\x06\x19", "without texts or bytes has the size of its texts"),
        (FLAG, b"f\x15\x00\x16", b"f\x15\x10\x16", "no compression codec that Parquet has"),
    ],
)
def test_a_footer_that_ends_the_process_of_a_newer_library_is_refused(
    footer: bytes, part: bytes, changed: bytes, problem: str
) -> None:
    assert footer.count(part) == 1
    with pytest.raises(ValueError, match=problem):
        footers.check_footer(footer.replace(part, changed))


@pytest.mark.parametrize(
    ("children", "problem"),
    [(0, "more elements than its groups"), (2, "a group of the schema lacks children")],
)
def test_a_schema_whose_groups_have_other_children_is_refused(children: int, problem: str) -> None:
    changed = FLAG.replace(b"schema\x15\x02", b"schema\x15" + zigzag(children))
    with pytest.raises(ValueError, match=problem):
        footers.check_footer(changed)


@pytest.mark.slow
def test_a_very_deep_schema_is_refused() -> None:
    """50,000 levels end the process of pyarrow 19."""

    def nested_in(levels: int) -> bytes:
        group = b"5\x00\x18\x01g\x15\x02\x00"
        elements = bytes([0x19, 0xF0 | STRUCT]) + varint(2 + levels)
        return FLAG.replace(b"\x19,", elements, 1).replace(
            b"\x15\x00%\x02", group * levels + b"\x15\x00%\x02"
        )

    footers.check_footer(nested_in(99))
    with pytest.raises(ValueError, match="nested in more than 100 levels"):
        footers.check_footer(nested_in(50_000))


@pytest.mark.parametrize(
    ("wanted", "found", "difference"),
    [
        (pa.binary(4), pa.binary(5), r"FIXED_LEN_BYTE_ARRAY\(5\), not FIXED_LEN_BYTE_ARRAY\(4\)"),
        (pa.int64(), pa.uint64(), r"INT64 Int\(bitWidth=64, isSigned=False\), not INT64\."),
        (
            pa.timestamp("us", "UTC"),
            pa.timestamp("us"),
            r"INT64 Timestamp\(isAdjustedToUTC=False.*, not INT64 Timestamp\(isAdjustedToUTC=True",
        ),
        (pa.decimal128(5, 2), pa.decimal128(5, 1), r".*Decimal\(precision=5, scale=1\), not .*scale=2\)"),
    ],
    ids=str,
)
def test_a_refusal_names_the_difference(
    tmp_path: Path, wanted: pa.DataType, found: pa.DataType, difference: str
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"v": pa.nulls(1, found)}), path)
    with pytest.raises(BadFiles, match=f"the column v is {difference}"):
        FileColumns(pa.schema([("v", wanted)]), 0).check("a.parquet", pq.read_metadata(path))
