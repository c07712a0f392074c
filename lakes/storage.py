"""The port to the storage of a table: one folder of files, on a file system, in HDFS or in an object store.

Table formats read and write their metadata through it alone. `storages.open_storage` opens the one of a
location. Methods block, and are called from threads; a storage is not safe for concurrent calls.

Contract of every implementation (tests/contracts/storages):

- A file is visible whole or not at all, and from the success of its method on to every reader.
- A file that a method has written survives a crash after the method has returned.
- Of several processes that put a file if it is absent, at most one gets True, and its content is there.
- A put that raises LakeUnavailable has made nothing visible. What is not certain is Uncertain, never guessed.
- Folders are made below the table's own one, which `make_folder` alone makes: where it is missing, its file
  system is not mounted, or it was moved away, and files in a new one would hide it or be hidden by it.
- No error contains a credential.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from sluicegate.events.problems import CauseCode
from sluicegate.lakes.port import LakeUnavailable


class Uncertain(Exception):
    """It is unknown if the file was put. The text names the storage, the cause and the remedy."""


class CannotPut(Exception):
    """The storage has no put-if-absent operation. The text says why, the code is that of a cause."""

    def __init__(self, text: str, code: CauseCode) -> None:
        super().__init__(text)
        self.code = code


class Stamped(NamedTuple):
    """A file that was read."""

    content: bytes
    stamp: str | None
    """As `Storage.stamp` returns it, of a moment at which the file had no other content."""


class Range(NamedTuple):
    """A part of a file."""

    name: str
    start: int
    """Number of its first byte, counted from 0."""
    length: int
    """Bytes, at least one."""


class Parts(Protocol):
    """Content that need not be in memory as a whole."""

    def parts(self) -> Iterator[bytes]:
        """Yield the content from its beginning; as often as it is called."""
        ...


Content = bytes | Parts
"""Content of a file to write."""


def parts_of(content: Content) -> Iterator[bytes]:
    """Yield the content in parts."""
    return iter((content,)) if isinstance(content, bytes) else content.parts()


def whole(content: Content) -> bytes:
    """Return the content in one piece."""
    return content if isinstance(content, bytes) else b"".join(content.parts())


class Storage(Protocol):
    """A table's folder. All names are relative to it, with `/` between their parts."""

    uri: str
    """Canonical URI of the folder, as events contain it. Each folder has one."""
    root: str
    """The folder as libraries take it: an absolute path on a local file system, else the URI."""
    local: bool
    """True if `root` is a path, where libraries of this process can make files."""
    object_store: bool
    """True for an object store. There, a writer without a lock can replace a file that is there."""

    def make_folder(self) -> None:
        """Make the folder for a new table, durably, unless it exists. Raises LakeUnavailable."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return the file's content, None if it does not exist. Raises LakeUnavailable."""
        ...

    def read_stamped(self, name: str) -> Stamped | None:
        """Return the file's content and stamp, None if it does not exist. Raises LakeUnavailable."""
        ...

    def stamp(self, name: str) -> str | None:
        """Return a text that is another one after every change of the file, also if another one replaces it.

        None if the file does not exist, or if it could change now without another stamp. It costs a request,
        and reads no content. Raises LakeUnavailable.
        """
        ...

    def stamp_of_put(self, name: str) -> str | None:
        """Return the stamp of the content that the latest put of this storage has put; None if unknown.

        It reads nothing. It is known only if that put was of this name, and returned True.
        """
        ...

    def names(self, folder: str, after: str = "") -> list[str]:
        """Return the names of files and folders in a folder, none if it does not exist; in any order.

        With `after`, only names that follow it in the order of their characters. Raises LakeUnavailable.
        """
        ...

    def size(self, name: str) -> int | None:
        """Return the file's size in bytes, None if it does not exist. Raises LakeUnavailable."""
        ...

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        """Return the sizes of many files, in order, as `size` does. Requests may run side by side."""
        ...

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        """Return parts of files, in order; None for a missing file. Requests may run side by side.

        A file that ends before the end of its range gives fewer bytes, or raises LakeUnavailable. Raises
        BadFiles for a name that this process may not read, or that is no file.
        """
        ...

    def leads_out(self, name: str) -> bool:
        """Return True if a name, with all links resolved, is outside the folder."""
        ...

    def is_link(self, name: str) -> bool:
        """Return True if the name itself is a symbolic link."""
        ...

    def has_link(self, name: str) -> bool:
        """Return True if a symbolic link is on the way from the folder to the name, or is the name itself."""
        ...

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        """Write new files durably, before anything refers to them. Raises LakeUnavailable.

        Nobody else may use their names, so they contain something random. After a failure, some of the files
        may be there: `discard` them. A failed call may be repeated only under other names.
        """
        ...

    def put_if_absent(self, name: str, content: Content, draft: str = "") -> bool:
        """Put the file atomically and durably; return False if another one already exists.

        On a file system, content in parts is written part by part. An object store takes it in one request.
        `draft`: what the name of a temporary file contains, with something random; empty: only that.

        The content must differ from that of every other process, for example by a random id. A request whose
        answer was lost is recognized by the content that is there.

        Raises Uncertain, CannotPut, or LakeUnavailable if it was certainly not put.
        """
        ...

    def put_after(
        self, folder: str, files: Mapping[str, bytes], name: str, content: Content, draft: str = ""
    ) -> bool:
        """Write new files as `write` does; once they are durable, put another one as `put_if_absent` does.

        It may wait for the disk once for both. Raises as both do.
        """
        ...

    def settle(self, folder: str) -> None:
        """Make the names in a folder durable, of any writer. Raises LakeUnavailable."""
        ...

    def settle_files(self, names: Sequence[str]) -> None:
        """Make files of any writer durable, with all folders that lead to them. Raises LakeUnavailable."""
        ...

    def hint(self, name: str, content: bytes) -> None:
        """Replace a file that readers may find missing or outdated; never fails."""
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Put a file whole and durably, also over one that is there. Raises LakeUnavailable."""
        ...

    def discard(self, folder: str, names: Sequence[str]) -> None:
        """Delete files without references; never fails."""
        ...

    def remove(self, name: str) -> bool:
        """Delete a file; return False if it does not exist. Raises LakeUnavailable, also if it is outside the
        folder."""
        ...

    def copy(self, source: "Storage", name: str) -> None:
        """Copy a file of another folder to the same name in this one, over a file that is there.

        It is durable after `settle_files`. Raises LakeUnavailable.
        """
        ...


# Sentences for errors of a file system: the failed attempt, the cause with its error code, the remedy.

_NO_INODES: Final = "no inodes left"

_CAUSES: Final[dict[int, tuple[str, str]]] = {
    errno.ENOSPC: ("no space left on the file system", "Free some space on the file system of {path}"),
    errno.EDQUOT: (
        "the disk quota is used up",
        "Raise the quota of user {user}, or free some space in {path}",
    ),
    errno.EROFS: ("the file system is mounted read-only", "Mount the file system of {path} read-write"),
    errno.EACCES: (
        "permission denied",
        "Give user {user} the permission to read and write {path} and the folders that lead to it",
    ),
    errno.EPERM: (
        "operation not permitted",
        "See whether {path} is immutable (lsattr), who owns it, and whether its file system allows the step",
    ),
    errno.ENOTDIR: ("a file stands where a folder must be", "Move the file away from the path {path}"),
    errno.EEXIST: ("something else stands at the path", "See what stands at {path}, and move it away"),
    errno.EISDIR: ("a folder stands where a file must be", "Move the folder away from the path {path}"),
    errno.ENOENT: ("there is no such folder", "See whether the storage of {path} is mounted"),
    errno.EIO: ("the device reports an input/output error", "See the health of the device of {path} (dmesg)"),
    errno.ESTALE: ("the network file system has lost the file", "Mount the file system of {path} again"),
    errno.EMFILE: ("the process has too many open files", "Raise its limit of open files (ulimit -n)"),
    errno.ENFILE: ("the host has too many open files", "Raise the host's limit of open files (fs.file-max)"),
    errno.EFBIG: ("the file is larger than allowed", "Raise the process's limit of file sizes (ulimit -f)"),
    errno.ETIMEDOUT: ("the storage did not answer in time", "See whether the storage of {path} is reachable"),
}
"""Cause in plain words and remedy, by error code."""


def explain(attempt: str, path: str, error: OSError) -> str:
    """Return the sentence for an error. `attempt` describes the failed step at `path`."""
    code = error.errno
    if code is None:
        return f"{attempt}: {error}. See whether {path} can be read and written"
    cause, help_ = _CAUSES.get(
        code, (os.strerror(code).lower(), "See whether {path} can be read and written")
    )
    if code == errno.ENOSPC and _lacks_inodes(path):
        cause, help_ = f"{_NO_INODES} on the file system", "Remove files from the file system of {path}"
    name = errno.errorcode.get(code, str(code))
    return f"{attempt}: {cause} ({name}). {help_.format(path=path, user=os.geteuid())}"


def unwritable(location: str, error: OSError) -> LakeUnavailable:
    """Return the error of a data file that cannot be written. `location`: URI of the folder of data files."""
    # A writer names its files itself, so the folder is all that a user knows.
    path = unquote(urlsplit(location).path) if location.startswith("file:") else location
    return LakeUnavailable(explain(f"cannot write data files to {location}", path, error))


def is_too_long(error: BaseException) -> bool:
    """True if an error, or one that led to it, is that a name or a path is too long for the file system."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return True
    before = error.__cause__ or error.__context__
    return before is not None and is_too_long(before)


