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
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self
from uuid import uuid4

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import FilesWritten
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.lakes.storage_local import sync_folder
from sluicegate.texts import counted
from sluicegate.writer_hooks.errors import SpoolUnusable
from sluicegate.writer_hooks.options import Uploads
from sluicegate.writer_hooks.region import DEFAULT_PREFIX, Attempt, Event, Region

# --- files that are lost ------------------------------------------------------------------------------


class Lost(Exception):
    """Files of an entry can never be uploaded. The text is the reason."""


def format_way_back(stream: str, region: str) -> str:
    """Return the remedy for a region whose files are lost."""
    return (
        f"set it back with: sluicegate region reset --stream {stream} --region {region} "
        "--checkpoint-location LOCATION (a query of Spark), or start its driver again (plain Python)"
    )


# --- names of entries ---------------------------------------------------------------------------------

_NAME: Final = re.compile(r"(\d{20})\.([0-9a-f]{16})\.(\d{1,19})\.(\d{1,19})\.([0-9a-f]{32})")


class EntryName(NamedTuple):
    """Name of an entry, which has what the limits of a spool count. Names are in the order of their times."""

    created: int
    """Nanoseconds since the Unix epoch."""
    region: str
    """Digest of stream, region and incarnation."""
    checkpoint: int
    size: int
    """Bytes of its files."""
    attempt: str

    def __str__(self) -> str:
        return f"{self.created:020d}.{self.region}.{self.checkpoint}.{self.size}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> "EntryName | None":
        """Read a name; None if it is not that of an entry."""
        found = _NAME.fullmatch(text)
        if found is None:
            return None
        created, region, checkpoint, size, attempt = found.groups()
        return cls(int(created), region, int(checkpoint), int(size), attempt)


# --- network file systems, which a spool cannot use ---------------------------------------------------

_NETWORK: Final = frozenset(
    {"afs", "beegfs", "ceph", "cifs", "gpfs", "glusterfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"}
)
"""File systems that several machines share, which do not see each other's locks in all cases."""
_FUSE: Final = "fuse."
_REMOTE_FUSE: Final = frozenset(
    {
        "blobfuse",
        "blobfuse2",
        "ceph",
        "gcsfuse",
        "glusterfs",
        "juicefs",
        "mount-s3",
        "rclone",
        "s3fs",
        "sshfs",
    }
)


