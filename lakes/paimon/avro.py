"""Avro object containers, taken apart and put together block by block without decoding a record.

See the Avro specification, "Object Container Files". A block is its record count, its size and its
(compressed) records; a sync marker of the file follows it. Blocks can therefore move between files of the
same schema and codec.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backports import zstd

MAGIC: Final = b"Obj\x01"
SYNC_SIZE: Final = 16
BLOCK_BYTES: Final = 1 << 17
"""Uncompressed size at which a block is closed."""

_COMPRESSORS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "zstandard": zstd.compress,
    "deflate": lambda raw: zlib.compress(raw, wbits=-15),
}
DEFAULT_CODEC: Final = "zstandard"


class BadContainer(ValueError):
    """Not an Avro object container, or a damaged one."""


@dataclass(frozen=True, slots=True)
class Block:
    """Records as they stand in the file: count, size and bytes, without the sync marker."""

    records: int
    framed: bytes


def write_long(value: int) -> bytes:
    """Encode as Avro's zigzag variable-length integer."""
    bits = (value << 1) ^ (value >> 63)
    out = bytearray()
    while bits > 0x7F:
        out.append((bits & 0x7F) | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Decode the integer at an offset; returns it with the offset behind it."""
    bits = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            bits |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (bits >> 1) ^ -(bits & 1), at
            shift += 7
            if shift > 63:
                raise BadContainer("an Avro integer of more than 64 bits")
    except IndexError:
        raise BadContainer("the Avro data ends inside of an integer") from None


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(data, at)
    if size < 0 or at + size > len(data):
        raise BadContainer("the Avro data ends inside of a value")
    return data[at : at + size], at + size


def joined(blocks: Sequence[Block], sync: bytes) -> bytes:
    """The blocks as they stand in a file with this sync marker."""
    return b"".join(part for block in blocks for part in (block.framed, sync))


def supported_codec(name: str) -> str:
    """The codec to write when the table asks for `name` (Paimon's name or Avro's)."""
    codec = {"zstd": "zstandard", "none": "null"}.get(name.lower(), name.lower())
    return codec if codec in _COMPRESSORS else DEFAULT_CODEC


class Header:
    """What files of one schema and codec start with; every file written with it has its sync marker."""

    def __init__(self, schema: dict[str, Any], codec: str) -> None:
        self.schema = json.dumps(schema).encode()
        self.codec = codec
        self.sync = os.urandom(SYNC_SIZE)
        pairs = ((b"avro.codec", codec.encode()), (b"avro.schema", self.schema))
        meta = b"".join(write_long(len(part)) + part for pair in pairs for part in pair)
        self.start = MAGIC + write_long(len(pairs)) + meta + b"\x00" + self.sync

    def matches(self, container: "Container") -> bool:
        """Whether the container's blocks may be put behind this header."""
        return container.codec == self.codec and container.schema == self.schema

    def file(self, blocks: Sequence[Block]) -> bytes:
        """A whole file of these blocks."""
        return self.start + joined(blocks, self.sync)

    def block(self, records: Sequence[bytes]) -> Block:
        """Compress encoded records to a block."""
        packed = _COMPRESSORS[self.codec](b"".join(records))
        return Block(len(records), write_long(len(records)) + write_long(len(packed)) + packed)

    def blocks(self, records: Sequence[bytes]) -> Iterator[Block]:
        """Compress encoded records to blocks of about BLOCK_BYTES."""
        start = size = 0
        for end, record in enumerate(records, 1):
            size += len(record)
            if size >= BLOCK_BYTES:
                yield self.block(records[start:end])
                start, size = end, 0
        if start < len(records):
            yield self.block(records[start:])


class Container:
    """An object container that was read whole."""

    def __init__(self, data: bytes) -> None:
        if not data.startswith(MAGIC):
            raise BadContainer("not an Avro object container")
        meta, at = _read_meta(data, len(MAGIC))
        self.data = data
        self.schema = meta.get(b"avro.schema", b"")
        self.codec = meta.get(b"avro.codec", b"null").decode()
        self.sync = data[at : at + SYNC_SIZE]
        self._first = at + SYNC_SIZE

    def blocks(self) -> list[Block]:
        """All blocks. Raises BadContainer if the framing does not hold to the end of the file."""
        found = []
        data, start = self.data, self._first
        while start < len(data):
            records, at = read_long(data, start)
            size, at = read_long(data, at)
            end = at + size
            if records < 0 or size < 0 or data[end : end + SYNC_SIZE] != self.sync:
                raise BadContainer("a block of the Avro data does not end in the sync marker")
            found.append(Block(records, data[start:end]))
            start = end + SYNC_SIZE
        return found


def _read_meta(data: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    meta = {}
    count, at = read_long(data, at)
    while count != 0:
        if count < 0:
            _, at = read_long(data, at)
            count = -count
        for _ in range(count):
            key, at = _read_bytes(data, at)
            meta[key], at = _read_bytes(data, at)
        count, at = read_long(data, at)
    return meta, at
