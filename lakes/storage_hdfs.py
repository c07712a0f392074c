"""The storage of a table in HDFS, through hdfs-native: put-if-absent is a rename without overwrite.

The NameNode renames atomically, and never over a file that is there. So a file is drafted, synced and
closed under a hidden name, and appears whole. In place, its name would be visible before its content.

The client waits without end for a server that hangs, and it may repeat a call whose answer was lost. So
each call has a deadline here, and no error of a rename is taken as an answer. The draft answers instead.
Once it is deleted, no rename of it can follow. If it is gone, it was renamed, or someone has removed it.
"""

import contextlib
import getpass
import os
import posixpath
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from io import RawIOBase
from typing import Final, NamedTuple, TypeVar

from hdfs_native import Client, FileStatus, WriteOptions

from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.lakes.port import BadFiles, LakeUnavailable
from sluicegate.lakes.storage import Content, Range, Stamped, Storage, Uncertain, parts_of, whole
from sluicegate.lakes.threads import CommitThreads

_T = TypeVar("_T")
_U = TypeVar("_U")

DEADLINE = 30.0
"""Seconds of one call. A long file is several calls."""
_PIECE: Final = 4 << 20
"""Bytes of one call that reads or writes."""
_AT_ONCE: Final = 32
"""Files that are read or written side by side."""
_MOST_STUCK: Final = 256
"""Calls that may hang. Each keeps its thread until its connection ends, so no more than that are tried."""
_SETTINGS: Final = {
    # Without these, a NameNode that closes connections is asked for three minutes.
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "1000",
    # After this, a read asks another data node. The default is longer than the deadline of a call.
    "dfs.client.socket-timeout": "5000",
}
_SMALL: Final = 1 << 16
"""Bytes of a file that a process reads once, such as a schema."""
_KEPT: Final = 64
"""Contents of such files that a process keeps."""


# Failures of calls: their kind, and sentences with the remedy.


class Kind(Enum):
    """Kind of a failure."""

    TAKEN = "a file with this name exists"
    ABSENT = "there is no such file"
    NO_FILE = "it is a folder"
    NO_FOLDER = "a file stands where a folder must be"
    NO_NAME = "no file can have this name"
    DENIED = "permission denied"
    SAFE_MODE = "the NameNode is in safe mode"
    STANDBY = "the NameNode is on standby"
    QUOTA = "the quota of the folder is used up"
    NO_SPACE = "no data node takes a block"
    UNREACHABLE = "the NameNode cannot be reached"
    LATE = "no answer in time"
    UNCLEAR = "it gave no clear answer"


_HELP: Final[dict[Kind, str]] = {
    Kind.TAKEN: "See what is there, and move it away",
    Kind.ABSENT: "See whether the folder of the table was moved or removed",
    Kind.NO_FILE: "Move the folder away",
    Kind.NO_FOLDER: "Move the file away",
    Kind.NO_NAME: "Use names without ':' and with at most 255 bytes",
    Kind.DENIED: "Give the user {user} the permission to read and write there (hdfs dfs -chown, -chmod)",
    Kind.SAFE_MODE: "Wait until it leaves it, or see why it stays there (hdfs dfsadmin -safemode get)",
    Kind.STANDBY: "Name the nameservice in place of a NameNode, and set HADOOP_CONF_DIR",
    Kind.QUOTA: "Raise the quota, or remove files there (hdfs dfs -count -q)",
    Kind.NO_SPACE: "Free some space, or start data nodes (hdfs dfsadmin -report)",
    Kind.UNREACHABLE: "See whether it runs, and whether this host reaches its address",
    Kind.LATE: "See the health of the NameNode and of the data nodes (hdfs dfsadmin -report)",
}
_SEE_HEALTH: Final = "See the health of HDFS (hdfs dfsadmin -report)"