def _lacks_inodes(path: str) -> bool:
    """Return True if the file system has free space but no free inodes."""
    # The path itself may not exist yet, so its nearest existing parent is examined.
    while True:
        try:
            found = os.statvfs(path)
        except OSError:
            parent = os.path.dirname(path)
            if parent == path:
                return False
            path = parent
            continue
        return found.f_files > 0 and found.f_favail == 0 and found.f_bavail > 0


# Keys that a catalog hands out, in place of those of the environment.


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of a bucket in S3, and where it is, as a catalog hands them out."""

    access: str
    secret: str = field(repr=False)
    session: str | None = field(repr=False)
    region: str | None = None
    """None: the environment says it, as with the endpoint."""
    endpoint: str | None = None


class KeySource(Protocol):
    """Source of the keys of a table's storage, such as its catalog. Any thread may ask it."""

    options: Mapping[str, str]
    """Options with which another process makes such a source, `format` among them, and secrets."""

    def keys(self, uri: str) -> Keys:
        """Return keys of a folder, while they are valid the same. Raises LakeUnavailable or TableRefused."""
        ...

    def drop(self, keys: Keys) -> bool:
        """Forget keys that the store refused. Return False if other ones are not to be had by that."""
        ...

    def lifetime(self) -> float | None:
        """Return the seconds for which the newest keys are valid; None if nothing states them."""
        ...


Variables = Callable[[], AbstractContextManager[None]]
"""Entered while clients with keys of a source are made: what it does not name comes from the environment."""


@runtime_checkable
class Keyed(Protocol):
    """Capability of a storage, or of the maintenance of a table there: keys of a source may open it."""

    source: KeySource | None
    """None: those of the environment do."""


def source_options(storage: Storage) -> Mapping[str, str]:
    """Return the options of the source that gives the keys of a storage, none if there is no source."""
    source = storage.source if isinstance(storage, Keyed) else None
    return {} if source is None else source.options
