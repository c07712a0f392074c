"""Uploader of a spool: sends its entries, several at a time, and again after failures."""

import contextlib
import hashlib
import logging
import os
import posixpath
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import CheckpointFailed
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.kafka.clients import spread
from sluicegate.lakes.capabilities import HandsOutKeys
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.registry import adapter
from sluicegate.lakes.storage import KeySource, Storage
from sluicegate.lakes.storage_local import LocalStorage
from sluicegate.lakes.storages import open_storage
from sluicegate.writer_hooks.errors import HookError, PublishFailed
from sluicegate.writer_hooks.options import BEFORE_PUBLISH, log_of, seconds
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Event, add_facts
from sluicegate.writer_hooks.upload.before_publish import WorkFailed, call_before_publish
from sluicegate.writer_hooks.upload.spool import (
    BadEntry,
    Connections,
    Entry,
    EntryName,
    GivenUp,
    Lost,
    Spool,
    SpooledFile,
    format_way_back,
    read_entry,
    store_variables,
)

# --- one entry: its files, its events, its removal; each step may be repeated -------------------------

_PUBLISH_TIMEOUT: Final = 60.0
_opening: Final = threading.Lock()
"""Held while the variables of this process are those of an entry."""


class Credentials:
    """Newest connections of the tasks: an older entry of the same region, or store, uses them too.

    Connections of one deployment never serve another one, whose streams, regions and tables may have equal
    names.
    """

    def __init__(self) -> None:
        self._of_regions: dict[tuple[str, ...], Connections] = {}
        self._of_stores: dict[tuple[str, ...], Connections] = {}
        self._sources: dict[tuple[tuple[str, str], ...], tuple[Mapping[str, str], KeySource]] = {}
        """By their options, the catalogs that give keys: entries of one table share the keys. Each has the
        variables with which it was made."""

    def note(self, found: Connections) -> None:
        """Note the connections of a task."""
        for newest, key in ((self._of_regions, _region(found)), (self._of_stores, _store(found))):
            newest[key] = max(newest.get(key, found), found, key=_age)

    def log(self, entry: Entry) -> Mapping[str, str]:
        """Return the options of the connection to Kafka."""
        own = entry.connections(0)
        return dict(self._of_regions.get(_region(own), own).log)

    def _connections(self, entry: Entry) -> Connections:
        own = entry.connections(0)
        return self._of_stores.get(_store(own), own)

    def environment(self, entry: Entry) -> dict[str, str]:
        """Return the variables of this process, with those of the entry's store and of no other one."""
        variables = self._connections(entry).environment
        with _opening:
            own = {name: value for name, value in os.environ.items() if name not in store_variables()}
        return {**own, **variables}

    def open(self, entry: Entry) -> Storage:
        """Open the storage that the files go to. Raises TableRefused."""
        found = self._connections(entry)
        variables = partial(_variables, found.environment)
        with variables():
            return open_storage(entry.storage, self._source(found), variables)

    def _source(self, found: Connections) -> KeySource | None:
        """Return the catalog that gives the keys of a storage, None if the environment has them."""
        options = found.keys_of
        if not options:
            return None
        key = tuple(sorted(options.items()))
        variables, source = self._sources.get(key, (None, None))
        if source is None or variables != found.environment:
            format_ = adapter(options["format"])
            source = format_.key_source(options) if isinstance(format_, HandsOutKeys) else None
            if source is None:
                raise TableRefused(
                    f"the format {format_.name} gives no keys of a storage any more. Install the release "
                    "with which the files were written"
                )
            self._sources[key] = found.environment, source
        return source


@contextlib.contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """Have these as the only variables of object stores and HDFS."""
    with _opening:
        before = store_variables()
        try:
            _set_variables(wanted)
            yield
        finally:
            _set_variables(before)


def _set_variables(wanted: Mapping[str, str]) -> None:
    """Make these the only variables of object stores and HDFS."""
    for name in store_variables().keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