_ANSWER: Final = re.compile(r'(?:Fatal)?RPCError\("([\w.$]+)", "')
"""Java class of the answer, in the text of an error for which the client has no class."""
_BY_CLASS: Final = {
    "AccessControlException": Kind.DENIED,
    "SafeModeException": Kind.SAFE_MODE,
    "StandbyException": Kind.STANDBY,
    "NSQuotaExceededException": Kind.QUOTA,
    "DSQuotaExceededException": Kind.QUOTA,
    "QuotaByStorageTypeExceededException": Kind.QUOTA,
    "ParentNotDirectoryException": Kind.NO_FOLDER,
    "PathIsNotDirectoryException": Kind.NO_FOLDER,
    "FileAlreadyExistsException": Kind.TAKEN,
    "InvalidPathException": Kind.NO_NAME,
    "PathComponentTooLongException": Kind.NO_NAME,
    "MaxDirectoryItemsExceededException": Kind.QUOTA,
}
_NO_SPACE: Final = ("could only be written to", "could only be replicated to")
_UNREACHABLE: Final = ("Connection refused", "lookup address", "No route to host", "Network is unreachable")
_NAMES: Final = re.compile(r"^([A-Z]\w+)[(\"]")


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call."""

    kind: Kind
    answer: str = ""
    """Class of the server's exception, or of the client's error."""


class _Failed(Exception):
    """A call has failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.kind.value)
        self.failure = failure


def understand(error: BaseException) -> Failure:
    """Return the kind of an error that the client raised. In doubt it is UNCLEAR."""
    text = str(error)
    found = _ANSWER.search(text)
    answer = re.split(r"[.$]", found[1])[-1] if found else ""
    if answer in _BY_CLASS:
        return Failure(_BY_CLASS[answer], answer)
    if "safe mode" in text.lower():
        # A cluster with several NameNodes answers so by another class.
        return Failure(Kind.SAFE_MODE, answer)
    if any(mark in text for mark in _NO_SPACE):
        return Failure(Kind.NO_SPACE, answer)
    if isinstance(error, FileExistsError):
        return Failure(Kind.TAKEN)
    if isinstance(error, FileNotFoundError):
        return Failure(Kind.ABSENT)
    if isinstance(error, IsADirectoryError):
        return Failure(Kind.NO_FILE)
    if isinstance(error, NotADirectoryError):
        return Failure(Kind.NO_FOLDER)
    if any(mark in text for mark in _UNREACHABLE):
        return Failure(Kind.UNREACHABLE)
    named = _NAMES.match(text)
    return Failure(Kind.UNCLEAR, answer or (named[1] if named else type(error).__name__))


def explain_failure(attempt: str, failure: Failure) -> str:
    """Return the sentence for a failure. `attempt` describes the failed step and its place."""
    answer = f" ({failure.answer})" if failure.answer else ""
    help_ = _HELP.get(failure.kind, _SEE_HEALTH).format(user=_user())
    return f"{attempt}: {failure.kind.value}{answer}. {help_}"


def _user() -> str:
    named = os.environ.get("HADOOP_USER_NAME")
    try:
        return named or getpass.getuser()
    except (KeyError, OSError):
        return str(os.geteuid())


# Clients: one for each cluster and user of a process.


class _Place(NamedTuple):
    """A cluster, and the variables with which its client is configured."""

    process: int
    """A fork has no connection and no thread of its parent."""
    authority: str
    configuration: str | None
    """Folder with core-site.xml and hdfs-site.xml."""
    user: str | None


