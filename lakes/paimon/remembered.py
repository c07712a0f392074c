"""What was examined and has not been published yet, so that a publication need not examine it again."""

from hashlib import blake2b
from typing import Final

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.paimon.entries import Examined

MOST_FILES: Final = 1_000_000
"""Files of which what was found is kept, at some twenty bytes each."""


def content_digest(event: FilesWritten) -> bytes:
    """Equal for events that say the same of the same files, and for no others."""
    files = [
        (file.path, file.size, file.rows, sorted(file.partition.items()), len(file.metadata))
        for file in event.files
    ]
    said = (event.format, event.format_version, event.location, event.schema_id, files)
    digest = blake2b(repr(said).encode(), digest_size=32)
    digest.update(b"".join([file.metadata for file in event.files]))
    return digest.digest()


class Remembered:
    """Examinations by the content of the event; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._held: dict[bytes, Examined] = {}
        self._files = 0

    def keep(self, content: bytes, examined: Examined) -> None:
        """Remember what was found."""
        self.take(content)
        self._held[content] = examined
        self._files += len(examined.partitions)
        while self._files > MOST_FILES:
            self.take(next(iter(self._held)))

    def take(self, content: bytes) -> Examined | None:
        """What was found, which is forgotten with that: a publication seldom needs it twice."""
        examined = self._held.pop(content, None)
        if examined is not None:
            self._files -= len(examined.partitions)
        return examined

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()
        self._files = 0
