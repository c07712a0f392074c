"""Spool: a folder of this machine and this user, with files that wait for their upload.

- `files/<attempt>/`: files of one attempt, by their names in the table. Its writer locks the folder.
- `entries/<name>.json`: an entry for each finished attempt. It appears whole, after its files are durable.
- `connections/<key>.json`: newer connections of a task that waits for room, for the entries that wait.
- `reasons/<name>`: why an entry still waits. `given-up/<name>.json`: entries that were reported as lost.
- `uploader.lock`: held by the process that uploads. It has that process's id, if the disk had room.

An entry is removed before its files. So files without an entry and without a writer are garbage.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.lakes.storage_local import sync_folder
from sluicegate.writer_hooks.errors import SpoolUnusable
from sluicegate.writer_hooks.upload.mounts import network_type
from sluicegate.writer_hooks.upload.names import EntryName

if TYPE_CHECKING:
    from sluicegate.writer_hooks.upload.options import Uploads

_CONNECTIONS: Final = "connections"
_FOLDERS: Final = ("entries", "files", _CONNECTIONS, "reasons", "given-up")
_SUFFIX: Final = ".json"
_LOCK: Final = "uploader.lock"
_DRAFT: Final = "."
"""First character of a file that is being written."""
_KEPT: Final = 7 * 86_400
"""Seconds for which the record of an entry that was given up is kept."""
_SAME_TIME: Final = 1_000_000_000
"""Nanoseconds in which a file system may give two changes one time."""
_TRIES: Final = 20
_PAUSE: Final = 0.02
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Record of an entry whose files were reported as lost."""

    stream: str
    region: str
    checkpoint: int
    reason: str
    time: float
    """Seconds since the Unix epoch."""


