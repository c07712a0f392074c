"""Content of large files, kept compressed until it is written."""

from collections.abc import Iterator
from typing import Final

from backports import zstd

PLAIN: Final = 64 << 20
"""Bytes that are kept as they are. Only the largest commits have more."""
_PIECE: Final = 1 << 20
"""Bytes that are written, or compressed, at once."""
_LEVEL: Final = 1


class Packed:
    """Bytes in the order in which they were added. Above a size, most of them are compressed."""

    def __init__(self, plain: int = PLAIN) -> None:
        """`plain`: bytes from which on the content is compressed."""
        self._plain = plain
        self._packed: list[bytes] = []
        self._pieces: list[bytes] = []
        """Not compressed, after what is."""
        self._open: list[bytes] = []
        """Parts of the next piece."""
        self._open_size = 0
        self.size = 0
        """Bytes of the content."""

    @property
    def held(self) -> int:
        """Bytes of memory, about."""
        return self._open_size + sum(map(len, self._pieces)) + sum(map(len, self._packed))

    def add(self, part: bytes) -> None:
        """Add bytes at the end."""
        self._open.append(part)
        self._open_size += len(part)
        self.size += len(part)
        if self._open_size >= _PIECE:
            self._close()

    def parts(self) -> Iterator[bytes]:
        """Yield the content from its beginning, in parts; as often as it is called."""
        for each in self._packed:
            yield zstd.decompress(each)
        yield from self._pieces
        if self._open:
            yield b"".join(self._open)

    def _close(self) -> None:
        self._pieces.append(b"".join(self._open))
        self._open, self._open_size = [], 0
        if self._packed or self.size >= self._plain:
            self._packed += [zstd.compress(piece, _LEVEL) for piece in self._pieces]
            self._pieces = []
