"""Small files below a checkpoint location, local or on a remote store that pyarrow supports, or in HDFS."""

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol
from urllib.parse import unquote
from uuid import uuid4

from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.storages import open_storage
from sluicegate.writer_hooks.errors import BadCheckpointLocation, LocationUnavailable

_SCHEME: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]*):")
_HADOOP_NAMES: Final = {"s3a": "s3", "s3n": "s3"}
_HADOOP_ALONE: Final = ("hdfs:", "viewfs:", "webhdfs:", "swebhdfs:")
_NUMBER: Final = re.compile(r"^\d+$")
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(?://([^/]*))?(.*)")
_SAME_STORES: Final = {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}


class Location:
    """A folder with small files. Every method may raise LocationUnavailable."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._files = _open(uri)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        with self._explained(f"{name} cannot be read"):
            return self._files.read(name)

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically: readers see the old content or the new one."""
        with self._explained(f"{name} cannot be written"):
            self._files.write(name, content)

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        with self._explained(f"{name} cannot be removed"):
            self._files.delete(name)

    def newest(self, folder: str) -> int | None:
        """Return the highest number that is the name of a file in a folder, None if there is none."""
        names = (name.rpartition("/")[2] for name in self.files(folder))
        return max((int(name) for name in names if _NUMBER.match(name)), default=None)

    def files(self, folder: str, *, below: bool = False) -> list[str]:
        """Return the paths of the files in a folder, relative to the location and sorted.

        With `below`, files of all subfolders are included.
        """
        with self._explained(f"{folder} cannot be listed"):
            return sorted(self._files.list(folder, below))

    def move(self, name: str, target: str) -> None:
        """Move a file to a path that does not exist yet."""
        with self._explained(f"{name} cannot be moved"):
            self._files.move(name, target)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ArrowException, LakeUnavailable) as error:
            text = f"in the checkpoint location {self.uri}, {what}: {error}"
            raise LocationUnavailable(text) from error


class ReadOnce(Location):
    """A location for one short work: each file is read once, and all of it sees the same content."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._contents: dict[str, bytes | None] = {}

    def read(self, name: str) -> bytes | None:
        if name not in self._contents:
            self._contents[name] = super().read(name)
        return self._contents[name]


class _Files(Protocol):
    """Files of a location, by their names in it. Methods raise OSError, ArrowException or LakeUnavailable."""

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, content: bytes) -> None: ...

    def delete(self, name: str) -> None: ...

    def list(self, folder: str, below: bool) -> Iterable[str]: ...

    def move(self, name: str, target: str) -> None: ...


class _ArrowFiles:
    """Files through pyarrow."""

    def __init__(self, uri: str) -> None:
        self._files, self._root = _resolve(uri)
        self._is_local = isinstance(self._files, LocalFileSystem)

    def read(self, name: str) -> bytes | None:
        path = self._path(name)
        try:
            if self._is_local:
                # Python's own file takes a part of the time, and a batch waits for several ones.
                with open(path, "rb") as file:
                    return file.read()
            with self._files.open_input_stream(path) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        path = self._path(name)
        # An object store publishes an object when it is complete; a file system needs a rename.
        target = f"{path}.{uuid4().hex}.tmp" if self._is_local else path
        self._files.create_dir(posixpath.dirname(path), recursive=True)
        with self._files.open_output_stream(target) as stream:
            stream.write(content)
        if self._is_local:
            self._files.move(target, path)

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._files.delete_file(self._path(name))

    def list(self, folder: str, below: bool) -> Iterable[str]:
        selector = FileSelector(self._path(folder), allow_not_found=True, recursive=below)
        found = self._files.get_file_info(selector)
        return [posixpath.relpath(each.path, self._root) for each in found if each.type == FileType.File]

    def move(self, name: str, target: str) -> None:
        self._files.create_dir(posixpath.dirname(self._path(target)), recursive=True)
        self._files.move(self._path(name), self._path(target))

    def _path(self, name: str) -> str:
        return posixpath.join(self._root, name)


class _StoredFiles:
    """Files in HDFS. pyarrow's own access needs a JVM in this process, and has no deadlines."""

    def __init__(self, uri: str) -> None:
        self._storage = open_storage(uri)

    def read(self, name: str) -> bytes | None:
        return self._storage.read(name)

    def write(self, name: str, content: bytes) -> None:
        self._storage.make_folder()
        self._storage.replace(name, content)

    def delete(self, name: str) -> None:
        self._storage.remove(name)

    def list(self, folder: str, below: bool) -> Iterable[str]:
        names = [posixpath.join(folder, name) for name in self._storage.names(folder or ".")]
        for name, size in zip(names, self._storage.sizes(names), strict=True):
            if size is not None:
                yield name
            elif below:
                yield from self.list(name, below)

    def move(self, name: str, target: str) -> None:
        content = self._storage.read(name)
        if content is None:
            raise FileNotFoundError(f"there is no file {name}")
        self._storage.replace(target, content)
        self._storage.remove(name)


def _open(uri: str) -> _Files:
    if not uri.startswith(_HADOOP_ALONE):
        return _ArrowFiles(uri)
    try:
        return _StoredFiles(uri)
    except TableRefused as error:
        raise BadCheckpointLocation(
            f"the checkpoint location {uri} cannot be reached from Python: {error}"
        ) from error


def _resolve(uri: str) -> tuple[FileSystem, str]:
    match = _SCHEME.match(uri)
    scheme = match[1] if match else ""
    if not scheme and not uri.startswith("/"):
        raise BadCheckpointLocation(
            f"the checkpoint location {uri} is relative, so that Spark and Python may see different folders; "
            "give an absolute path or a URI"
        )
    target = _HADOOP_NAMES.get(scheme, scheme) + uri[len(scheme) :]
    try:
        files, root = FileSystem.from_uri(target)
    except (OSError, ArrowException) as error:
        # A name that pyarrow does not understand stays wrong. The store itself may answer later.
        kind = LocationUnavailable if isinstance(error, OSError) else BadCheckpointLocation
        raise kind(
            f"the checkpoint location {uri} cannot be reached from Python: {error}. Supported are local "
            "paths, file:, s3:, s3a:, gs:, abfs(s): and hdfs: URIs, with the credentials that the "
            "driver's machine has"
        ) from error
    return files, root


def may_be_same(location: str, other: str) -> bool:
    """Return False if two names of locations can be compared and differ."""
    # Else one of them may be the other one's mount, such as /dbfs/a of dbfs:/a.
    return is_same(location, other) or _parts(location)[0] != _parts(other)[0]


def is_same(location: str, other: str) -> bool:
    """Return True if two names of locations, in the same store, mean the same folder."""
    (store, host, path), (other_store, other_host, other_path) = _parts(location), _parts(other)
    if store != other_store or (host and other_host and host != other_host):
        return False
    if store == "file":
        path, other_path = os.path.realpath(path), os.path.realpath(other_path)
    return path.rstrip("/") == other_path.rstrip("/")


def _parts(location: str) -> tuple[str, str, str]:
    """Return store, host and path of a location."""
    found = _URI.fullmatch(location)
    if found is None:
        return "file", "", location
    store, host, path = found.groups()
    return _SAME_STORES.get(store, store), host or "", unquote(path)
