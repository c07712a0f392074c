"""Files by their full locations, as Iceberg's metadata names them.

Iceberg compares and stores locations as plain text: nothing in them is percent-encoded or decoded. Events
name folders by canonical URIs.
"""

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from sluicegate.lakes.paimon.storage import CannotPut, LocalStorage, Storage, Uncertain, local_path
from sluicegate.lakes.port import TableRefused

__all__ = ["CannotPut", "Files", "Storage", "Uncertain", "event_location_of", "local_of", "same_place"]


class Files:
    """Access to the files of one table, by location."""

    def __init__(self) -> None:
        self._storages: dict[str, Storage] = {}

    def folder(self, location: str) -> Storage:
        """Return the storage of a folder. Raises TableRefused for a scheme without support."""
        path = local_of(location)
        if path not in self._storages:
            self._storages[path] = LocalStorage(path)
        return self._storages[path]

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
            parent, base = posixpath.split(folder.rstrip("/"))
            self.folder(parent).write(base, named)

    def discard(self, locations: Iterable[str]) -> None:
        """Delete files without references; never fails."""
        for location in locations:
            folder, name = posixpath.split(location)
            self.folder(folder).discard(".", [name])


def local_of(location: str) -> str:
    """Return the path of a location on a local file system. Raises TableRefused for other schemes."""
    path = location
    if location.startswith("file:"):
        path = location[len("file:") :]
        if path.startswith("//"):
            host, slash, rest = path[2:].partition("/")
            path = slash + rest if host in ("", "localhost") else ""
    if not path.startswith("/"):
        raise TableRefused(
            f"{location!r} is not on a local file system, which is all that this release supports for "
            "Iceberg. Use a table on a local or mounted path"
        )
    return posixpath.normpath(path)


def event_location_of(location: str) -> str:
    """Return the canonical URI of a folder, as events name it."""
    return Path(local_of(location)).as_uri()


def same_place(setting: str, location: str) -> bool:
    """Return True if a setting (a path or a percent-encoded URI) names this location of the metadata."""
    return local_path(setting) == local_of(location)
