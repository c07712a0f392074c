"""The storage of a table on a local file system: durable writes, and put-if-absent by hard links."""

import contextlib
import errno
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import wait
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sluicegate.events.problems import CauseCode
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.lakes.port import BadFiles, LakeUnavailable, TableRefused
from sluicegate.lakes.storage import CannotPut, Content, Range, Stamped, Storage, Uncertain, explain, parts_of
from sluicegate.lakes.threads import CommitThreads

# Files and folders of a local file system, written so that they survive a crash.

_AT_ONCE: Final = 4
"""Files that are made durable at the same time."""
_OPEN: Final = 128
"""Files that are open at the same time."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def write_durably(path: str, content: Content, older_by: int = 0) -> os.stat_result:
    """Write a new file, wait until it is on disk, and return what it is then.

    Its time is made older by some nanoseconds. Raises OSError, also if the file exists.
    """
    descriptor = os.open(path, _NEW, 0o666)
    try:
        for part in parts_of(content):
            _write(descriptor, part)
        if older_by:
            written = os.fstat(descriptor)
            os.utime(descriptor, ns=(written.st_atime_ns, written.st_mtime_ns - older_by))
        os.fsync(descriptor)
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def write_all_durably(folder: str, files: Mapping[str, bytes]) -> None:
    """Write new files of one folder, and wait until they and their names are on disk.

    Raises OSError, also if a file exists; then no write is under way any more.
    """
    names = list(files)
    for start in range(0, len(names), _OPEN):
        with contextlib.ExitStack() as stack:
            descriptors = []
            for name in names[start : start + _OPEN]:
                descriptors.append(os.open(f"{folder}/{name}", _NEW, 0o666))
                stack.callback(os.close, descriptors[-1])
                _write(descriptors[-1], files[name])
            _sync_all(descriptors, folder)


def _sync_all(descriptors: Sequence[int], folder: str) -> None:
    """Sync files and their folder side by side: a disk makes several durable at once. Raises OSError."""
    threads = disk_threads(os.getpid())
    syncs = [threads.submit(os.fsync, descriptor) for descriptor in descriptors]
    try:
        # All names are there already.
        sync_folder(folder)
    finally:
        wait(syncs)
    for each in syncs:
        each.result()


@cache
def disk_threads(process: int) -> CommitThreads:
    """Return the threads of this process: a fork has none of its parent's."""
    return CommitThreads(_AT_ONCE)


def make_inside(root: str, folder: str) -> None:
    """Make a folder and those that lead to it from the root. Raises OSError, also if the root is missing."""
    made = root
    os.stat(root)
    for part in folder.split("/"):
        if part in ("", "."):
            continue
        made = f"{made}/{part}"
        try:
            os.mkdir(made)
        except FileExistsError:
            if not os.path.isdir(made):
                raise


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


_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})

_NO_SUCH_NAME: Final = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
"""Errors for names that no file can have. The file counts as absent, because a retry does not help."""
_NOT_READABLE: Final = frozenset(
    {errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV}
)
"""Errors for names of what is no file, or no file for this process. A retry does not help."""

