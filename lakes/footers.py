"""Footers of Parquet files without metadata of a table format: strict checks of their bytes, then reading.

Such a footer comes from outside, and the Parquet library ends the process for some malformed ones. So a
coordinator reads the bytes first, with a reader that accepts less than the library does.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sluicegate.events.models import FileInfo
from sluicegate.lakes.port import BadFiles, LakeUnavailable
from sluicegate.lakes.storage import Range, Storage
from sluicegate.texts import counted

if TYPE_CHECKING:
    import pyarrow.parquet as pq


# Strict reading of Thrift's compact protocol, as Parquet footers have it.
#
# The Parquet library ends the process for some malformed footers. So what it would stumble over is looked
# at before, by a reader that takes less: each struct has its fields in the order of their ids, and none
# twice.

_TRUE, _FALSE, _BYTE, _I32, _I64, _DOUBLE, _BINARY = 1, 2, 3, 5, 6, 7, 8
_LIST, _SET, _MAP, STRUCT = 9, 10, 11, 12
"""Types of values."""
_NUMBERS: Final = {4: 16, 5: 32, 6: 64}
"""Bits of a number by its type. The Parquet library cuts off what is above, so larger ones are refused."""
_FIELD_BITS: Final = 16
_MOST_VALUES: Final = 1_000_000
"""Values of a message, each of which takes memory and time."""
_DEEPEST: Final = 100
"""Levels of nested values, and of a schema. The library follows both on its stack."""
_LONGEST_NUMBER: Final = 10
"""Bytes of a number."""


class Typed(NamedTuple):
    """A value with its type on the wire."""

    kind: int
    value: Any
    """A number, bytes, a list of values of one type, or a struct: values by field id."""


class Reader:
    """Reader of one message. All methods raise ValueError for bytes that are not in the strict form."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._left = _MOST_VALUES

    def message(self, followed: int | None = None) -> dict[int, Typed]:
        """Return the struct that the bytes are, to their end.

        `followed`: with this field, other bytes may follow.
        """
        found = self._struct(0)
        if self._at != len(self._data) and followed not in found:
            raise ValueError("bytes follow its end")
        return found

    def _byte(self) -> int:
        if self._at >= len(self._data):
            raise ValueError("it ends too early")
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, length: int) -> bytes:
        if length > len(self._data) - self._at:
            raise ValueError("it ends too early")
        self._at += length
        return self._data[self._at - length : self._at]

    def _varint(self) -> int:
        found = 0
        for place in range(_LONGEST_NUMBER):
            byte = self._byte()
            found |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return found
        raise ValueError("a number is too long")

    def _number(self, bits: int) -> int:
        raw = self._varint()
        if raw >> bits:
            raise ValueError(f"a number has more than {bits} bits")
        return raw >> 1 ^ -(raw & 1)

    def _struct(self, depth: int) -> dict[int, Typed]:
        found: dict[int, Typed] = {}
        last = 0
        while header := self._byte():
            kind, step = header & 0x0F, header >> 4
            field = last + step if step else self._number(_FIELD_BITS)
            if field <= last:
                raise ValueError("the fields of a struct are not in their order")
            last = field
            found[field] = Typed(kind, self._value(kind, depth + 1))
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"it has more than {_MOST_VALUES} values. Write fewer row groups")
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind == STRUCT:
            return self._struct(depth)
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _BYTE:
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        raise ValueError(f"a value has the unknown type {kind}")

    def _list(self, depth: int) -> list[Typed]:
        header = self._byte()
        kind, count = header & 0x0F, header >> 4
        count = self._varint() if count == 15 else count
        if count > len(self._data) - self._at:
            raise ValueError("it ends too early")
        if kind in (_TRUE, _FALSE):
            return [Typed(kind, self._byte()) for _ in range(count)]
        return [Typed(kind, self._value(kind, depth + 1)) for _ in range(count)]


