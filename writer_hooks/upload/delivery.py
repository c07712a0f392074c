"""Delivery of a task: its events are published at once, or its files and events wait in the spool."""

import contextlib
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from sluicegate.events.encoding import Message
from sluicegate.failpoints.points import arm_from
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Storage
from sluicegate.writer_hooks.errors import UploadGivenUp
from sluicegate.writer_hooks.options import Target, Uploads, resolve_function
from sluicegate.writer_hooks.publisher import publish_files
from sluicegate.writer_hooks.region import Attempt, Event, Region
from sluicegate.writer_hooks.upload.process import ensure_uploader
from sluicegate.writer_hooks.upload.spool import (
    Connections,
    Entry,
    Spool,
    SpooledFile,
    format_way_back,
    make_spool,
    name_of,
    region_key,
    store_variables,
    unusable,
)

if TYPE_CHECKING:
    from sluicegate.lakes.spooled import SpooledStorage


_log = logging.getLogger(__name__)

_POLL: Final = 0.05
"""Seconds between two comparisons of a waiting task with the limits of the spool."""


class Delivery(Protocol):
    """Way of the files and events of one attempt."""

    def target(self, target: Target) -> Target:
        """Return the target that the attempt writes to."""
        ...

    def deliver(self, events: Sequence[Event]) -> tuple[Message, ...]:
        """Hand over the events of the complete attempt, and return when no crash of this process loses them.

        Returns the events that the driver is to publish. A crash before that loses the attempt.

        Raises PublishFailed, TopicMissing, EventTooLarge, or LakeUnavailable.
        """
        ...

    def abort(self) -> None:
        """Give up an attempt that was not delivered. Repeated calls are allowed."""
        ...


class Direct:
    """The files are in the table's storage already. The driver publishes few events, and the task many."""

    def __init__(self, region: Region, most_held: float) -> None:
        """`most_held`: size in bytes of the events up to which the driver publishes them; 0: never."""
        self._region = region
        self._most_held = most_held

    def target(self, target: Target) -> Target:
        return target

    def deliver(self, events: Sequence[Event]) -> tuple[Message, ...]:
        return publish_files(self._region, events, self._most_held)

    def abort(self) -> None:
        """Do nothing: the adapter removes files that no event describes."""


class Deferred:
    """The files stay in the spool of this machine, and its uploader publishes the events."""

    def __init__(self, region: Region, attempt: Attempt, uploads: Uploads) -> None:
        self._region = region
        self._attempt = attempt
        self._uploads = uploads
        self._spool: Spool | None = None
        self._storage: SpooledStorage | None = None
        self._lock: int | None = None

    def target(self, target: Target) -> Target:
        return replace(target, wrap=self._wrap)

    def _wrap(self, final: Storage) -> Storage:
        """Return the storage of the attempt, once the spool has room. An attempt without rows needs none."""
        # The module loads what a driver does not need.
        from sluicegate.lakes.spooled import SpooledStorage

        if self._uploads.before_publish is not None:
            resolve_function(self._uploads.before_publish)
        spool = make_spool(self._uploads.spool_folder())
        try:
            self._await_spool(spool, final.uri)
            self._lock = spool.begin(self._attempt.id)
        except OSError as error:
            _free_disk(spool)
            raise unusable(spool.folder, error) from error
        self._spool = spool
        self._storage = SpooledStorage(final, spool.files(self._attempt.id))
        return self._storage

    def _await_spool(self, spool: Spool, storage: str) -> None:
        """Wait while the spool is over a limit. Raises UploadGivenUp."""
        since, warned = time.time(), False
        region = region_key(self._region, self._attempt.incarnation)
        while True:
            excess = spool.excess(self._uploads)
            given_up = spool.given_up(since, region) if warned else ()
            if given_up:
                raise UploadGivenUp(
                    f"files of checkpoint {given_up[0].checkpoint} are lost: {given_up[0].reason}. The "
                    f"region stalls: {format_way_back(self._region.stream, self._region.name)}"
                )
            if excess is None:
                return
            if not warned:
                _log.warning(
                    "region %s of %s: a task waits before it writes: %s. `sluicegate uploads list --spool "
                    "%s` shows the reason",
                    *(self._region.name, self._region.stream, excess, spool.folder),
                )
                warned = True
                self._renew(spool, storage)
            ensure_uploader(spool)
            time.sleep(_POLL)

    def _renew(self, spool: Spool, storage: str) -> None:
        """Give the uploader the connections of this task: those of the entries that wait may be outdated."""
        region = self._region
        found = Connections(
            time.time_ns(), region.stream, region.name, storage, self._uploads.log, store_variables()
        )
        try:
            spool.connect(found.key, found.to_json())
        except OSError as error:
            _log.warning("the connections of a waiting task cannot be noted in %s: %s", spool.folder, error)

    def deliver(self, events: Sequence[Event]) -> tuple[Message, ...]:
        spool, storage, lock = self._spool, self._storage, self._lock
        if spool is None or storage is None or lock is None or not events:
            self.abort()
            return ()
        files = [SpooledFile(name, *found) for name, found in sorted(storage.files.items())]
        entry = Entry.of_task(storage.uri, files, events, self._uploads)
        name = name_of(self._region, self._attempt, files, time.time_ns())
        # From here on the entry may be there, so `abort` must keep the files.
        self._spool = None
        try:
            spool.require_files(self._attempt.id, lock)
            spool.put(name, entry.to_json())
        except OSError as error:
            self._unlock()
            _free_disk(spool)
            raise LakeUnavailable(
                f"an entry cannot be put into the spool {spool.folder}: {error}. Another attempt is safe"
            ) from error
        finally:
            self._unlock()
        ensure_uploader(spool)
        return ()

    def abort(self) -> None:
        spool, self._spool = self._spool, None
        if spool is not None:
            spool.discard(self._attempt.id)
        self._unlock()
        if spool is not None:
            _free_disk(spool)

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _free_disk(spool: Spool) -> None:
    """Remove files of dead tasks, which may be what fills the disk. Without entries no uploader does it."""
    with contextlib.suppress(OSError):
        spool.sweep()


def delivery_of(region: Region, attempt: Attempt, uploads: Uploads | None, most_held: float) -> Delivery:
    """Return the way of an attempt. `most_held`: bytes of events that its driver may publish for it."""
    arm_from(os.environ)
    return Direct(region, most_held) if uploads is None else Deferred(region, attempt, uploads)
