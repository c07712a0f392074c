"""Files by their full locations, as Iceberg's metadata names them.

Iceberg compares and stores locations as plain text: nothing in them is percent-encoded or decoded. Events
name folders by canonical URIs.
"""

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping

from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.storage import Storage
from sluicegate.lakes.storages import open_storage


class Files:
    """Access to the files of one table, by location."""

    def __init__(self) -> None:
        self._storages: dict[str, Storage] = {}

    def folder(self, location: str) -> Storage:
        """Return the storage of a folder. Raises TableRefused for a scheme without support."""
        if location not in self._storages:
            self._storages[location] = folder_of(location)
        return self._storages[location]

    def read(self, location: str) -> bytes | None:
        """Return a file's content, None if it does not exist. Raises LakeUnavailable."""
        folder, name = posixpath.split(location)
        return self.folder(folder).read(name)

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write new files durably. Raises LakeUnavailable."""
        by_folder: dict[str, dict[str, bytes]] = defaultdict(dict)
        for location, content in files.items():
            folder, name = posixpath.split(location)
            by_folder[folder][name] = content
        for folder, named in by_folder.items():
            parent, base = posixpath.split(folder)
            self.folder(parent).write(base, named)

    def discard(self, locations: Iterable[str]) -> None:
        """Delete files without references; never fails."""
        for location in locations:
            parent, base = posixpath.split(posixpath.dirname(location))
            self.folder(parent).discard(base, [posixpath.basename(location)])


def folder_of(location: str) -> Storage:
    """Open the storage of a folder. Raises TableRefused for a scheme without support."""
    # The storages take URIs, where `%` begins an encoded character. A path is taken as it is.
    return open_storage(local_of(location) if _is_local(location) else location)


def local_of(location: str) -> str:
    """Return the path of a location on a local file system. Raises TableRefused for other schemes."""
    path = location.removeprefix("file:")
    if path.startswith("//"):
        host, slash, rest = path[2:].partition("/")
        path = slash + rest if host in ("", "localhost") else ""
    if not path.startswith("/"):
        raise TableRefused(
            f"{location!r} is not on a local file system, which is all that this release supports here. Use "
            "a table on a local or mounted path"
        )
    return posixpath.normpath(path)


def _is_local(location: str) -> bool:
    return location.startswith(("file:", "/"))