# Checks of the bytes of a Parquet footer, before the Parquet library reads them.
#
# Some footers end the process of the library. They have bounds of another length than the type of their
# column, or one bound without the other. They have histograms of levels that do not fit the nesting of
# their column, a codec that Parquet lacks, or a very deep schema. A footer comes from outside, and must not
# end a coordinator.

_SCHEMA, _GROUPS, _ORDERS, _ENCRYPTION = 2, 4, 7, 8
"""Fields of a footer."""
_TYPE, _TYPE_LENGTH, _REPETITION, _CHILDREN = 1, 2, 3, 5
"""Fields of an element of the schema."""
_COLUMNS: Final = 1
_META_DATA: Final = 3
_CHUNK_TYPE, _CODEC, _STATISTICS, _SIZES = 1, 4, 12, 16
_PAIRS: Final = ((1, 2), (5, 6))
"""Fields of the upper and the lower bound in statistics: of older writers, and of others."""
_UNENCODED: Final = 1
_HISTOGRAMS: Final = ((2, "repetition"), (3, "definition"))
"""Fields of the statistics of sizes: the bytes of texts without their encoding, and values by level."""

_LENGTHS: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value by physical type, of boolean, int32, int64, int96, float and double."""
_BYTE_ARRAY, _FIXED = 6, 7
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_CODECS: Final = range(8)
"""From UNCOMPRESSED to LZ4_RAW."""

_Struct = Mapping[int, Typed]


class _Leaf(NamedTuple):
    """A column, as the schema describes it."""

    kind: int
    """Physical type."""
    length: int
    """Bytes of a value; 0 for texts and bytes."""
    repetition: int
    definition: int
    """Highest levels of its values."""


def check_footer(footer: bytes) -> None:
    """Raise ValueError for a footer that the Parquet library must not see."""
    found = Reader(footer).message(_ENCRYPTION)
    if _ENCRYPTION in found:
        # The footer itself is readable. A signature follows it.
        raise ValueError("columns of the file are encrypted. Write it without encryption")
    leaves = list(_leaves(found))
    for group in _structs(found, _GROUPS):
        columns = list(_structs(group, _COLUMNS))
        if len(columns) != len(leaves):
            raise ValueError(f"a row group has {len(columns)} columns, and the schema has {len(leaves)}")
        for column, leaf in zip(columns, leaves, strict=True):
            described = _field(column, _META_DATA, STRUCT)
            if described is None or _field(described, _CHUNK_TYPE, _I32) != leaf.kind:
                raise ValueError("a chunk has another type than its column")
            if _field(described, _CODEC, _I32) not in _CODECS:
                raise ValueError("a chunk has no compression codec that Parquet has")
            statistics = _field(described, _STATISTICS, STRUCT)
            if statistics is not None:
                _check_statistics(statistics, leaf.kind, leaf.length)
                _check_order(statistics, leaf.kind, has_orders=_ORDERS in found)
            sizes = _field(described, _SIZES, STRUCT)
            if sizes is not None:
                _check_sizes(sizes, leaf)


def _check_sizes(sizes: _Struct, leaf: _Leaf) -> None:
    """Raise ValueError for statistics of sizes that do not fit the type or the nesting of their column."""
    if _field(sizes, _UNENCODED, _I64) is not None and leaf.kind != _BYTE_ARRAY:
        raise ValueError("a column without texts or bytes has the size of its texts")
    for (field, name), highest in zip(_HISTOGRAMS, (leaf.repetition, leaf.definition), strict=True):
        histogram = _field(sizes, field, _LIST)
        # Writers may leave a histogram out, or empty.
        if not histogram:
            continue
        if any(each.kind != _I64 for each in histogram):
            raise ValueError(f"a histogram of {name} levels has no numbers")
        if len(histogram) != highest + 1:
            raise ValueError(
                f"a histogram of {name} levels has {len(histogram)} entries instead of {highest + 1}. Write "
                "the statistics of sizes as Parquet defines them, or none"
            )


def _check_order(statistics: _Struct, kind: int, *, has_orders: bool) -> None:
    """Raise ValueError for bounds of texts or bytes in the old form, which do not state their order.

    Some writers compared bytes as signed numbers. The Parquet library believes such bounds, for some of them.
    """
    old, new = _PAIRS
    if kind not in (_BYTE_ARRAY, _FIXED) or not any(field in statistics for field in old):
        return
    if not has_orders or not all(field in statistics for field in new):
        raise ValueError(
            "a column of texts or bytes has only bounds of the old form (min, max). Write min_value and "
            "max_value with column orders, or no bounds"
        )


def _check_statistics(statistics: _Struct, kind: int, length: int) -> None:
    for fields in _PAIRS:
        bounds = [_field(statistics, field, _BINARY) for field in fields]
        present = [bound for bound in bounds if bound is not None]
        if not present or kind == _BYTE_ARRAY:
            continue
        if len(present) < len(bounds) or any(len(bound) != length for bound in present):
            raise ValueError("the statistics of a column have no bounds of its type")


def _leaves(footer: _Struct) -> Iterator[_Leaf]:
    """Yield the columns of the schema, whose elements come depth first."""
    elements = list(_structs(footer, _SCHEMA))
    if not elements:
        raise ValueError("it has no schema")
    # Of each open group: the children to come, and the levels of its values.
    groups = [(_field(elements[0], _CHILDREN, _I32) or 0, 0, 0)]
    for element in elements[1:]:
        while groups and not groups[-1][0]:
            groups.pop()
        if not groups:
            raise ValueError("the schema has more elements than its groups have children")
        left, repetition, definition = groups[-1]
        groups[-1] = left - 1, repetition, definition
        repeats = _field(element, _REPETITION, _I32)
        if repeats not in (_REQUIRED, _OPTIONAL, _REPEATED):
            raise ValueError("an element of the schema has no repetition that Parquet has")
        repetition += repeats == _REPEATED
        definition += repeats != _REQUIRED
        children = _field(element, _CHILDREN, _I32)
        if not children:
            yield _leaf(element, repetition, definition)
            continue
        if len(groups) >= _DEEPEST:
            raise ValueError(f"its columns are nested in more than {_DEEPEST} levels")
        groups.append((children, repetition, definition))
    if any(left for left, _, _ in groups):
        raise ValueError("a group of the schema lacks children")


def _leaf(element: _Struct, repetition: int, definition: int) -> _Leaf:
    kind = _field(element, _TYPE, _I32)
    if kind not in (*_LENGTHS, _BYTE_ARRAY, _FIXED):
        raise ValueError("a column has no type that Parquet has")
    length = _field(element, _TYPE_LENGTH, _I32) or 0
    return _Leaf(kind, length if kind == _FIXED else _LENGTHS.get(kind, 0), repetition, definition)


def _structs(of: _Struct, field: int) -> Iterator[_Struct]:
    for each in _field(of, field, _LIST) or ():
        if each.kind != STRUCT:
            raise ValueError("a list has no structs")
        yield each.value


def _field(of: _Struct, field: int, kind: int) -> Any:
    """Return the value of a field, None if it is absent. Raises ValueError for another type."""
    found = of.get(field)
    if found is None:
        return None
    if found.kind != kind:
        raise ValueError(f"a field has the type {found.kind} instead of {kind}")
    return found.value


_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_TAIL: Final = 64 << 10
"""Bytes at the end of a file that are read at first. Most footers are shorter."""
_MOST_BYTES: Final = 4 << 20
"""Bytes of a footer."""
_ENDING: Final = 8
"""Bytes after the footer: its length, and the magic number."""
_SMALLEST: Final = 12
"""Bytes of the shortest file. A pipe or a device has the size 0, and is never opened."""
_AT_ONCE: Final = 64
"""Files whose ends are in memory together."""


def read_footers(storage: Storage, files: Sequence[FileInfo]) -> Iterator["pq.FileMetaData"]:
    """Yield the footers of files whose sizes were checked, in order, each with the rows that were claimed.

    Raises BadFiles or LakeUnavailable.
    """
    for start in range(0, len(files), _AT_ONCE):
        some = files[start : start + _AT_ONCE]
        for file in some:
            if file.size < _SMALLEST:
                raise BadFiles(f"the file {file.path} is no Parquet file: it has only {file.size} bytes")
        for file, end in zip(some, _ends(storage, some, [_TAIL] * len(some)), strict=True):
            length = _footer_length(file, end)
            known = length + _ENDING <= len(end)
            whole = end if known else _ends(storage, [file], [length + _ENDING])[0]
            yield _parsed(file, whole[-length - _ENDING :])


def _ends(storage: Storage, files: Sequence[FileInfo], lengths: Sequence[int]) -> list[bytes]:
    shortened = [min(file.size, length) for file, length in zip(files, lengths, strict=True)]
    ranges = [
        Range(file.path, file.size - length, length) for file, length in zip(files, shortened, strict=True)
    ]
    ends = storage.read_ranges(ranges)
    for file, length, end in zip(files, shortened, ends, strict=True):
        if end is None or len(end) != length:
            raise BadFiles(f"the file {file.path} was changed or deleted while it was read. Write it again")
    return [end for end in ends if end is not None]


def _footer_length(file: FileInfo, end: bytes) -> int:
    if end[-len(_MAGIC) :] == _ENCRYPTED:
        raise BadFiles(f"the file {file.path} has an encrypted footer. Write it without encryption")
    if end[-len(_MAGIC) :] != _MAGIC:
        raise BadFiles(f"the file {file.path} is no whole Parquet file: it does not end as one")
    length = int.from_bytes(end[-_ENDING : -len(_MAGIC)], "little")
    if not 0 < length <= min(_MOST_BYTES, file.size - _SMALLEST):
        raise BadFiles(
            f"the footer of {file.path} has {length} bytes; at most {_MOST_BYTES} are read, and no more than "
            "the file has. Write fewer row groups"
        )
    return length


def _parsed(file: FileInfo, footer: bytes) -> "pq.FileMetaData":
    """Parse a footer with its ending, and check that it fits the file. Raises BadFiles."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        check_footer(footer[:-_ENDING])
        found = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
        problem = _problem(found, file, file.size - len(footer))
    except LakeUnavailable:
        raise
    except Exception as error:  # malformed bytes may raise any error in the parser
        raise BadFiles(f"the footer of {file.path} cannot be read: {error}") from error
    if problem is not None:
        raise BadFiles(f"the file {file.path} {problem}")
    return found