def _region(found: Connections) -> tuple[str, ...]:
    return (*found.deployment, found.stream, found.region)


def _store(found: Connections) -> tuple[str, ...]:
    return (*found.deployment, found.stream, found.storage)


def _age(found: Connections) -> int:
    return found.created


@dataclass(slots=True)
class Progress:
    """Steps that this process has made for one entry, so that a later try does not repeat them."""

    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    """By the names of files, results of the user's function."""
    uploaded: set[str] = field(default_factory=set)
    """Files that were put."""


def send(spool: Spool, name: EntryName, entry: Entry, credentials: Credentials, done: Progress) -> None:
    """Upload the files of an entry, publish its events, and remove it.

    `done` has the steps of earlier tries, and gets further ones. Raises Lost, WorkFailed, LakeUnavailable,
    TableRefused, and the errors of `publish_files`.
    """
    waiting = [file for file in entry.files if file.name not in done.uploaded]
    folder = spool.files(name.attempt)
    if waiting:
        storage = credentials.open(entry)
        _require_folder(storage)
    for file in waiting:
        require_whole(folder, file)
        if entry.uploads.before_publish is not None and file.name not in done.facts:
            done.facts[file.name] = call_before_publish(
                entry.uploads.before_publish,
                f"{folder}/{file.name}",
                posixpath.join(storage.uri, file.name),
                path=entry.path,
                environment=credentials.environment(entry),
            )
            require_whole(folder, file)
        put(storage, folder, file)
        done.uploaded.add(file.name)
    hit(Failpoint.UPLOAD_PUBLISH_BEFORE)
    _publish(credentials.log(entry), add_facts(entry.events, done.facts))
    hit(Failpoint.UPLOAD_PUBLISH_AFTER)
    spool.remove(name)


def report_lost(spool: Spool, name: EntryName, entry: Entry, reason: str, credentials: Credentials) -> None:
    """Publish that the files of an entry are lost, and give the entry up. Raises as `publish` does."""
    about = entry.about
    hit(Failpoint.UPLOAD_LOST_BEFORE)
    place = (about.stream, about.region, about.incarnation, about.checkpoint)
    # A repeated report is the same event.
    event = str(uuid5(NAMESPACE_OID, f"lost {name.attempt}"))
    envelope = Envelope(event, EventType.CHECKPOINT_FAILED, *place)
    body = CheckpointFailed(outcome="lost", reason=reason)
    _publish(credentials.log(entry), (Event(envelope, body),))
    hit(Failpoint.UPLOAD_LOST_AFTER)
    spool.give_up(name, GivenUp(about.stream, about.region, about.checkpoint, reason, time.time()))


def _publish(options: Mapping[str, str], events: tuple[Event, ...]) -> None:
    kafka, topics = log_of(options)
    timeout = seconds(options, "publish.timeout", _PUBLISH_TIMEOUT)
    shared_publisher(kafka).publish(topics.events, events, timeout)