_TICK: Final = 50_000_000
"""Nanoseconds. Times of files change at least that often."""
_COARSE: Final = 2_000_000_000
"""Nanoseconds, where times of files have no part below a millisecond."""


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

    local = True
    object_store = False

    def __init__(self, location: str) -> None:
        self.root = local_path(location)
        self.uri = Path(self.root).as_uri()
        self._durable: set[str] = set()
        """Folders of the table whose own names are durable."""
        self._put: tuple[str, str | None] = ("", None)
        """Name and stamp of the latest file that was put."""

    def make_folder(self) -> None:
        try:
            os.makedirs(self.root, exist_ok=True)
            sync_folder(os.path.dirname(self.root))
        except OSError as error:
            raise self._unavailable("cannot make the folder", "", error) from error

    def read(self, name: str) -> bytes | None:
        found = self.read_stamped(name)
        return None if found is None else found.content

    def read_stamped(self, name: str) -> Stamped | None:
        now = time.time_ns()
        try:
            with open(self._path(name), "rb") as file:
                stamp = _stamp(os.fstat(file.fileno()), now)
                return Stamped(file.read(), stamp)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unavailable(f"cannot read {name}", name, error) from error

    def stamp(self, name: str) -> str | None:
        now = time.time_ns()
        try:
            # A file system of a network asks its server when a file is opened.
            with open(self._path(name), "rb", buffering=0) as file:
                return _stamp(os.fstat(file.fileno()), now)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unavailable(f"cannot look at {name}", name, error) from error

    def stamp_of_put(self, name: str) -> str | None:
        put, stamp = self._put
        return stamp if put == name else None

    def names(self, folder: str, after: str = "") -> list[str]:
        try:
            return [name for name in os.listdir(self._path(folder)) if name > after]
        except (FileNotFoundError, NotADirectoryError):
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

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        return [self._read_range(*each) for each in ranges]

    def _read_range(self, name: str, start: int, length: int) -> bytes | None:
        try:
            with open(self._path(name), "rb", buffering=0) as file:
                return os.pread(file.fileno(), length, start)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NOT_READABLE:
                raise BadFiles(
                    f"the file {name} cannot be read: {error.strerror}. Write a file there that coordinators "
                    "may read"
                ) from error
            raise self._unavailable(f"cannot read {name}", name, error) from error

    def leads_out(self, name: str) -> bool:
        try:
            found = os.path.realpath(self._path(name))
        except ValueError:
            return True
        return not f"{found}/".startswith(f"{os.path.realpath(self.root).rstrip('/')}/")

    def is_link(self, name: str) -> bool:
        return os.path.islink(self._path(name))

    def has_link(self, name: str) -> bool:
        parts = name.split("/")
        # Each folder on the way is looked at once for a whole commit, so this asks for no more than it must.
        return ".." in parts or any(
            self.is_link("/".join(parts[:depth])) for depth in range(1, len(parts) + 1)
        )

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        try:
            self._make(folder)
            write_all_durably(self._path(folder), files)
            for _ in files:
                hit(Failpoint.LAKE_MANIFEST_WRITTEN)
            hit(Failpoint.LAKE_MANIFESTS_DURABLE)
        except OSError as error:
            raise self._unavailable(f"cannot write to the folder {folder}", folder, error) from error

    def put_if_absent(self, name: str, content: Content, draft: str = "") -> bool:
        return self._put_draft(name, draft, lambda path: self._draft(path, content, os.path.dirname(name)))

    def put_after(
        self, folder: str, files: Mapping[str, bytes], name: str, content: Content, draft: str = ""
    ) -> bool:
        def drafted(path: str) -> os.stat_result:
            # No reader looks for the name of the draft, so the draft need not wait for the files.
            making = disk_threads(os.getpid()).submit(self._draft, path, content, os.path.dirname(name))
            try:
                self.write(folder, files)
            finally:
                wait([making])
            return making.result()

        return self._put_draft(name, draft, drafted)

    def _put_draft(self, name: str, text: str, make: Callable[[str], os.stat_result]) -> bool:
        """Put the file that `make` writes durably at the path that it is given."""
        target = self._path(name)
        folder, base = os.path.split(target)
        draft = f"{folder}/.{base}.{text or uuid.uuid4()}.tmp"
        self._put = ("", None)
        try:
            drafted = make(draft)
            try:
                hit(Failpoint.LAKE_PUT_BEFORE)
            except OSError as error:
                raise self._unavailable("cannot put a file", name, error) from error
            put = self._link(draft, target, folder)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(draft)
        if put:
            self._put = (name, _stamp_of(target, drafted))
        return put

    def _make(self, folder: str) -> None:
        """Create a folder of the table durably, but never the table's own. Raises OSError."""
        make_inside(self.root, folder)
        if folder not in self._durable:
            # An existing folder is synced once, too: its creator may not have synced its name.
            sync_folders_of(self.root, [folder])
            self._durable.add(folder)

    def _draft(self, draft: str, content: Content, folder: str) -> os.stat_result:
        """Write the complete file under a name that no reader looks for."""
        try:
            self._make(folder)
            # Whoever changes the file after us gives it another time, however soon.
            return write_durably(draft, content, older_by=_TICK)
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

    def replace(self, name: str, content: bytes) -> None:
        folder, base = os.path.split(name)
        draft = f".{base}.{uuid.uuid4()}.tmp"
        self.write(folder, {draft: content})
        try:
            os.replace(self._path(f"{folder}/{draft}"), self._path(name))
        except OSError as error:
            self.discard(folder, [draft])
            raise self._unavailable(f"cannot put {base} in {folder}", folder, error) from error
        self.settle(folder)

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
            make_inside(self.root, os.path.dirname(name))
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
        return f"{self.root}/{name}" if name else self.root


def _content(source: Storage, name: str) -> bytes:
    content = source.read(name)
    if content is None:
        raise LakeUnavailable(f"{name} of {source.uri} was deleted while it was copied")
    return content


def _stamp(found: os.stat_result, now: int) -> str | None:
    """Return the stamp of a file that was looked at after `now`, in nanoseconds since the Unix epoch.

    None if a change could still leave it the same time.
    """
    tick = _COARSE if found.st_mtime_ns % 1_000_000 == 0 else _TICK
    if now - found.st_mtime_ns < tick:
        return None
    # The time of a change of the file's status also shows a file that was given an older time.
    return f"{found.st_dev}-{found.st_ino}-{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}"


def _stamp_of(path: str, drafted: os.stat_result) -> str | None:
    """Return the stamp of a file that was linked, None if it is not the draft as it was written."""
    now = time.time_ns()
    try:
        found = os.stat(path)
    except OSError:
        return None
    one, other = ((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns) for each in (found, drafted))
    return _stamp(found, now) if one == other else None
