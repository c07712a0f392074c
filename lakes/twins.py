"""Detection of files that a commit lists twice. It uses about a hundred bytes for each file."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.port import BadFiles

SIZE: Final = 16
"""Bytes of the digest of a path. It is smaller than most paths, and a commit may have a million files."""


def path_digest(path: str) -> bytes:
    """Return the digest by which a path is compared."""
    return blake2b(path.encode(), digest_size=SIZE).digest()


class Twins:
    """Set of the paths that were added so far."""

    def __init__(self) -> None:
        self._met: set[bytes] = set()

    def add(self, event: FilesWritten) -> None:
        """Add an event's files. Raises BadFiles if one was added before."""
        for file in event.files:
            met = len(self._met)
            self._met.add(path_digest(file.path))
            if len(self._met) == met:
                raise BadFiles(f"the file {file.path} is there twice")

    def add_digests(self, digests: Iterable[bytes]) -> None:
        """Add paths that are known to be different from each other."""
        self._met.update(digests)
