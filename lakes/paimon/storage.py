"""What a commit needs of a file system: durable files, and putting one where none may be yet.

Only the local file system is there. An object store gets its own class with the same methods, on top of its
own conditional put.
"""

import contextlib
import errno
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.storage_errors import explain

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})

_NO_SUCH_NAME: Final = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
"""No file can have the name: it is as good as not there, and trying again does not help."""


class Uncertain(Exception):
    """The file may or may not have been put."""


class CannotPut(Exception):
    """The file system has no way to put a file only if there is none."""


class Storage(Protocol):
    """A table's folder; all names are relative to it."""

    uri: str
    root: str

    def read(self, name: str) -> bytes | None:
        """The file's content, None if there is none. Raises LakeUnavailable."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names in a folder, none if it is not there. Raises LakeUnavailable."""
        ...

    def size(self, name: str) -> int | None:
        """The file's size in bytes, None if there is no such file. Raises LakeUnavailable."""
        ...

    def leads_out(self, name: str) -> bool:
        """Whether a name, followed through all links, is outside of the folder."""
        ...

    def is_link(self, name: str) -> bool:
        """Whether the name itself is a link."""
        ...

    def write(self, folder: str, files: dict[str, bytes]) -> None:
        """Write new files, durable before this returns. Raises LakeUnavailable."""
        ...

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Put the file, whole and durable, unless it exists; False: it exists.

        Raises Uncertain, CannotPut, or LakeUnavailable if it was certainly not put.
        """
        ...

    def settle(self, folder: str) -> None:
        """Make the names in a folder durable, whoever put them there. Raises LakeUnavailable."""
        ...

    def hint(self, name: str, content: bytes) -> None:
        """Replace a file that may be lost or late; never fails."""
        ...

    def discard(self, folder: str, names: list[str]) -> None:
        """Remove files that nothing can refer to; never fails."""
        ...

    def remove(self, name: str) -> bool:
        """Remove a file; False: it is not there. Raises LakeUnavailable, as for one outside of the folder."""
        ...


def local_path(location: str) -> str:
    """The absolute path of a `file:` URI or a path. Raises TableRefused for other schemes."""
    parts = urlsplit(location)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        path = unquote(parts.path)
    elif parts.scheme == "" and location:
        path = location
    else:
        raise TableRefused(
            f"{location!r} is not on a local file system: committing there needs a put-if-absent of that "
            "store, which this release does not have. Use a local or mounted path"
        )
    return os.path.abspath(path)


def uri_of(location: str) -> str:
    """The one URI by which a table folder is named in events."""
    return Path(local_path(location)).as_uri()


class LocalStorage:
    """A table's folder on a local file system; snapshots appear by hard links, which never overwrite."""

    def __init__(self, location: str) -> None:
        self.root = local_path(location)
        self.uri = Path(self.root).as_uri()
        self._durable: set[str] = set()
        """Folders of the table whose own names are known to be durable."""

    def read(self, name: str) -> bytes | None:
        try:
            with open(self._path(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unavailable(f"cannot read {name}", name, error) from error

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self._path(folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unavailable(f"cannot list the folder {folder}", folder, error) from error

    def size(self, name: str) -> int | None:
        try:
            return os.stat(self._path(name)).st_size
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            if error.errno in _NO_SUCH_NAME:
                return None
            raise self._unavailable(f"cannot look at {name}", name, error) from error

    def leads_out(self, name: str) -> bool:
        try:
            found = os.path.realpath(self._path(name))
        except ValueError:
            return True
        return not f"{found}/".startswith(f"{os.path.realpath(self.root).rstrip('/')}/")

    def is_link(self, name: str) -> bool:
        return os.path.islink(self._path(name))

    def write(self, folder: str, files: dict[str, bytes]) -> None:
        try:
            self._make(folder)
            for name, content in files.items():
                write_durably(self._path(f"{folder}/{name}"), content)
                hit(Failpoint.PAIMON_MANIFEST_WRITTEN)
            sync_folder(self._path(folder))
            hit(Failpoint.PAIMON_MANIFESTS_DURABLE)
        except OSError as error:
            raise self._unavailable(f"cannot write to the folder {folder}", folder, error) from error

    def put_if_absent(self, name: str, content: bytes) -> bool:
        target = self._path(name)
        folder, base = os.path.split(target)
        draft = f"{folder}/.{base}.{uuid.uuid4()}.tmp"
        try:
            self._draft(draft, content, os.path.dirname(name))
            return self._link(draft, target, folder)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(draft)

    def _make(self, folder: str) -> None:
        """Make a folder of the table, durably. Raises OSError."""
        is_new = not os.path.isdir(self.root)
        os.makedirs(self._path(folder), exist_ok=True)
        if folder not in self._durable:
            # Once for each folder that is found, too: whoever made it may not have synced its name.
            sync_folder(self.root)
            if is_new:
                sync_folder(os.path.dirname(self.root))
            self._durable.add(folder)

    def _draft(self, draft: str, content: bytes, folder: str) -> None:
        """Write the whole file under a name that no reader looks for."""
        try:
            self._make(folder)
            write_durably(draft, content)
            hit(Failpoint.PAIMON_SNAPSHOT_DRAFTED)
        except OSError as error:
            raise self._unavailable("cannot write a snapshot", folder, error) from error

    def _link(self, draft: str, target: str, folder: str) -> bool:
        try:
            self.link(draft, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise CannotPut(f"no hard links in {folder}: {error}") from error
            raise Uncertain(explain(f"cannot link {target}, perhaps", folder, error)) from error
        try:
            hit(Failpoint.PAIMON_SNAPSHOT_LINKED)
            sync_folder(folder)
            hit(Failpoint.PAIMON_SNAPSHOT_DURABLE)
        except OSError as error:
            attempt = f"{target} is visible, but it cannot be made durable"
            raise Uncertain(explain(attempt, folder, error)) from error
        return True

    def link(self, draft: str, target: str) -> None:
        """Make the snapshot visible; the one step that decides a commit."""
        os.link(draft, target)

    def settle(self, folder: str) -> None:
        try:
            sync_folder(self._path(folder))
        except OSError as error:
            raise self._unavailable(f"cannot make the folder {folder} durable", folder, error) from error

    def hint(self, name: str, content: bytes) -> None:
        # In place, not by a rename: the file system would flush it first, and a torn hint does no harm.
        with contextlib.suppress(OSError):
            hit(Failpoint.PAIMON_HINT_BEFORE)
            descriptor = os.open(self._path(name), os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.pwrite(descriptor, content, 0)
                os.ftruncate(descriptor, len(content))
            finally:
                os.close(descriptor)
            hit(Failpoint.PAIMON_HINT_AFTER)

    def discard(self, folder: str, names: list[str]) -> None:
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(self._path(f"{folder}/{name}"))

    def remove(self, name: str) -> bool:
        path = self._path(name)
        try:
            if self.leads_out(os.path.dirname(name)):
                raise LakeUnavailable(f"{name} of {self.uri} leads out of the table by a link: not removed")
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise self._unavailable(f"cannot remove {name}", name, error) from error
        return True

    def _unavailable(self, attempt: str, name: str, error: OSError) -> LakeUnavailable:
        return LakeUnavailable(explain(f"{attempt} of {self.uri}", self._path(name), error))

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"


def write_durably(path: str, content: bytes) -> None:
    """Write a new file and wait until it is on disk. Raises OSError, also if the file exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders_of(root: str, paths: Iterable[str]) -> None:
    """Make all folders durable from the root down to files, by the files' relative paths. Raises OSError."""
    folders = {root}
    for path in paths:
        parts = path.split("/")[:-1]
        folders.update("/".join([root, *parts[:depth]]) for depth in range(1, len(parts) + 1))
    for folder in sorted(folders, reverse=True):
        sync_folder(folder)


def sync_file(path: str) -> None:
    """Make a file's content durable. Raises OSError."""
    sync_folder(path)
