"""Upload of one entry: its files, then its events, then its removal. Each step may be repeated."""

import hashlib
import os
import posixpath
import threading
import time
from collections.abc import Mapping
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import CheckpointFailed
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import hit
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Storage
from sluicegate.lakes.storage_local import LocalStorage
from sluicegate.lakes.storages import open_storage
from sluicegate.writer_hooks.option_values import seconds
from sluicegate.writer_hooks.options import log_of
from sluicegate.writer_hooks.publisher import shared_publisher
from sluicegate.writer_hooks.region import Event
from sluicegate.writer_hooks.upload.before_publish import call_before_publish
from sluicegate.writer_hooks.upload.entry import Connections, Entry, SpooledFile, store_variables
from sluicegate.writer_hooks.upload.failures import Lost
from sluicegate.writer_hooks.upload.names import EntryName
from sluicegate.writer_hooks.upload.spool import GivenUp, Spool

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

    def note(self, found: Connections) -> None:
        """Note the connections of a task."""
        for newest, key in ((self._of_regions, _region(found)), (self._of_stores, _store(found))):
            newest[key] = max(newest.get(key, found), found, key=_age)

    def log(self, entry: Entry) -> Mapping[str, str]:
        """Return the options of the connection to Kafka."""
        own = entry.connections(0)
        return dict(self._of_regions.get(_region(own), own).log)

    def _variables(self, entry: Entry) -> Mapping[str, str]:
        own = entry.connections(0)
        return self._of_stores.get(_store(own), own).environment

    def environment(self, entry: Entry) -> dict[str, str]:
        """Return the variables of this process, with those of the entry's store and of no other one."""
        variables = self._variables(entry)
        with _opening:
            own = {name: value for name, value in os.environ.items() if name not in store_variables()}
        return {**own, **variables}

    def open(self, entry: Entry) -> Storage:
        """Open the storage that the files go to. Raises TableRefused."""
        variables = self._variables(entry)
        with _opening:
            before = store_variables()
            try:
                _set_variables(variables)
                return open_storage(entry.storage)
            finally:
                _set_variables(before)


def _set_variables(wanted: Mapping[str, str]) -> None:
    """Make these the only variables of object stores."""
    for name in store_variables().keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


def _region(found: Connections) -> tuple[str, ...]:
    return (*found.deployment, found.stream, found.region)


def _store(found: Connections) -> tuple[str, ...]:
    return (*found.deployment, found.stream, found.storage)


def _age(found: Connections) -> int:
    return found.created


def send(spool: Spool, name: EntryName, entry: Entry, credentials: Credentials, uploaded: set[str]) -> None:
    """Upload the files of an entry, publish its events, and remove it.

    `uploaded` has the names of files that this process has put, and gets further ones. Raises Lost,
    LakeUnavailable, TableRefused, and the errors of `publish_files`.
    """
    waiting = [file for file in entry.files if file.name not in uploaded]
    folder = spool.files(name.attempt)
    if waiting:
        storage = credentials.open(entry)
        _require_folder(storage)
    for file in waiting:
        _require_whole(folder, file)
        if entry.uploads.before_publish is not None:
            call_before_publish(
                entry.uploads.before_publish,
                f"{folder}/{file.name}",
                posixpath.join(storage.uri, file.name),
                path=entry.path,
                environment=credentials.environment(entry),
                timeout=entry.uploads.before_timeout,
            )
            _require_whole(folder, file)
        _put(storage, folder, file)
        uploaded.add(file.name)
    hit(Failpoint.UPLOAD_PUBLISH_BEFORE)
    _publish(credentials.log(entry), entry.events)
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


def _require_whole(folder: str, file: SpooledFile) -> None:
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
    if not storage.object_store and not os.path.isdir(storage.root):
        raise LakeUnavailable(
            f"the folder {storage.root} does not exist on this machine, so its file system may not be "
            "mounted. Mount it; the files wait"
        )


def _put(storage: Storage, folder: str, file: SpooledFile) -> None:
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
