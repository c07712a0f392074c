"""Records of data files in the one encoding of Avro that all writers of ours use, proven without decoding.

Avro has several encodings of one value. In the canonical one, each number is as short as it can be, and each
list is one block without a size in bytes. Everything else is left to the decoder, which knows why a record is
wrong.
"""

import re
import struct
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from sluicegate.events.models import FileInfo
from sluicegate.lakes.avro import write_long
from sluicegate.lakes.iceberg.layout import Partition
from sluicegate.lakes.iceberg.rules import Counts, MetricRules
from sluicegate.lakes.iceberg.values import ReadBound
from sluicegate.lakes.twins import is_plain

FIELDS: Final = (
    *("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes"),
    *("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"),
    *("lower_bounds", "upper_bounds", "key_metadata", "split_offsets", "equality_ids", "sort_order_id"),
)
"""Fields of a record, in its order. Records with others are not proven."""
FILE_FORMAT: Final = "PARQUET"
"""The only one that writers of ours use."""

_COUNTS: Final = 4
"""Maps of counts, from `column_sizes` on."""
_ABSENT: Final = 0
_PRESENT: Final = 2
"""First bytes of an optional value, as Avro writes the numbers 0 and 1."""
_LARGEST: Final = 1 << 63
_NUMBER: Final = rb"[\x80-\xff]{0,8}[\x00-\x7f]|[\x80-\xff]{9}\x01"
_NUMBERS: Final = re.compile(_NUMBER)
# Avro writes negative numbers as odd ones. A longer number without its first bits ends with a zero.
_EVEN: Final = b"".join(b"\\x%02x" % byte for byte in range(0, 0x80, 2))
_EVEN_START: Final = b"".join(b"\\x%02x" % byte for byte in range(0x80, 0x100, 2))
_POSITIVE: Final = b"[%b]|[%b](?:[\\x80-\\xff]{0,7}[\\x01-\\x7f]|[\\x80-\\xff]{8}\\x01)" % (
    _EVEN,
    _EVEN_START,
)


class Known(NamedTuple):
    """A partition whose files have been examined."""

    encoded: bytes
    """As a record of a file contains it."""
    partition: Partition


