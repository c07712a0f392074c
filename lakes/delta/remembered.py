"""Cache of verdicts between the check of files and their publication."""

from hashlib import blake2b
from typing import Final

from sluicegate.events.models import FilesWritten

MOST_FILES: Final = 1_000_000
"""Maximum number of files with cached verdicts."""


def content_digest(event: FilesWritten) -> bytes:
    """Return a digest that is equal only for events with equal descriptions of the same files."""
    files = [
        (file.path, file.size, file.rows, sorted(file.partition.items()), len(file.metadata))
        for file in event.files
    ]
    said = (event.format, event.format_version, event.location, event.schema_id, event.spec_id, files)
    digest = blake2b(repr(said).encode(errors="surrogatepass"), digest_size=32)
    digest.update(b"".join([file.metadata for file in event.files]))
    return digest.digest()


class Remembered:
    """Events that passed their examination, by content; the oldest are dropped first."""

    def __init__(self) -> None:
        self._held: dict[bytes, int] = {}
        """Number of files of each event."""
        self._files = 0

    def keep(self, content: bytes, files: int) -> None:
        """Add an event that passed."""
        self.take(content)
        self._held[content] = files
        self._files += files
        while self._files > MOST_FILES:
            self.take(next(iter(self._held)))

    def take(self, content: bytes) -> bool:
        """Remove an event; return False if it is not there. A publication seldom needs it twice."""
        files = self._held.pop(content, None)
        if files is None:
            return False
        self._files -= files
        return True

    def clear(self) -> None:
        """Drop all verdicts."""
        self._held.clear()
        self._files = 0
