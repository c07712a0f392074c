"""Files by their full locations, as Iceberg's metadata names them.

Iceberg compares and stores locations as plain text: nothing in them is percent-encoded or decoded. Events
name folders by canonical URIs.
"""

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.storage import KeySource, Storage
from sluicegate.lakes.storage_local import local_path
from sluicegate.lakes.storages import location_uri, open_storage

_SAME_STORE: Final = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}
"""Schemes with which Hadoop's file systems name a store, and the scheme of its canonical URI."""


_HDFS: Final = "hdfs"


class _Parts(NamedTuple):
    """A location of a file, divided."""

    storage: str
    """Location of a folder that a storage is opened for."""
    folder: str
    """Folder of the file in that storage."""
    name: str

    @property
    def path(self) -> str:
        """The file's name in the storage."""
        return posixpath.join(self.folder, self.name)


class Files:
    """Access to the files of one table, by location."""

    def __init__(self) -> None:
        self._storages: dict[str, Storage] = {}
        self.source: KeySource | None = None
        """Source of the keys of object stores; None: the environment has them."""

    def folder(self, location: str) -> Storage:
        """Return the storage of a folder. Raises TableRefused for a location without support."""
        if location not in self._storages:
            # The storages take URIs, where `%` begins an encoded character. A path is taken as it is.
            self._storages[location] = (
                open_storage(local_of(location))
                if _is_local(location)
                else open_storage(_object_uri(location), self.source)
            )
        return self._storages[location]

    def place(self, location: str) -> tuple[Storage, str]:
        """Return the storage of a file, and its name there. Raises TableRefused."""
        parts = _divided(location)
        return self.folder(parts.storage), parts.path

    def read(self, location: str) -> bytes | None:
        """Return a file's content, None if it does not exist. Raises LakeUnavailable or TableRefused."""
        parts = _divided(location)
        return self.folder(parts.storage).read(parts.path)

    def is_there(self, location: str) -> bool:
        """Return True if a file exists. Raises LakeUnavailable or TableRefused."""
        parts = _divided(location)
        return self.folder(parts.storage).size(parts.path) is not None

    def sizes(self, locations: Sequence[str]) -> list[int | None]:
        """Return the sizes of files, in order; None for a missing one. Raises as `is_there` does.

        Those of one folder are looked at side by side.
        """
        by_folder: dict[str, list[int]] = defaultdict(list)
        parts = [_divided(location) for location in locations]
        for number, each in enumerate(parts):
            by_folder[each.storage].append(number)
        found: list[int | None] = [None] * len(parts)
        for storage, numbers in by_folder.items():
            sizes = self.folder(storage).sizes([parts[number].path for number in numbers])
            for number, size in zip(numbers, sizes, strict=True):
                found[number] = size
        return found

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write new files durably. Raises LakeUnavailable or TableRefused."""
        by_folder: dict[tuple[str, str], dict[str, bytes]] = defaultdict(dict)
        for location, content in files.items():
            parts = _divided(location)
            by_folder[parts.storage, parts.folder][parts.name] = content
        for (storage, folder), named in by_folder.items():
            self.folder(storage).write(folder, named)

    def create(self, location: str, content: bytes) -> None:
        """Write the first file of a table, with the table's folder. Raises as `write` does."""
        self.folder(_divided(location).storage).make_folder()
        self.write({location: content})

    def discard(self, locations: Iterable[str]) -> None:
        """Delete files without references; never fails."""
        for location in locations:
            parts = _divided(location)
            self.folder(parts.storage).discard(parts.folder, [parts.name])


def uri_of(location: str) -> str:
    """Return the canonical URI of a folder, as events have it. Raises TableRefused."""
    return location_uri(local_of(location)) if _is_local(location) else _object_uri(location)


def local_of(location: str) -> str:
    """Return the path of a location on a local file system. Raises TableRefused for other schemes."""
    path = location.removeprefix("file:")
    if path.startswith("//"):
        host, slash, rest = path[2:].partition("/")
        path = slash + rest if host in ("", "localhost") else ""
    if not path.startswith("/"):
        raise TableRefused(
            f"{location!r} is neither on a local file system nor in a store that this release supports. "
            "Use a table on a local or mounted path, in HDFS, S3, Google Cloud Storage or Azure"
        )
    return f"/{posixpath.normpath(path).lstrip('/')}"


def location_of(uri: str) -> str:
    """Return the location that Iceberg's metadata has for the folder of a canonical URI."""
    return f"file://{local_path(uri)}" if _is_local(uri) else uri


def is_location(text: str) -> bool:
    """Return True if a text is the location of a file."""
    return text.startswith(("file:", "/")) or "://" in text


def _is_local(location: str) -> bool:
    return location.startswith(("file:", "/")) or "://" not in location


def _object_uri(location: str) -> str:
    """Return the canonical URI of a folder in an object store. Raises TableRefused."""
    scheme, _, rest = location.partition("://")
    scheme = _SAME_STORE.get(scheme.lower(), scheme.lower())
    uri = location_uri(f"{scheme}://{rest}")
    # HDFS without an authority is the cluster of the settings.
    if uri != f"{scheme}://{rest}" and not (scheme == _HDFS and uri.endswith(rest)):
        raise TableRefused(_two_readings(location))
    return uri


def _divided(location: str) -> _Parts:
    """Divide the location of a file. Raises TableRefused if products read it in several ways."""
    if _is_local(location):
        folder, name = posixpath.split(location)
        parent, base = posixpath.split(folder)
        return _Parts(parent, base, name)
    scheme, _, rest = location.partition("://")
    bucket, _, key = rest.partition("/")
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise TableRefused(_two_readings(location))
    folder, name = posixpath.split(key)
    if scheme.lower() == _HDFS:
        # There the folder of a table exists, and is not made again.
        parent, base = posixpath.split(folder)
        return _Parts(f"{scheme}://{bucket}/{parent}".rstrip("/"), base or ".", name)
    return _Parts(f"{scheme}://{bucket}", folder or ".", name)


def _two_readings(location: str) -> str:
    return (
        f"the location {location!r} has an empty part or dots, which some products keep and others remove. "
        "Give the table a location without these"
    )