def network_type(folder: str, mounts: str = "/proc/self/mounts") -> str | None:
    """Return the type of a network file system that a folder is in; None for others, and where it is unknown.

    `mounts` is the file in which Linux lists what is mounted.
    """
    place = os.path.realpath(folder)
    best, found = "", ""
    with contextlib.suppress(OSError), open(mounts, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            fields = line.split(" ")
            # A later one at the same place covers the earlier one.
            if len(fields) > 2 and len(point := _unescaped(fields[1])) >= len(best) and _is_in(place, point):
                best, found = point, fields[2]
    is_remote = found in _NETWORK or (
        found.startswith(_FUSE) and found.removeprefix(_FUSE) in _REMOTE_FUSE | _NETWORK
    )
    return found if is_remote else None


def _is_in(place: str, point: str) -> bool:
    return place == point or place.startswith(point.rstrip("/") + "/")


def _unescaped(text: str) -> str:
    """Return a path without the escapes of the list."""
    for octal in ("040", "011", "012", "134"):
        text = text.replace(f"\\{octal}", chr(int(octal, 8)))
    return text


# --- an entry: files of an attempt, where they go, and events to publish then -------------------------

ENTRY_VERSION: Final = 1
_OF_STORES: Final = ("AWS_", "GOOGLE_", "AZURE_", "HADOOP_", "KRB5")
"""Beginnings of the variables with which a process reaches an object store or HDFS."""


def store_variables() -> dict[str, str]:
    """Return the variables with which this process reaches object stores and HDFS."""
    return {name: value for name, value in os.environ.items() if name.startswith(_OF_STORES)}


def region_key(region: Region, incarnation: str) -> str:
    """Return the digest of one incarnation of a region that names of entries have."""
    text = json.dumps([region.stream, region.name, incarnation])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class SpooledFile(NamedTuple):
    """A file of an entry."""

    name: str
    """Relative to the target storage, and to the folder of the attempt."""
    size: int
    digest: str
    """SHA-256 of its content."""


class BadEntry(ValueError):
    """The text is no entry that this release can read."""


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections of a task to Kafka and to the store of its table. They may contain secrets."""

    created: int
    """Nanoseconds since the Unix epoch."""
    stream: str
    region: str
    storage: str
    """URI of the folder that the files go to."""
    keys_of: Mapping[str, str] = field(repr=False)
    """Options of the catalog that gives the keys of the storage; empty: the environment has them."""
    log: tuple[tuple[str, str], ...] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)

    @property
    def deployment(self) -> tuple[str, str]:
        """Brokers and prefix of the topics. Two deployments may have equal names of streams and tables."""
        options = {name.lower(): value for name, value in self.log}
        return options.get("kafka.bootstrap.servers", ""), options.get("topic.prefix", DEFAULT_PREFIX)

    @property
    def key(self) -> str:
        """Digest of the deployment, the region and its store."""
        text = json.dumps([*self.deployment, self.stream, self.region, self.storage])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """Return the connections as JSON."""
        return json.dumps({"version": ENTRY_VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the result of `to_json`. Raises BadEntry."""
        try:
            found = json.loads(text)
            if found.pop("version") != ENTRY_VERSION:
                raise BadEntry("they are of another release")
            return cls(**{**found, "log": tuple(map(tuple, found["log"]))})
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise BadEntry(f"these are no connections of a task: {error}") from error


@dataclass(frozen=True, slots=True)
class Entry:
    """Files of one attempt, with everything that an uploader needs for them."""

    storage: str
    """URI of the folder that the files go to."""
    files: tuple[SpooledFile, ...]
    events: tuple[Event, ...]
    uploads: Uploads
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables with which the task reached the object store. They may contain a secret."""
    keys_of: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the catalog that gives the keys of the storage; empty: the environment has them."""
    path: tuple[str, ...] = ()
    """Folders in which the task found its modules."""

    @classmethod
    def of_task(
        cls,
        storage: str,
        files: Sequence[SpooledFile],
        events: Sequence[Event],
        uploads: Uploads,
        keys_of: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Return the entry of a task that runs in this process."""
        of_task = (uploads, store_variables(), dict(keys_of), search_path())
        return cls(storage, tuple(files), tuple(events), *of_task)

    @property
    def about(self) -> Envelope:
        """Attributes of its first event, which has the stream, the region and the checkpoint of all."""
        return self.events[0].envelope

    def connections(self, created: int) -> Connections:
        """Return the connections of its task."""
        about = self.about
        return Connections(
            *(created, about.stream, about.region, self.storage, self.keys_of),
            *(self.uploads.log, self.environment),
        )

    def to_json(self) -> str:
        """Return the entry as JSON."""
        events = [
            {"envelope": event.envelope._asdict(), "body": event.body.model_dump_json()}
            for event in self.events
        ]
        return json.dumps(
            {
                "version": ENTRY_VERSION,
                "storage": self.storage,
                "files": [file._asdict() for file in self.files],
                "events": events,
                "uploads": asdict(self.uploads),
                "environment": dict(self.environment),
                "keys_of": dict(self.keys_of),
                "path": self.path,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the result of `to_json`. Raises BadEntry."""
        try:
            found = json.loads(text)
            if found["version"] != ENTRY_VERSION:
                raise BadEntry(f"it has version {found['version']}, and this release reads {ENTRY_VERSION}")
            uploads = {**found["uploads"], "log": tuple(map(tuple, found["uploads"]["log"]))}
            if not found["events"]:
                raise BadEntry("it has no events")
            return cls(
                found["storage"],
                tuple(SpooledFile(**file) for file in found["files"]),
                tuple(_event(event) for event in found["events"]),
                Uploads(**uploads),
                found["environment"],
                found["keys_of"],
                tuple(found["path"]),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise BadEntry(f"this is no entry of a spool: {error}") from error


def search_path() -> tuple[str, ...]:
    """Return the folders in which this process finds its modules, for a process with another folder."""
    return tuple(part or os.getcwd() for part in sys.path)


def _event(found: Mapping[str, Any]) -> Event:
    envelope = Envelope(**{**found["envelope"], "type": EventType(found["envelope"]["type"])})
    return Event(envelope, FilesWritten.model_validate_json(found["body"]))


def name_of(region: Region, attempt: Attempt, files: Sequence[SpooledFile], created: int) -> EntryName:
    """Return the name of the entry of an attempt."""
    size = sum(file.size for file in files)
    return EntryName(created, region_key(region, attempt.incarnation), attempt.checkpoint, size, attempt.id)


def read_entry(spool: "Spool", name: EntryName) -> Entry | None:
    """Return an entry of a spool; None if it is not there any more. Raises BadEntry."""
    text = spool.read(name)
    return None if text is None else Entry.from_json(text)


# --- the folder ---------------------------------------------------------------------------------------

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

    def excess(self, uploads: "Uploads") -> str | None:
        """Return the limit that is reached, as a text; None if another task may write."""
        size = sum(name.size for name in self.names())
        if size < uploads.max_bytes:
            return None
        return f"waiting for the upload: {counted(size, 'byte')}, and upload.max.bytes is {uploads.max_bytes}"

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
