"""Cache of examinations between the check of files and their publication."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, Generic, Protocol, TypeVar

from sluicegate.events.models import FilesWritten

MOST_FILES: Final = 1_000_000
"""Maximum number of files with cached examinations, at about twenty bytes each."""


def content_digest(event: FilesWritten) -> bytes:
    """Return a digest that is equal only for events with equal descriptions of the same files."""
    files = [
        (file.path, file.size, file.rows, sorted(file.partition.items()), len(file.metadata))
        for file in event.files
    ]
    said = (event.format, event.format_version, event.location, event.schema_id, event.spec_id, files)
    digest = blake2b(repr(said).encode(), digest_size=32)
    digest.update(b"".join([file.metadata for file in event.files]))
    return digest.digest()


class Examination(Protocol):
    """Result of the examination of an event's files."""

    @property
    def partitions(self) -> Sequence[object]:
        """Partition of each file, in order."""
        ...


E = TypeVar("E", bound=Examination)


class Remembered(Generic[E]):
    """Cache of examinations by the content of the event; the oldest are dropped first."""

    def __init__(self) -> None:
        self._held: dict[bytes, E] = {}
        self._files = 0

    def keep(self, content: bytes, examined: E) -> None:
        """Add an examination."""
        self.take(content)
        self._held[content] = examined
        self._files += len(examined.partitions)
        while self._files > MOST_FILES:
            self.take(next(iter(self._held)))

    def take(self, content: bytes) -> E | None:
        """Remove and return an examination, None if there is none. A publication seldom needs it twice."""
        examined = self._held.pop(content, None)
        if examined is not None:
            self._files -= len(examined.partitions)
        return examined

    def clear(self) -> None:
        """Drop all examinations."""
        self._held.clear()
        self._files = 0
