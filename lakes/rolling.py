"""Parquet files of one writer: rows are divided among files of a target size, and a broken one is closed."""

import contextlib
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

_SLACK: Final = 0.1
"""Share of the target that a file may be above it, or below it, without a further row group."""

_LEAST: Final = 64 << 10
"""Bytes in memory of the smallest row group that rows are divided into."""


class Rolling:
    """Number of the next rows that go into a file, by the sizes of all files of one writer before."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._rows = self._encoded = 0
        """Bytes of rows in memory, and in files."""

    def fitting(self, rows: pa.Table, size: int) -> int:
        """Return how many of the rows go into a file of this size: at least one."""
        room = max(self._target - size, 0)
        # Before any row group was written, rows count as in memory: that is too much, not too little.
        share = self._encoded / self._rows if self._rows else 1.0
        count, held = int(rows.num_rows), int(rows.nbytes)
        expected = held * share
        if expected <= room + self._target * _SLACK:
            return count
        return min(count, max(1, int(count * max(_LEAST / held, room / expected))))

    def is_full(self, size: int) -> bool:
        """Return True if a file of this size is complete."""
        return size >= self._target * (1 - _SLACK)

    def learn(self, rows: int, encoded: int) -> None:
        """Take the size of a row group into account: in memory, and in the file."""
        self._rows += rows
        self._encoded += encoded


def close_broken(writer: pq.ParquetWriter, sink: Any) -> None:
    """Close a file that nobody will read. No error of it hides the one for which its attempt was given up."""
    # The end of the file is not needed, but a writer that is left open would write it later.
    with contextlib.suppress(Exception):
        writer.close()
    # Else the collector of Python would try it again.
    writer.is_open = False
    with contextlib.suppress(Exception):
        sink.close()