class CanonicalRecords:
    """Prover of the records of one schema and one spec.

    It proves as much as the decoder and all checks after it do. It is made for records of honest writers: one
    that is not proven may still be right.
    """

    def __init__(
        self,
        location: str,
        columns: Mapping[int, ReadBound],
        sort_orders: Collection[int | None],
        rules: MetricRules,
    ) -> None:
        """`location` is the beginning of all full paths, `columns` are readers of bounds by column."""
        self._location = location.encode()
        self._columns = frozenset(map(write_long, columns))
        # As Avro writes them: twice the number.
        self._readers = {2 * column: read for column, read in columns.items()}
        self._rules = rules
        self._floats = frozenset(map(write_long, rules.floats))
        self._format = write_long(len(FILE_FORMAT)) + FILE_FORMAT.encode()
        orders = (b"\0" if order is None else b"\x02" + write_long(order) for order in sort_orders)
        self._ends = frozenset(b"\0" + order for order in orders)
        """Fields after the split offsets: no equality ids, and a sort order."""
        self._known: dict[tuple[tuple[str, str | None], ...], Known] = {}
        """By the texts of the partition, in the order of the event."""

    def learn(self, file: FileInfo, encoded: bytes, partition: Partition) -> None:
        """Remember the partition of a file that was examined. `encoded` is canonical."""
        self._known[tuple(file.partition.items())] = Known(encoded, partition)

    def partition_of(self, file: FileInfo) -> Partition | None:
        """Return the partition of a file if its record is proven, else None."""
        known = self._known.get(tuple(file.partition.items()))
        if known is None or file.rows >= _LARGEST or file.size >= _LARGEST or not is_plain(file.path):
            return None
        try:
            return known.partition if self._is_proven(file, known.encoded) else None
        except (IndexError, ValueError, struct.error):
            # It ends too early, or has a number or a bound that cannot be read.
            return None

    def _is_proven(self, file: FileInfo, partition: bytes) -> bool:
        """Compare the fields with their expected bytes, in order. Raises as `partition_of` catches."""
        data, path = file.metadata, self._location + file.path.encode()
        rows, size = write_long(file.rows), write_long(file.size)
        start = b"\0%b%b%b%b%b%b" % (write_long(len(path)), path, self._format, partition, rows, size)
        if not data.startswith(start):
            return False
        at = len(start)
        counts = []
        for _ in range(_COUNTS):
            found, at = self._counts(data, at)
            counts.append(found)
        lower, at = self._bounds(data, at)
        upper, at = self._bounds(data, at)
        for column, value in lower.items():
            if column in upper and value > upper[column]:
                return False
        suspects = self._suspects(counts, rows, size)
        if suspects or not file.rows:
            numbers = Counts(
                *({_whole(key): _whole(of[key]) for key in suspects & of.keys()} for of in counts)
            )
            # The readers' keys are twice the numbers. A file without rows can have no bounds at all.
            bounded = {column // 2 for column in (*lower, *upper)}
            bounded = bounded & {*map(_whole, suspects)} if file.rows else bounded
            if self._rules.problem(numbers, bounded, file.rows, file.size) is not None:
                return False
        # No key metadata.
        if data[at] != _ABSENT:
            return False
        return data[_after_offsets(data, at + 1, file.size) :] in self._ends

    def _suspects(self, counts: Sequence[Mapping[bytes, bytes]], rows: bytes, size: bytes) -> set[bytes]:
        """Return the columns whose counts could be against a rule, by a look at their bytes.

        The rules are those of each column alone. Whatever the bounds, the others follow them if there are
        rows.
        """
        sizes, values, nulls, nans = counts
        found = {column for column, number in values.items() if number != rows}
        found.update([column for column, number in nulls.items() if number != b"\0"])
        found.update([column for column, number in nans.items() if number != b"\0"])
        # A number with more bytes is a higher one. Among those of one length, the last byte counts most.
        last = len(size), size[::-1]
        found.update([column for column, of in sizes.items() if (len(of), of[::-1]) > last])
        return found | (nans.keys() - self._floats)

    def _counts(self, data: bytes, at: int) -> tuple[Mapping[bytes, bytes], int]:
        """Return a map of counts, none of them negative, and the position after it. Raises ValueError."""
        count, at = _block(data, at)
        if not count:
            return {}, at
        # More would be there twice. The count comes from outside, and each has a pattern.
        found = _pairs(count).match(data, at) if count <= len(self._columns) else None
        if found is None:
            raise ValueError
        numbers = _NUMBERS.findall(found[0])
        counts = dict(zip(numbers[::2], numbers[1::2], strict=True))
        if len(counts) < count or not counts.keys() <= self._columns:
            raise ValueError
        return counts, _after_end(data, found.end())

    def _bounds(self, data: bytes, at: int) -> tuple[dict[int, Any], int]:
        """Return the values of a map of bounds, and the position after it.

        Raises as `partition_of` catches.
        """
        count, at = _block(data, at)
        found: dict[int, Any] = {}
        if not count:
            return found, at
        readers = self._readers
        for _ in range(count):
            column, length = data[at], data[at + 1]
            at += 2
            # Most numbers have one byte.
            if column > 0x7F or length > 0x7F:
                column, at = _positive(data, at - 2)
                length, at = _positive(data, at)
            elif length & 1:
                raise ValueError
            read, end = readers.get(column), at + length // 2
            if read is None or end > len(data):
                raise ValueError
            found[column] = read(data[at:end])
            at = end
        if len(found) < count:
            raise ValueError
        return found, _after_end(data, at)


def _block(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of items of an optional list, and the position of the first one.

    A list without items ends there. Raises ValueError or IndexError.
    """
    kind = data[at]
    if kind == _ABSENT:
        return 0, at + 1
    if kind != _PRESENT:
        raise ValueError
    count, at = _positive(data, at + 1)
    return count // 2, at


def _after_end(data: bytes, at: int) -> int:
    if data[at]:
        raise ValueError
    return at + 1


def _after_offsets(data: bytes, at: int, size: int) -> int:
    """Return the position after optional offsets that rise inside of a file.

    Raises ValueError or IndexError.
    """
    count, at = _block(data, at)
    before = -1
    for _ in range(count):
        offset, at = _positive(data, at)
        if not before < offset <= 2 * size:
            raise ValueError
        before = offset
    return _after_end(data, at) if count else at


def _positive(data: bytes, at: int) -> tuple[int, int]:
    """Return twice the number at a position, as Avro writes it, and the position after it.

    Raises ValueError.
    """
    found = _ONE.match(data, at)
    if found is None:
        raise ValueError
    number = shift = 0
    for byte in found[0]:
        number |= (byte & 0x7F) << shift
        shift += 7
    return number, found.end()


def _whole(raw: bytes) -> int:
    """Return a number, which is not negative, of its bytes."""
    return raw[0] >> 1 if len(raw) == 1 else _positive(raw, 0)[0] >> 1


@cache
def _pairs(count: int) -> re.Pattern[bytes]:
    """Return the pattern of so many pairs of numbers, none of them negative."""
    return re.compile(b"(?:%b){%d}" % (_POSITIVE, 2 * count))


_ONE: Final = re.compile(_POSITIVE)
