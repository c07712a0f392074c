"""Detection of files that a commit lists twice. It uses about a hundred bytes for each file."""

from collections.abc import Iterable
from hashlib import blake2b
from itertools import chain
from struct import Struct
from typing import Final

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.checked import Checked
from sluicegate.lakes.port import BadFiles

SIZE: Final = 16
"""Bytes of the digest of a path. It is smaller than most paths, and a commit may have a million files."""


_ODD: Final = ("//", "/./", "/../", "#", "?")
"""Of paths that a file system takes for shorter ones, and those that readers of URIs cut."""
_DIGEST: Final = Struct(f"{SIZE}s")


def path_digest(path: str) -> bytes:
    """Return the digest by which a path is compared."""
    return blake2b(path.encode(), digest_size=SIZE).digest()


def is_plain(path: str) -> bool:
    """Return True for a path, or several with a slash between them, that all readers read alike."""
    parts = f"/{path}/"
    return not any(odd in parts for odd in _ODD)


def paths_of(event: FilesWritten) -> bytes:
    """Return the digests of an event's paths, one after the other.

    Raises BadFiles if two are the same, or if a path is not in its one form: by another one, a file could be
    there twice, or an orphan's cleaner could take a file of the table for another one.
    """
    if not is_plain("/".join([file.path for file in event.files])):
        for file in event.files:
            require_plain(file.path)
    digests = [path_digest(file.path) for file in event.files]
    if len(set(digests)) < len(digests):
        seen = Twins()
        for file in event.files:
            seen.add_path(file.path)
    return b"".join(digests)


def require_plain(path: str) -> None:
    """Raise BadFiles for a path that readers do not read alike."""
    if not is_plain(path):
        raise BadFiles(
            f"the path {path!r} has an empty part, dots, '#' or '?', and not all readers find such a file. "
            "Write it without them"
        )


def digests_in(paths: bytes) -> set[bytes]:
    """Return the digests of paths that were joined."""
    # No step of it is Python's: a decision and a publication wait for this, with all their files.
    return set(chain.from_iterable(_DIGEST.iter_unpack(paths)))


def any_twice(paths: Iterable[bytes]) -> bool:
    """Return True if one digest is there twice. Each item is several digests, one after the other."""
    joined = b"".join(paths)
    return len(digests_in(joined)) * SIZE < len(joined)


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

    def add_checked(self, events: Iterable[Checked]) -> bool:
        """Add the files of events that were checked. Return False, and add none, if a file is there twice."""
        joined = b"".join([event.paths for event in events])
        digests = digests_in(joined)
        if len(digests) * SIZE < len(joined) or not self._met.isdisjoint(digests):
            return False
        self._met |= digests
        return True