class Cluster:
    """Calls of one cluster, each in a thread of its own, and with a deadline."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._client: Client | None = None
        self._threads = CommitThreads(_AT_ONCE)
        self._kept: dict[tuple[str, str], bytes] = {}
        self._keeping = threading.Lock()

    def call(self, make: Callable[[Client], _T]) -> _T:
        """Return the result of one call. Raises _Failed."""
        client = self._client
        if client is None:
            address = f"hdfs://{self._place.authority}"
            client = self.within(lambda: Client(address, _SETTINGS, self._place.configuration))
            self._client = client
        return self.within(lambda: make(client))

    def kept(self, path: str, stamp: str) -> bytes | None:
        """Return the content of a small file that was read before and has the same stamp."""
        return self._kept.get((path, stamp))

    def keep(self, path: str, stamp: str, content: bytes) -> None:
        """Keep the content of a file, in place of the oldest one."""
        if len(content) <= _SMALL:
            with self._keeping:
                self._kept[path, stamp] = content
                if len(self._kept) > _KEPT:
                    del self._kept[next(iter(self._kept))]

    def within(self, call: Callable[[], _T]) -> _T:
        """Return the result of a call of this cluster's client, or of one of its files. Raises _Failed."""
        if self._threads.stuck() > _MOST_STUCK:
            raise _Failed(Failure(Kind.LATE))
        waiting = self._threads.submit(call)
        try:
            return waiting.result(DEADLINE)
        except TimeoutError as error:
            if waiting.done():
                failure = understand(error)
            else:
                # Its connection may be dead without a sign of it, so the next call opens another one.
                waiting.cancel()
                self._client = None
                failure = Failure(Kind.LATE)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the client is no Exception
            failure = understand(error)
        raise _Failed(failure)


@cache
def _cluster(place: _Place) -> Cluster:
    return Cluster(place)


def _side_by_side(call: Callable[[_U], _T], arguments: Sequence[_U]) -> list[_T]:
    """Return the results of calls, in order. Raises the first error, when no call is under way any more."""
    if len(arguments) < 2:
        return [call(each) for each in arguments]
    with ThreadPoolExecutor(min(len(arguments), _AT_ONCE)) as threads:
        return list(threads.map(call, arguments))


