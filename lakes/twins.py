"""Detection of files that a commit lists twice. It uses about a hundred bytes for each file."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.checked import Checked
from sluicegate.lakes.port import BadFiles

SIZE: Final = 16
"""Bytes of the digest of a path. It is smaller than most paths, and a commit may have a million files."""


def path_digest(path: str) -> bytes:
    """Return the digest by which a path is compared."""
    return blake2b(path.encode(), digest_size=SIZE).digest()


def paths_of(event: FilesWritten) -> bytes:
    """Return the digests of an event's paths, one after the other. Raises BadFiles if two are the same."""
    digests = [path_digest(file.path) for file in event.files]
    if len(set(digests)) < len(digests):
        seen = Twins()
        for file in event.files:
            seen.add_path(file.path)
    return b"".join(digests)


def digests_in(paths: bytes) -> Iterator[bytes]:
    """Yield the digests of paths that were joined."""
    return (paths[at : at + SIZE] for at in range(0, len(paths), SIZE))


class Twins:
    """Set of the paths that were added so far."""

    def __init__(self) -> None:
        self._met: set[bytes] = set()

    def add(self, event: FilesWritten) -> None:
        """Add an event's files. Raises BadFiles if one was added before."""
        for file in event.files:
            self.add_path(file.path)

    def add_path(self, path: str) -> None:
        """Add a file. Raises BadFiles if it was added before."""
        met = len(self._met)
        self._met.add(path_digest(path))
        if len(self._met) == met:
            raise BadFiles(f"the file {path} is there twice")

    def add_checked(self, event: Checked) -> bool:
        """Add the files of an event that was checked. Return False, and add none, if one was added before."""
        digests = set(digests_in(event.paths))
        if not self._met.isdisjoint(digests):
            return False
        self._met |= digests
        return True
