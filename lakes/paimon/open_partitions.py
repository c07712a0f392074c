"""Bound on the rows that pypaimon keeps: it collects the rows of a file in memory, and writes it at once."""

from typing import Any, NamedTuple


class _Held(NamedTuple):
    """Rows of a partition in memory."""

    size: int
    """Bytes."""
    rows: int


class OpenPartitions:
    """Partitions with rows in memory, the one that was written to last at the end."""

    def __init__(self, store_write: Any, most: int, most_bytes: int) -> None:
        """Watch the library's writer. It keeps rows of `most` partitions, and about `most_bytes` of them."""
        self._write = store_write.write
        self._writers: dict[Any, Any] = store_write.data_writers
        self._most = most
        self._most_bytes = most_bytes
        self._held: dict[Any, _Held] = {}
        """By partition and bucket."""
        store_write.write = self._watched

    def _watched(self, partition: tuple[Any, ...], bucket: int, data: Any, total_buckets: Any = None) -> None:
        self._write(partition, bucket, data, total_buckets)
        key = (partition, bucket)
        before = self._held.pop(key, _Held(0, 0))
        size, rows = before.size + data.nbytes, before.rows + data.num_rows
        # The library may have written full files meanwhile.
        left = int(self._writers[key].pending_row_count)
        self._held[key] = _Held(size * left // max(1, rows), left)
        while len(self._held) > self._most:
            self._close(next(iter(self._held)))
        if self._total() > self._most_bytes:
            self._relieve()

    def _total(self) -> int:
        return sum(each.size for each in self._held.values())

    def _relieve(self) -> None:
        """Write the largest partitions to files until the others may stay in memory."""
        total = self._total()
        for key in sorted(self._held, key=lambda each: self._held[each].size, reverse=True):
            if total <= self._most_bytes:
                return
            total -= self._held[key].size
            self._close(key)

    def _close(self, key: Any) -> None:
        """Write the rows of a partition to a file. Later rows of it begin another one."""
        del self._held[key]
        # The writer keeps the description of the file for the end of the attempt, or deletes it.
        self._writers[key].prepare_commit()