def require_whole(folder: str, file: SpooledFile) -> None:
    """Raise Lost unless the local file has the content that its task has written."""
    path = f"{folder}/{file.name}"
    try:
        with open(path, "rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise Lost(f"the local file {path} cannot be read ({error.strerror or error})") from error
    if found != file.digest:
        raise Lost(f"the local file {path} has other content than its task has written")


def _require_folder(storage: Storage) -> None:
    """Raise LakeUnavailable if the folder of a table is away, such as one that is not mounted."""
    if storage.local and not os.path.isdir(storage.root):
        raise LakeUnavailable(
            f"the folder {storage.root} does not exist on this machine, so its file system may not be "
            "mounted. Mount it; the files wait"
        )


def put(storage: Storage, folder: str, file: SpooledFile) -> None:
    """Put a file at its final place. A file that is there is never replaced. Raises Lost, LakeUnavailable."""
    there = storage.size(file.name)
    if there is None:
        hit(Failpoint.UPLOAD_PUT_BEFORE)
        storage.copy(LocalStorage(folder), file.name)
    elif there != file.size or _digest(storage, file.name) != file.digest:
        raise Lost(f"another file is at {posixpath.join(storage.uri, file.name)}, and it is not replaced")
    # Also of an earlier attempt, which may have ended before it was durable.
    storage.settle_files([file.name])
    hit(Failpoint.UPLOAD_PUT_AFTER)


def _digest(storage: Storage, name: str) -> str | None:
    content = storage.read(name)
    return None if content is None else hashlib.sha256(content).hexdigest()


# --- the uploader of a spool --------------------------------------------------------------------------

_log = logging.getLogger(__name__)

_POLL: Final = 0.05
"""Seconds between two listings of a spool."""
_SWEEP: Final = 60.0
"""Seconds between two sweeps."""
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 15.0
_MOST: Final = 64


@dataclass(slots=True)
class _Work:
    """An entry that was seen."""

    threads: int = 1
    target: tuple[object, ...] = ()
    """Storage and connection to Kafka. Entries of one target fail together."""
    failed: int = 0
    failing_since: float | None = None
    due: float = 0.0
    """Time of the next attempt. All times are monotonic seconds."""
    done: Progress = field(default_factory=Progress)


@dataclass(slots=True)
class Uploader:
    """Uploader of one spool. Only the holder of its lock runs one."""

    spool: Spool
    _works: dict[EntryName, _Work] = field(default_factory=dict)
    _running: dict[Future[None], EntryName] = field(default_factory=dict)
    _credentials: Credentials = field(default_factory=Credentials)
    _failures: set[str] = field(default_factory=set)
    """Classes of failures that were logged since the last success."""
    _swept: float = float("-inf")
    _connected: int = 0
    """Time at which the connections of waiting tasks have changed."""

    def run(self, ends: Callable[[bool], bool]) -> None:
        """Send entries until `ends` returns True, which is asked with True if the spool is empty.

        Entries that are under way are sent to their end. Raises OSError if the spool cannot be read.
        """
        with ThreadPoolExecutor(_MOST, thread_name_prefix="sluicegate-upload") as pool:
            while True:
                names = self.spool.names()
                self._note(names)
                for name in self._next(names):
                    self._running[pool.submit(self._attempt, name)] = name
                if ends(not names and not self._running):
                    return
                self._await()

    def _note(self, names: list[EntryName]) -> None:
        """Note new entries, and forget those that are gone."""
        known = set(names)
        self._works = {name: work for name, work in self._works.items() if name in known}
        for name in names:
            if name not in self._works:
                self._works[name] = self._begin(name)
        self._connected, texts = self.spool.connections(self._connected)
        for text in texts:
            with contextlib.suppress(BadEntry):
                self._credentials.note(Connections.from_json(text))
        if time.monotonic() - self._swept >= _SWEEP:
            self._swept = time.monotonic()
            try:
                self.spool.sweep()
            except OSError as error:
                _log.warning("files that nobody needs stay in the spool %s: %s", self.spool.folder, error)

    def _begin(self, name: EntryName) -> _Work:
        """Return the work of a new entry. One that cannot be read stays, perhaps for another release."""
        try:
            entry = read_entry(self.spool, name)
        except (BadEntry, OSError):
            entry = None
        if entry is None:
            return _Work()
        self._credentials.note(entry.connections(name.created))
        return _Work(entry.uploads.threads, (entry.storage, *entry.uploads.log))

    def _next(self, names: list[EntryName]) -> list[EntryName]:
        """Return the entries to send now, oldest first.

        Targets take turns, and one that fails has one try at a time, so that it does not hold up the others.
        """
        now, running = time.monotonic(), set(self._running.values())
        busy = Counter(work.target for name, work in self._works.items() if name in running)
        failing = {work.target for work in self._works.values() if work.failed}
        due = [name for name in names if name not in running and self._works[name].due <= now]
        # The newest task decides for its machine.
        most = self._works[max(self._works)].threads if self._works else 1
        found: list[EntryName] = []
        while due and len(running) + len(found) < most:
            name = min(due, key=lambda each: busy[self._works[each].target])
            due.remove(name)
            target = self._works[name].target
            if target not in failing or not busy[target]:
                busy[target] += 1
                found.append(name)
        return found

    def _await(self) -> None:
        """Wait until an entry is sent, or for the next listing."""
        if not self._running:
            time.sleep(_POLL)
            return
        done, _ = wait(self._running, timeout=_POLL, return_when=FIRST_COMPLETED)
        for each in done:
            self._finish(self._running.pop(each), each)

    def _finish(self, name: EntryName, done: Future[None]) -> None:
        error, work = done.exception(), self._works.get(name)
        if error is None:
            if self._failures:
                _log.warning("the uploads of the spool %s succeed again", self.spool.folder)
            self._failures.clear()
        elif work is not None:
            work.failed += 1
            if isinstance(error, WorkFailed):
                # The storage is not known to fail: its other entries do not wait, and no time counts.
                work.failing_since = None
                work.target = (*(each for each in work.target if each != BEFORE_PUBLISH), BEFORE_PUBLISH)
            elif work.failing_since is None:
                work.failing_since = time.monotonic()
            work.due = time.monotonic() + spread(
                min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(work.failed, 16))
            )
            self._note_failure(name, error)

    def _note_failure(self, name: EntryName, error: BaseException) -> None:
        kind = type(error).__name__
        if kind in self._failures:
            return
        self._failures.add(kind)
        expected = isinstance(
            error, LakeUnavailable | TableRefused | HookError | OSError | BadEntry | WorkFailed
        )
        _log.warning(
            "files of checkpoint %d wait in the spool %s: %s: %s. They are tried again, with longer pauses; "
            "further failures of this kind are not logged until one upload succeeds",
            *(name.checkpoint, self.spool.folder, kind, error),
            exc_info=None if expected else error,
        )

    # --- in threads -------------------------------------------------------------------------------

    def _attempt(self, name: EntryName) -> None:
        """Send one entry, or report that its files are lost."""
        work = self._works.get(name) or _Work()
        try:
            entry = read_entry(self.spool, name)
        except (BadEntry, OSError) as error:
            self._note_reason(name, f"the entry stays, and cannot be read: {error}")
            raise
        if entry is None:
            return
        try:
            send(self.spool, name, entry, self._credentials, work.done)
        except Lost as error:
            self._lose(name, entry, str(error))
        except (PublishFailed, WorkFailed) as error:
            # The files are in the store, or on this disk. When Kafka is back, or the user's function
            # succeeds, the events still count, however late it is.
            self._note_reason(name, str(error))
            raise
        except Exception as error:
            since = work.failing_since
            if since is None or time.monotonic() - since < entry.uploads.timeout:
                self._note_reason(name, f"{type(error).__name__}: {error}")
                raise
            self._lose(name, entry, f"not uploaded within {entry.uploads.timeout:g} s ({error})")

    def _lose(self, name: EntryName, entry: Entry, reason: str) -> None:
        about = entry.about
        try:
            report_lost(self.spool, name, entry, reason, self._credentials)
        except BaseException:
            self._note_reason(name, f"its files are lost, and that could not be published: {reason}")
            raise
        _log.error(
            "files of checkpoint %d of the region %s of %s are lost: %s. The region stalls: %s",
            *(about.checkpoint, about.region, about.stream, reason),
            format_way_back(about.stream, about.region),
        )

    def _note_reason(self, name: EntryName, reason: str) -> None:
        """Note why an entry waits, if the disk has room for that."""
        try:
            self.spool.note(name, reason)
        except OSError as error:
            _log.warning("the reason of the entry %s cannot be noted: %s", name, error)
