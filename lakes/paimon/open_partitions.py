"""Bound on the rows that pypaimon keeps: it collects the rows of a file in memory, and writes it at once."""

from typing import Any


class OpenPartitions:
    """Partitions with rows in memory, the one that was written to last at the end."""

    def __init__(self, store_write: Any, most: int, most_bytes: int) -> None:
        """Watch the library's writer. It keeps rows of `most` partitions, and about `most_bytes` of them."""
        self._write = store_write.write
        self._writers: dict[Any, Any] = store_write.data_writers
        self._most = most
        self._most_bytes = most_bytes
        self._sizes: dict[Any, int] = {}
        """Bytes in memory, by partition and bucket."""
        store_write.write = self._watched

    def _watched(self, partition: tuple[Any, ...], bucket: int, data: Any, total_buckets: Any = None) -> None:
        self._write(partition, bucket, data, total_buckets)
        key = (partition, bucket)
        self._sizes.pop(key, None)
        # The library may have written full files meanwhile.
        self._sizes[key] = self._writers[key].pending_row_count * data.nbytes // max(1, data.num_rows)
        while len(self._sizes) > self._most:
            self._close(next(iter(self._sizes)))
        if sum(self._sizes.values()) > self._most_bytes:
            self._relieve()

    def _relieve(self) -> None:
        """Write the largest partitions to files until the others may stay in memory."""
        held = sum(self._sizes.values())
        for key in sorted(self._sizes, key=self._sizes.__getitem__, reverse=True):
            if held <= self._most_bytes:
                return
            held -= self._sizes[key]
            self._close(key)

    def _close(self, key: Any) -> None:
        """Write the rows of a partition to a file. Later rows of it begin another one."""
        del self._sizes[key]
        # The writer keeps the description of the file for the end of the attempt, or deletes it.
        self._writers[key].prepare_commit()