class Spool:
    """One spool folder. Methods raise OSError if its file system fails."""

    def __init__(self, folder: str) -> None:
        """Use a folder that `make_spool` has made, or that may be missing."""
        self.folder = folder

    # --- files of attempts ------------------------------------------------------------------------

    def files(self, attempt: str) -> str:
        """Return the folder with the files of an attempt."""
        return f"{self.folder}/files/{attempt}"

    def begin(self, attempt: str) -> int:
        """Make the folder of an attempt, and return a descriptor that holds its lock while it is open."""
        path = self.files(attempt)
        while True:
            # A spool that was removed is not made again here: other users could have permissions for it then.
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, mode=0o700)
            descriptor = os.open(path, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # A sweep may have removed it before it was locked.
            if _is_same(path, descriptor):
                return descriptor
            os.close(descriptor)

    def require_files(self, attempt: str, lock: int) -> None:
        """Raise FileNotFoundError unless the folder of an attempt is the one that `begin` has locked."""
        path = self.files(attempt)
        if not _is_same(path, lock):
            raise FileNotFoundError(errno.ENOENT, "the folder of the attempt was removed", path)

    def discard(self, attempt: str) -> None:
        """Remove the files of an attempt that has no entry."""
        shutil.rmtree(self.files(attempt), ignore_errors=True)

    # --- entries ----------------------------------------------------------------------------------

    def names(self) -> list[EntryName]:
        """Return the names of all entries, oldest first. Raises FileNotFoundError without the folder."""
        listed = os.listdir(f"{self.folder}/entries")
        found = (EntryName.parse(name.removesuffix(_SUFFIX)) for name in listed if name.endswith(_SUFFIX))
        return sorted(name for name in found if name is not None)

    def put(self, name: EntryName, entry: str) -> None:
        """Put an entry durably, as JSON. Its files are durable already."""
        sync_folder(f"{self.folder}/files")
        hit(Failpoint.UPLOAD_ENTRY_BEFORE)
        self._replace(f"entries/{name}{_SUFFIX}", entry)
        hit(Failpoint.UPLOAD_ENTRY_AFTER)

    def read(self, name: EntryName) -> str | None:
        """Return an entry as JSON; None if it is not there any more. What is no UTF-8 is replaced."""
        try:
            with open(f"{self.folder}/entries/{name}{_SUFFIX}", encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def remove(self, name: EntryName) -> None:
        """Remove an entry, and after that its files."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.folder}/entries/{name}{_SUFFIX}")
        sync_folder(f"{self.folder}/entries")
        hit(Failpoint.UPLOAD_REMOVED)
        self.discard(name.attempt)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.folder}/reasons/{name}")

    def connect(self, key: str, connection: str) -> None:
        """Put the connections of a task that has no entry yet, as JSON, in place of those of the same key."""
        self._replace(f"{_CONNECTIONS}/{key}{_SUFFIX}", connection)

    def connections(self, newer_than: int) -> tuple[int, list[str]]:
        """Return the connections of tasks as JSON if they have changed, with the time of the change.

        `newer_than` is the time of the last call, in nanoseconds since the Unix epoch.
        """
        path, found = f"{self.folder}/{_CONNECTIONS}", []
        try:
            changed = os.stat(path).st_mtime_ns
        except FileNotFoundError:
            return newer_than, []
        # Several changes may have one time, so a recent one is read again.
        if changed == newer_than and time.time_ns() - changed > _SAME_TIME:
            return changed, []
        for name in os.listdir(path):
            if name.endswith(_SUFFIX):
                with contextlib.suppress(FileNotFoundError), open(f"{path}/{name}", encoding="utf-8") as file:
                    found.append(file.read())
        return changed, found

    def excess(self, uploads: "Uploads", region: str, checkpoint: int) -> str | None:
        """Return the limit that is reached for a task of a checkpoint, as a text; None if there is none."""
        names = self.names()
        size = sum(name.size for name in names)
        if size >= uploads.max_bytes:
            return f"{size} bytes wait for their upload, and upload.max.bytes is {uploads.max_bytes}"
        others = {name.checkpoint for name in names if name.region == region} - {checkpoint}
        if len(others) >= uploads.max_checkpoints:
            return (
                f"files of {len(others)} checkpoints wait for their upload, and upload.max.checkpoints is "
                f"{uploads.max_checkpoints}"
            )
        return None

    # --- what happened to them --------------------------------------------------------------------

    def note(self, name: EntryName, reason: str) -> None:
        """Note why an entry still waits."""
        self._replace(f"reasons/{name}", reason)

    def reason(self, name: EntryName) -> str | None:
        """Return why an entry still waits; None if nothing was noted."""
        try:
            with open(f"{self.folder}/reasons/{name}", encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def give_up(self, name: EntryName, record: GivenUp) -> None:
        """Replace an entry by the record of its loss, which is in the log already."""
        path, text = f"given-up/{name}{_SUFFIX}", json.dumps(asdict(record))
        try:
            self._replace(path, text)
        except OSError:
            # The files of the entry may have the room that the record needs.
            self.remove(name)
            with contextlib.suppress(OSError):
                self._replace(path, text)
        else:
            self.remove(name)

    def given_up(self, since: float, region: str | None = None) -> list[GivenUp]:
        """Return the records since a time in seconds since the Unix epoch, of one region or of all."""
        found = []
        for text in sorted(os.listdir(f"{self.folder}/given-up")):
            name = EntryName.parse(text.removesuffix(_SUFFIX))
            if name is None or region not in (None, name.region):
                continue
            with (
                contextlib.suppress(FileNotFoundError),
                open(f"{self.folder}/given-up/{text}", encoding="utf-8") as file,
            ):
                record = GivenUp(**json.load(file))
                if record.time >= since:
                    found.append(record)
        return found

    def sweep(self) -> None:
        """Remove what nobody needs: files of dead tasks, drafts of killed ones, and old records."""
        for attempt in os.listdir(f"{self.folder}/files"):
            self._sweep_files(attempt)
        now = time.time()
        for folder in ("entries", _CONNECTIONS, "reasons", "given-up"):
            for name in os.listdir(f"{self.folder}/{folder}"):
                path = f"{self.folder}/{folder}/{name}"
                if name.startswith(_DRAFT) or folder in (_CONNECTIONS, "given-up"):
                    with contextlib.suppress(FileNotFoundError):
                        if now - os.stat(path).st_mtime > _KEPT:
                            os.unlink(path)

    def _sweep_files(self, attempt: str) -> None:
        try:
            descriptor = os.open(self.files(attempt), os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A task releases its lock after its entry is there. Entries of other releases count as well.
            if not any(attempt in entry for entry in os.listdir(f"{self.folder}/entries")):
                self.discard(attempt)
        except BlockingIOError:
            return  # its task is alive
        finally:
            os.close(descriptor)

    # --- the uploader -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def uploading(self) -> Iterator[bool]:
        """Hold the lock of the uploader in the block. False: another process holds it."""
        descriptor = _open_lock(self.folder)
        try:
            if not _locked(descriptor):
                yield False
                return
            # The id is for people. A full disk has no room for it, and uploads are what frees the room.
            with contextlib.suppress(OSError):
                os.pwrite(descriptor, f"{os.getpid():<20}\n".encode(), 0)
            yield True
        finally:
            os.close(descriptor)

    def has_uploader(self) -> bool:
        """Return True if a process holds the lock of the uploader."""
        try:
            descriptor = os.open(f"{self.folder}/{_LOCK}", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            # A shared lock: two tasks that look at the same time do not take each other for an uploader.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def _replace(self, name: str, text: str) -> None:
        folder, _, last = name.rpartition("/")
        draft = f"{self.folder}/{folder}/{_DRAFT}{uuid4().hex}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(descriptor)
            os.replace(draft, f"{self.folder}/{folder}/{last}")
        except BaseException:
            # A full disk gets its room back.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)
            raise
        sync_folder(f"{self.folder}/{folder}")


def make_spool(folder: str) -> Spool:
    """Return the spool in a folder, which is made if it is missing. Raises SpoolUnusable."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _require_own(folder)
        _require_local(folder)
        for name in _FOLDERS:
            # A folder that was removed here must not be made by this step: it would have other permissions.
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{folder}/{name}", mode=0o700)
    except OSError as error:
        raise unusable(folder, error) from error
    # A disk that is full later has no room for a new file.
    with contextlib.suppress(OSError):
        os.close(_open_lock(folder))
    return Spool(folder)


def unusable(folder: str, error: OSError) -> SpoolUnusable:
    """Return the error for a folder that cannot be written, or that was removed while it was used."""
    if isinstance(error, FileNotFoundError):
        return SpoolUnusable(
            f"the spool {folder} was removed while it was used. Another attempt is safe, and makes a new "
            "spool. If temporary files are removed there, set upload.spool to a folder that stays"
        )
    return SpoolUnusable(
        f"the spool {folder} cannot be used ({error.strerror or error}). Set upload.spool to a folder of a "
        "local disk with room, that the user of the tasks may write to"
    )


def existing_spool(folder: str) -> Spool:
    """Return the spool in a folder. Raises SpoolUnusable if there is none."""
    if not os.path.isdir(f"{folder}/entries"):
        raise SpoolUnusable(
            f"there is no spool in {folder}. Give the folder of the option upload.spool, on the machine of "
            "the tasks"
        )
    return make_spool(folder)


def _require_own(folder: str) -> None:
    """Refuse a folder that others could have made or can change. Raises SpoolUnusable."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise SpoolUnusable(f"the spool {folder} is no folder, or a link. Set upload.spool to a folder")
    if found.st_uid != os.geteuid():
        raise SpoolUnusable(
            f"the spool {folder} belongs to the user {found.st_uid}, and this process runs as user "
            f"{os.geteuid()}. Set upload.spool to a folder of its own, such as a new one inside of {folder}"
        )
    if found.st_mode & _OTHERS:
        raise SpoolUnusable(
            f"other users have permissions for the spool {folder}, which holds passwords and rows. Run: "
            f"chmod 700 {folder}"
        )


def _require_local(folder: str) -> None:
    """Refuse a folder of which several machines may see different states. Raises SpoolUnusable."""
    found = network_type(folder)
    if found is not None:
        raise SpoolUnusable(
            f"the spool {folder} is in a network file system ({found}), in which machines do not see each "
            "other's locks. Set upload.spool to a folder of a local disk of each machine"
        )


def _open_lock(folder: str) -> int:
    return os.open(f"{folder}/{_LOCK}", os.O_RDWR | os.O_CREAT, 0o600)


def _locked(descriptor: int) -> bool:
    """Take a lock, and return True. False: another uploader holds it."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # A task that looks for an uploader holds the lock for a moment.
            time.sleep(_PAUSE)
        else:
            return True
    return False


def _is_same(path: str, descriptor: int) -> bool:
    try:
        found, held = os.stat(path), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)
