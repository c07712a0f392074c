"""Strict reading of Thrift's compact protocol, as Parquet footers have it.

The Parquet library ends the process for some malformed footers. So what it would stumble over is looked at
before, by a reader that takes less: each struct has its fields in the order of their ids, and none twice.
"""

from typing import Any, Final, NamedTuple

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_NUMBERS: Final = {4: 16, 5: 32, 6: 64}
"""Bits of a number by its type. The Parquet library cuts off what is above, so larger ones are refused."""
_FIELD_BITS: Final = 16
_MOST_VALUES: Final = 1_000_000
"""Values of a message, each of which takes memory and time."""
_DEEPEST: Final = 100
"""Levels of nested values."""
_LONGEST: Final = 10
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
        for place in range(_LONGEST):
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