def _problem(footer: "pq.FileMetaData", file: FileInfo, end: int) -> str | None:
    """Return the first contradiction between a footer, its file and the event. `end`: of the data."""
    if footer.num_rows != file.rows:
        by_footer = counted(footer.num_rows, "row")
        return f"has {by_footer} by its footer, and {file.rows} by the event. Correct the event"
    if not file.rows:
        return "has no rows. Leave it out of the event"
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    if sum(group.num_rows for group in groups) != file.rows or any(group.num_rows < 1 for group in groups):
        return f"has row groups whose rows do not add up to its {file.rows}. Write it again"
    leaves = [footer.schema.column(number) for number in range(footer.num_columns)]
    for group in groups:
        for number, leaf in enumerate(leaves):
            chunk = group.column(number)
            if chunk.file_path:
                return f"has the values of {leaf.path} in another file. Write them into this one"
            first = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
                first = min(first, chunk.dictionary_page_offset)
            if not len(_MAGIC) <= first <= first + chunk.total_compressed_size <= end:
                return f"names pages of {leaf.path} outside of its data. Write it again"
            if not leaf.max_repetition_level and chunk.num_values != group.num_rows:
                values, rows = counted(chunk.num_values, "value"), counted(group.num_rows, "row")
                return f"has {values} of {leaf.path} for {rows}"
    return None
