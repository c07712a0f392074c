"""The storage of a table on a local file system: durable writes, and put-if-absent by hard links."""

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sluicegate.events.causes import CauseCode
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.storage import CannotPut, Storage, Uncertain
from sluicegate.lakes.storage_errors import explain

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})

_NO_SUCH_NAME: Final = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
"""Errors for names that no file can have. The file counts as absent, because a retry does not help."""


def local_path(location: str) -> str:
    """Return the absolute path of a `file:` URI or a path. Raises TableRefused for other schemes."""
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
    # POSIX keeps two leading slashes, and gives them no meaning that a table could have.
    return f"/{os.path.abspath(path).lstrip('/')}"


class LocalStorage:
    """A table's folder on a local file system.

    Snapshots appear by hard links, because a link never overwrites an existing file.
    """

    object_store = False

    def __init__(self, location: str) -> None:
        self.root = local_path(location)
        self.uri = Path(self.root).as_uri()
        self._durable: set[str] = set()
        """Folders of the table whose own names are durable."""

    def read(self, name: str) -> bytes | None:
        try:
            with open(self._path(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unavailable(f"cannot read {name}", name, error) from error

    def names(self, folder: str, after: str = "") -> list[str]:
        try:
            return [name for name in os.listdir(self._path(folder)) if name > after]
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

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        return [self.size(name) for name in names]

    def leads_out(self, name: str) -> bool:
        try:
            found = os.path.realpath(self._path(name))
        except ValueError:
            return True
        return not f"{found}/".startswith(f"{os.path.realpath(self.root).rstrip('/')}/")

    def is_link(self, name: str) -> bool:
        return os.path.islink(self._path(name))

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        try:
            self._make(folder)
            for name, content in files.items():
                write_durably(self._path(f"{folder}/{name}"), content)
                hit(Failpoint.LAKE_MANIFEST_WRITTEN)
            sync_folder(self._path(folder))
            hit(Failpoint.LAKE_MANIFESTS_DURABLE)
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
        """Create a folder of the table durably. Raises OSError."""
        is_new = not os.path.isdir(self.root)
        os.makedirs(self._path(folder), exist_ok=True)
        if folder not in self._durable:
            # An existing folder is synced once, too: its creator may not have synced its name.
            sync_folder(self.root)
            if is_new:
                sync_folder(os.path.dirname(self.root))
            self._durable.add(folder)

    def _draft(self, draft: str, content: bytes, folder: str) -> None:
        """Write the complete file under a name that no reader looks for."""
        try:
            self._make(folder)
            write_durably(draft, content)
            hit(Failpoint.LAKE_PUT_BEFORE)
        except OSError as error:
            raise self._unavailable("cannot write a snapshot", folder, error) from error

    def _link(self, draft: str, target: str, folder: str) -> bool:
        try:
            self.link(draft, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_LINKS:
                text = f"no hard links in {folder}: {error}"
                raise CannotPut(text, CauseCode.NO_HARD_LINKS) from error
            # The link may have been made although the call failed.
            raise Uncertain(explain(f"cannot link {target}, perhaps", folder, error)) from error
        try:
            hit(Failpoint.LAKE_PUT_AFTER)
            sync_folder(folder)
            hit(Failpoint.LAKE_PUT_DURABLE)
        except OSError as error:
            attempt = f"{target} is visible, but it cannot be made durable"
            raise Uncertain(explain(attempt, folder, error)) from error
        return True

    def link(self, draft: str, target: str) -> None:
        """Make the snapshot visible. This is the one step that decides a commit."""
        os.link(draft, target)

    def settle(self, folder: str) -> None:
        try:
            sync_folder(self._path(folder))
        except OSError as error:
            raise self._unavailable(f"cannot make the folder {folder} durable", folder, error) from error

    def settle_files(self, names: Sequence[str]) -> None:
        try:
            for name in names:
                sync_file(self._path(name))
            sync_folders_of(self.root, names)
        except OSError as error:
            raise LakeUnavailable(f"cannot make files of {self.uri} durable: {error}") from error

    def hint(self, name: str, content: bytes) -> None:
        # Written in place: with a rename, the file system would flush the file first. An incomplete hint is
        # harmless, because readers verify it.
        with contextlib.suppress(OSError):
            hit(Failpoint.LAKE_HINT_BEFORE)
            descriptor = os.open(self._path(name), os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.pwrite(descriptor, content, 0)
                os.ftruncate(descriptor, len(content))
            finally:
                os.close(descriptor)
            hit(Failpoint.LAKE_HINT_AFTER)

    def discard(self, folder: str, names: Sequence[str]) -> None:
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

    def copy(self, source: Storage, name: str) -> None:
        target = self._path(name)
        folder = os.path.dirname(target)
        draft = f"{folder}/.{uuid.uuid4()}.tmp"
        try:
            os.makedirs(folder, exist_ok=True)
            if isinstance(source, LocalStorage):
                shutil.copyfile(source._path(name), draft)
            else:
                Path(draft).write_bytes(_content(source, name))
            sync_file(draft)
            os.replace(draft, target)
        except OSError as error:
            raise LakeUnavailable(f"cannot copy {name} into {self.uri}: {error}") from error

    def _unavailable(self, attempt: str, name: str, error: OSError) -> LakeUnavailable:
        return LakeUnavailable(explain(f"{attempt} of {self.uri}", self._path(name), error))

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"


def _content(source: Storage, name: str) -> bytes:
    content = source.read(name)
    if content is None:
        raise LakeUnavailable(f"{name} of {source.uri} was deleted while it was copied")
    return content


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
    """Make all folders from the root down to the files durable. `paths` are relative. Raises OSError."""
    folders = {root}
    for path in paths:
        parts = path.split("/")[:-1]
        folders.update("/".join([root, *parts[:depth]]) for depth in range(1, len(parts) + 1))
    # Deepest folders first, so that a durable name never leads to a folder with missing names.
    for folder in sorted(folders, reverse=True):
        sync_folder(folder)


def sync_file(path: str) -> None:
    """Make a file's content durable. Raises OSError."""
    sync_folder(path)