class HdfsStorage:
    """A table's folder in HDFS."""

    local = False
    object_store = False

    def __init__(self, uri: str, authority: str) -> None:
        """Open the folder of a canonical URI. `authority`: nameservice, or host and port of the NameNode."""
        self.uri = self.root = uri
        self._authority = authority
        self._folder = f"/{uri.partition('://')[2].partition('/')[2]}".rstrip("/")
        self._configuration = os.environ.get("HADOOP_CONF_DIR") or None
        self._user = os.environ.get("HADOOP_USER_NAME")
        self._own: tuple[str, str | None] = ("", None)
        """Name and stamp of the latest file that was put."""

    @property
    def _cluster(self) -> Cluster:
        return _cluster(_Place(os.getpid(), self._authority, self._configuration, self._user))

    def make_folder(self) -> None:
        path = self._folder or "/"
        with self._explained("cannot make the folder"):
            self._cluster.call(lambda client: client.mkdirs(path, create_parent=True))

    def read(self, name: str) -> bytes | None:
        found = self.read_stamped(name)
        return None if found is None else found.content

    def read_stamped(self, name: str) -> Stamped | None:
        with self._explained(f"cannot read {name}"):
            return self._read(name, may_be_kept=True)

    def stamp(self, name: str) -> str | None:
        with self._explained(f"cannot look at {name}"):
            found = self._status(name)
        return None if found is None or found.isdir else _stamp(found)

    def stamp_of_put(self, name: str) -> str | None:
        put, stamp = self._own
        return stamp if put == name else None

    def names(self, folder: str, after: str = "") -> list[str]:
        with self._explained(f"cannot list the folder {folder}"):
            return [name for name in self._names(folder) if name > after]

    def size(self, name: str) -> int | None:
        return self.sizes([name])[0]

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        with self._explained("cannot look at files"):
            found = _side_by_side(self._status, names)
        return [None if each is None or each.isdir else each.length for each in found]

    def read_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        with self._explained("cannot read files"):
            return _side_by_side(self._read_range, ranges)

    def leads_out(self, name: str) -> bool:
        return ".." in name.split("/")

    def is_link(self, name: str) -> bool:
        return False

    def has_link(self, name: str) -> bool:
        return self.leads_out(name)

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        attempt = f"cannot write to the folder {folder}"
        with self._explained(attempt):
            self._write(folder, files)
        self._pass_written(attempt, files)

    def _pass_written(self, attempt: str, files: Mapping[str, bytes]) -> None:
        for _ in files:
            self._pass(Failpoint.LAKE_MANIFEST_WRITTEN, attempt)
        self._pass(Failpoint.LAKE_MANIFESTS_DURABLE, attempt)

    def put_if_absent(self, name: str, content: Content, draft: str = "") -> bool:
        return self._put(name, content, draft, None)

    def put_after(
        self, folder: str, files: Mapping[str, bytes], name: str, content: Content, draft: str = ""
    ) -> bool:
        return self._put(name, content, draft, (folder, files))

    def _put(
        self, name: str, content: Content, text: str, first: tuple[str, Mapping[str, bytes]] | None
    ) -> bool:
        """Draft the file, beside the files that come first, and rename the draft."""
        target = self._path(name)
        if target is None:
            raise self._unavailable(f"cannot put {name}", Failure(Kind.NO_NAME))
        folder, base = posixpath.split(name)
        draft = posixpath.join(folder, f".{base}.{text or uuid.uuid4()}.tmp")
        self._own = ("", None)
        try:
            with self._explained(f"cannot put {name}"):
                drafted = self._draft(draft, content, first)
            if first is not None:
                self._pass_written(f"cannot write to the folder {first[0]}", first[1])
            self._pass(Failpoint.LAKE_PUT_BEFORE, f"cannot put {name}")
        except BaseException:
            self.discard(".", [draft])
            raise
        if not self._rename(name, draft, content):
            return False
        self._own = (name, _stamp(drafted))
        try:
            hit(Failpoint.LAKE_PUT_AFTER)
            hit(Failpoint.LAKE_PUT_DURABLE)
        except OSError as error:
            raise Uncertain(f"{name} of {self.uri} may be there: {error}") from error
        return True

    def _draft(
        self, draft: str, content: Content, first: tuple[str, Mapping[str, bytes]] | None
    ) -> FileStatus:
        """Write the draft, and return its status. No reader looks for it, so it waits for no other file."""

        def others() -> None:
            if first is not None:
                self._write(*first)

        _side_by_side(lambda write: write(), [lambda: self._new(draft, content), others])
        found = self._status(draft)
        if found is None:
            raise _Failed(Failure(Kind.ABSENT))
        return found

    def _rename(self, name: str, draft: str, content: Content) -> bool:
        """Rename the draft; return False if another file has the name. Raises as `put_if_absent` does."""
        source, target = self._required(draft), self._required(name)
        try:
            self._cluster.call(lambda client: client.rename(source, target, overwrite=False))
        except _Failed as error:
            failure = error.failure
        else:
            return True
        attempt = f"cannot put {name} of {self.uri}"
        try:
            if self._cluster.call(lambda client: client.delete(source)):
                # Nothing can rename the draft any more, and nothing did.
                if failure.kind is Kind.TAKEN:
                    return False
                raise LakeUnavailable(explain_failure(attempt, failure))
            there = self._read(name)
            if there is not None and there.content == whole(content):
                # Readers see a rename before it is in the NameNode's log.
                self._sync_log(posixpath.dirname(name))
                return True
        except _Failed:
            pass
        else:
            if there is not None:
                return False
        raise Uncertain(explain_failure(f"{attempt}, perhaps", failure))

    def settle(self, folder: str) -> None:
        with self._explained(f"cannot make the folder {folder} durable"):
            self._sync_log(folder)

    def _sync_log(self, folder: str) -> None:
        """Make all earlier changes durable: the NameNode's log has an order, and this call waits for it."""
        name = posixpath.join(folder, f".{uuid.uuid4()}.tmp")
        self._new(name, b"")
        self._delete(name)

    def settle_files(self, names: Sequence[str]) -> None:
        """Do nothing: a closed file has a durable name, and its content is for its writer to sync."""

    def hint(self, name: str, content: bytes) -> None:
        with contextlib.suppress(OSError, _Failed):
            hit(Failpoint.LAKE_HINT_BEFORE)
            self._replace(name, content, sync=False)
            hit(Failpoint.LAKE_HINT_AFTER)

    def replace(self, name: str, content: bytes) -> None:
        with self._explained(f"cannot put {name}"):
            self._replace(name, content)

    def discard(self, folder: str, names: Sequence[str]) -> None:
        def delete(name: str) -> None:
            with contextlib.suppress(_Failed):
                self._delete(posixpath.join(folder, name))

        _side_by_side(delete, names)

    def remove(self, name: str) -> bool:
        if self.leads_out(name):
            raise LakeUnavailable(f"{name} of {self.uri} leads out of the table: not removed")
        with self._explained(f"cannot remove {name}"):
            found = self._status(name)
            # The client would remove an empty folder, too.
            return found is not None and not found.isdir and self._delete(name)

    def copy(self, source: Storage, name: str) -> None:
        content = source.read(name)
        if content is None:
            raise LakeUnavailable(f"{name} of {source.uri} was deleted while it was copied")
        with self._explained(f"cannot copy {name}"):
            self._replace(name, content)

    # --- calls, by names in the folder; all raise _Failed ----------------------------------------------

    def _path(self, name: str) -> str | None:
        """Return the path of a name, None if no file can have that."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if any(part == ".." or ":" in part or "\0" in part for part in parts):
            return None
        return "/".join([self._folder, *parts]) or "/"

    def _required(self, name: str) -> str:
        path = self._path(name)
        if path is None:
            raise _Failed(Failure(Kind.NO_NAME))
        return path

    def _status(self, name: str) -> FileStatus | None:
        path = self._path(name)
        if path is None:
            return None
        try:
            return self._cluster.call(lambda client: client.get_file_info(path))
        except _Failed as error:
            if error.failure.kind in (Kind.ABSENT, Kind.NO_FOLDER, Kind.NO_NAME):
                return None
            raise

    def _names(self, folder: str) -> list[str]:
        path = self._path(folder)
        if path is None:
            return []

        def listed(client: Client) -> list[str]:
            # A file is listed as itself.
            return [each.path for each in client.list_status(path) if each.path != path]

        try:
            found = self._cluster.call(listed)
        except _Failed as error:
            if error.failure.kind in (Kind.ABSENT, Kind.NO_FOLDER, Kind.NO_NAME):
                return []
            raise
        return [each.rpartition("/")[2] for each in found]

    def _read(self, name: str, *, may_be_kept: bool = False) -> Stamped | None:
        found = self._status(name)
        if found is None or found.isdir:
            return None
        path, stamp = self._required(name), _stamp(found)
        if may_be_kept and (there := self._cluster.kept(path, stamp)) is not None:
            return Stamped(there, stamp)
        try:
            file = self._cluster.call(lambda client: client.read(path))
            parts = [
                self._cluster.within(partial(file.read_range, start, min(_PIECE, file.size - start)))
                for start in range(0, file.size, _PIECE)
            ]
        except _Failed as error:
            if error.failure.kind is Kind.ABSENT:
                return None
            raise
        content = b"".join(parts)
        if len(content) != found.length:
            # Another file has taken its place meanwhile.
            return Stamped(content, None)
        # So may one of the same length. Then no file has this stamp any more.
        self._cluster.keep(path, stamp, content)
        return Stamped(content, stamp)

    def _read_range(self, wanted: Range) -> bytes | None:
        path = self._path(wanted.name)
        if path is None:
            return None
        try:
            file = self._cluster.call(lambda client: client.read(path))
            # The client ends in a panic for a range past the end.
            length = min(wanted.length, file.size - wanted.start)
            if length <= 0:
                return b""
            return self._cluster.within(partial(file.read_range, wanted.start, length))
        except _Failed as error:
            failure = error.failure
        if failure.kind is Kind.ABSENT:
            there = self._status(wanted.name)
            if there is None:
                return None
            failure = Failure(Kind.NO_FILE if there.isdir else Kind.UNCLEAR)
        if failure.kind in (Kind.NO_FILE, Kind.NO_FOLDER, Kind.DENIED):
            raise BadFiles(
                f"the file {wanted.name} cannot be read: {failure.kind.value}. Write a file there that "
                "coordinators may read"
            )
        raise _Failed(failure)

    def _write(self, folder: str, files: Mapping[str, bytes]) -> None:
        """Write new files. A call past its deadline may have its effect later."""

        def one(name: str) -> None:
            self._new(posixpath.join(folder, name), files[name])

        _side_by_side(one, list(files))

    def _new(self, name: str, content: Content, *, sync: bool = True) -> None:
        """Write a new file. The folders that lead to it are made, but never the table's own."""
        path = self._required(name)
        options = WriteOptions(create_parent=False, overwrite=False)
        try:
            file = self._cluster.call(lambda client: client.create(path, options))
        except _Failed as error:
            if error.failure.kind is not Kind.ABSENT:
                raise
            self._make_inside(posixpath.dirname(name))
            file = self._cluster.call(lambda client: client.create(path, options))
        empty = True
        try:
            for piece in _pieces(content):
                empty = False
                self._cluster.within(partial(file.write, piece))
            if sync and not empty:
                # Closed files are in the memory of data nodes alone.
                self._cluster.within(file.hsync)
            self._cluster.within(file.close)
        finally:
            # Else the collector closes it once more, in any thread and without a deadline.
            RawIOBase.close(file)

    def _make_inside(self, folder: str) -> None:
        parts = [part for part in folder.split("/") if part not in ("", ".")]
        for depth in range(1, len(parts) + 1):
            path = self._required("/".join(parts[:depth]))
            self._cluster.call(partial(_make_folder, path))

    def _replace(self, name: str, content: bytes, *, sync: bool = True) -> None:
        target = self._required(name)
        folder, base = posixpath.split(name)
        draft = posixpath.join(folder, f".{base}.{uuid.uuid4()}.tmp")
        try:
            self._new(draft, content, sync=sync)
            source = self._required(draft)
            self._cluster.call(lambda client: client.rename(source, target, overwrite=True))
        except BaseException:
            with contextlib.suppress(_Failed):
                self._delete(draft)
            raise

    def _delete(self, name: str) -> bool:
        path = self._required(name)
        try:
            return self._cluster.call(lambda client: client.delete(path))
        except _Failed as error:
            if error.failure.kind in (Kind.ABSENT, Kind.NO_FOLDER):
                return False
            raise

    @contextlib.contextmanager
    def _explained(self, attempt: str) -> Iterator[None]:
        """Raise the failure of a call as LakeUnavailable."""
        try:
            yield
        except _Failed as error:
            failure = error.failure
        else:
            return
        raise self._unavailable(attempt, failure)

    def _unavailable(self, attempt: str, failure: Failure) -> LakeUnavailable:
        return LakeUnavailable(explain_failure(f"{attempt} of {self.uri}", failure))

    def _pass(self, point: Failpoint, attempt: str) -> None:
        try:
            hit(point)
        except OSError as error:
            raise LakeUnavailable(f"{attempt} of {self.uri}: {error}") from error


def _make_folder(path: str, client: Client) -> None:
    client.mkdirs(path, create_parent=False)


def _stamp(found: FileStatus) -> str:
    # The client shows no id of a file. Two files of one name, length and millisecond would need a removal and
    # a rename between the ends of two writers in it.
    return f"{found.modification_time}-{found.length}"


def _pieces(content: Content) -> Iterator[bytes]:
    for part in parts_of(content):
        for start in range(0, len(part), _PIECE):
            yield part[start : start + _PIECE]
