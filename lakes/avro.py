"""Avro object containers, split and joined by blocks without decoding a record.

See the Avro specification, "Object Container Files". A block consists of its record count, its size and its
(compressed) records; the file's sync marker follows it. Therefore blocks can move between files of the same
schema and codec.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import fastavro
from backports import zstd

MAGIC: Final = b"Obj\x01"
SYNC_SIZE: Final = 16
BLOCK_BYTES: Final = 1 << 17
"""Uncompressed size in bytes at which a block is closed."""

_COMPRESSORS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    # The lowest levels: entries of one commit are much alike, and a coordinator packs thousands of them.
    "zstandard": lambda raw: zstd.compress(raw, 1),
    "deflate": lambda raw: zlib.compress(raw, 1, wbits=-15),
}
_DECOMPRESSORS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "zstandard": zstd.decompress,
    "deflate": lambda packed: zlib.decompress(packed, wbits=-15),
}
DEFAULT_CODEC: Final = "zstandard"


class BadContainer(ValueError):
    """The data is not an Avro object container, or is damaged."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block as stored in the file: count, size and records, without the sync marker."""

    records: int
    framed: bytes


def write_long(value: int) -> bytes:
    """Encode an integer as Avro's zigzag variable-length `long`."""
    bits = (value << 1) ^ (value >> 63)
    out = bytearray()
    while bits > 0x7F:
        out.append((bits & 0x7F) | 0x80)
        bits >>= 7
    out.append(bits)
    return bytes(out)


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Decode the integer at an offset; return it with the offset after it."""
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
    """Return the bytes of the blocks in a file with this sync marker."""
    return b"".join(part for block in blocks for part in (block.framed, sync))


def supported_codec(name: str) -> str:
    """Return the codec to write if the table's options name `name` (Paimon's name or Avro's)."""
    codec = {"zstd": "zstandard", "none": "null"}.get(name.lower(), name.lower())
    return codec if codec in _COMPRESSORS else DEFAULT_CODEC


class Header:
    """Header of files of one schema and codec. All files written with it share its sync marker."""

    def __init__(self, schema: dict[str, Any], codec: str, more: Mapping[str, str] | None = None) -> None:
        """Make a header; `more` are further entries of the file's metadata."""
        self.schema = json.dumps(schema).encode()
        self.codec = codec
        self.sync = os.urandom(SYNC_SIZE)
        own = ((b"avro.codec", codec.encode()), (b"avro.schema", self.schema))
        pairs = (*own, *((key.encode(), value.encode()) for key, value in (more or {}).items()))
        meta = b"".join(write_long(len(part)) + part for pair in pairs for part in pair)
        self.start = MAGIC + write_long(len(pairs)) + meta + b"\x00" + self.sync

    def matches(self, container: "Container") -> bool:
        """Return True if the container's blocks can be appended to a file with this header."""
        return container.codec == self.codec and container.schema == self.schema

    def file(self, blocks: Sequence[Block]) -> bytes:
        """Return a complete file with these blocks."""
        return self.start + joined(blocks, self.sync)

    def block(self, records: Sequence[bytes]) -> Block:
        """Compress encoded records into one block."""
        return self._pack(len(records), records)

    def _pack(self, count: int, parts: Sequence[bytes]) -> Block:
        packed = _COMPRESSORS[self.codec](b"".join(parts))
        return Block(count, write_long(count) + write_long(len(packed)) + packed)

    def grouped(self, groups: Iterable[tuple[int, bytes]]) -> Iterator[Block]:
        """Compress groups of encoded records into blocks of about BLOCK_BYTES; no group is split.

        Each group is the number of its records, and their bytes.
        """
        count = size = 0
        parts: list[bytes] = []
        for records, encoded in groups:
            count, size = count + records, size + len(encoded)
            parts.append(encoded)
            if size >= BLOCK_BYTES:
                yield self._pack(count, parts)
                count, size, parts = 0, 0, []
        if count:
            yield self._pack(count, parts)

    def blocks(self, records: Sequence[bytes]) -> Iterator[Block]:
        """Compress encoded records into blocks of about BLOCK_BYTES."""
        start = size = 0
        for end, record in enumerate(records, 1):
            size += len(record)
            if size >= BLOCK_BYTES:
                yield self.block(records[start:end])
                start, size = end, 0
        if start < len(records):
            yield self.block(records[start:])


class Container:
    """An object container in memory, with its blocks."""

    def __init__(self, data: bytes) -> None:
        """Split the data. Raises BadContainer if the header or the framing of any block is damaged."""
        if not data.startswith(MAGIC):
            raise BadContainer("not an Avro object container")
        meta, at = _read_meta(data, len(MAGIC))
        self.data = data
        self.meta = meta
        self.schema = meta.get(b"avro.schema", b"")
        self.codec = meta.get(b"avro.codec", b"null").decode()
        self.sync = data[at : at + SYNC_SIZE]
        if len(self.sync) < SYNC_SIZE:
            raise BadContainer("the Avro data ends inside of its header")
        self.blocks = self._blocks(at + SYNC_SIZE)

    def _blocks(self, start: int) -> list[Block]:
        found = []
        data = self.data
        while start < len(data):
            records, at = read_long(data, start)
            size, at = read_long(data, at)
            end = at + size
            if records < 0 or size < 0 or data[end : end + SYNC_SIZE] != self.sync:
                raise BadContainer("a block of the Avro data does not end in the sync marker")
            found.append(Block(records, data[start:end]))
            start = end + SYNC_SIZE
        return found


def unpacked(block: Block, codec: str) -> bytes:
    """Return the encoded records of a block. Raises BadContainer."""
    _, at = read_long(block.framed, 0)
    _, at = read_long(block.framed, at)
    try:
        return _DECOMPRESSORS[codec](block.framed[at:])
    except (KeyError, ValueError, zlib.error, zstd.ZstdError) as error:
        raise BadContainer(f"a block of the codec {codec} cannot be unpacked ({error!r})") from error


def records(data: bytes) -> list[dict[str, Any]]:
    """Decode all records of a container. Raises BadContainer."""
    try:
        return [dict(record) for record in fastavro.reader(BytesIO(data)) if isinstance(record, dict)]
    except (ValueError, EOFError, LookupError, OSError, zlib.error, zstd.ZstdError) as error:
        raise BadContainer(f"its records cannot be decoded ({error!r})") from error


def _read_meta(data: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    meta = {}
    count, at = read_long(data, at)
    while count != 0:
        # Avro marks a block of map entries with its byte size by a negative count.
        if count < 0:
            _, at = read_long(data, at)
            count = -count
        for _ in range(count):
            key, at = _read_bytes(data, at)
            meta[key], at = _read_bytes(data, at)
        count, at = read_long(data, at)
    return meta, at
