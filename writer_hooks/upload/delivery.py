"""Delivery of a task: its events are published at once, or its files and events wait in the spool."""

import contextlib
import logging
import os
import posixpath
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from sluicegate.events.encoding import Message
from sluicegate.failpoints.points import arm_from
from sluicegate.kafka.clients import spread
from sluicegate.lakes.port import LakeUnavailable
from sluicegate.lakes.storage import Storage, source_options
from sluicegate.writer_hooks.errors import UploadGivenUp
from sluicegate.writer_hooks.options import SinkOptions, Target, Uploads, Work, resolve_function
from sluicegate.writer_hooks.publisher import publish_files
from sluicegate.writer_hooks.region import Attempt, Event, Region, add_facts
from sluicegate.writer_hooks.upload.before_publish import WorkFailed, call_before_publish
from sluicegate.writer_hooks.upload.process import ensure_uploader
from sluicegate.writer_hooks.upload.spool import (
    Connections,
    Entry,
    Lost,
    Spool,
    SpooledFile,
    format_way_back,
    make_spool,
    name_of,
    region_key,
    search_path,
    store_variables,
    unusable,
)

if TYPE_CHECKING:
    from sluicegate.lakes.spooled import SpooledStorage


_log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 15.0
"""Seconds between two calls of a function that fails."""
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


class Worked(Direct):
    """The files stay in a folder of the task until the user's work on them is done. The task uploads them."""

    def __init__(self, region: Region, most_held: float, work: Work) -> None:
        super().__init__(region, most_held)
        self._work = work
        self._folder: str | None = None
        self._final: Storage | None = None
        self._storage: SpooledStorage | None = None

    def target(self, target: Target) -> Target:
        return replace(target, wrap=self._wrap, with_facts=True)

    def _wrap(self, final: Storage) -> Storage:
        from sluicegate.lakes.spooled import SpooledStorage

        resolve_function(self._work.function)
        try:
            self._folder = tempfile.mkdtemp(prefix="sluicegate-work-")
        except OSError as error:
            raise LakeUnavailable(
                f"no folder can be made in {tempfile.gettempdir()}: {error}. Another attempt is safe"
            ) from error
        self._final, self._storage = final, SpooledStorage(final, self._folder)
        return self._storage

    def deliver(self, events: Sequence[Event]) -> tuple[Message, ...]:
        final, storage, folder = self._final, self._storage, self._folder
        if final is None or storage is None or folder is None:
            return super().deliver(events)
        # The module loads what a task without this work does not need.
        from sluicegate.writer_hooks.upload.uploader import put, require_whole

        facts: dict[str, dict[str, str]] = {}
        done: list[str] = []
        try:
            for name, found in sorted(storage.files.items()):
                file = SpooledFile(name, *found)
                facts[name] = self._call(f"{folder}/{name}", posixpath.join(final.uri, name))
                require_whole(folder, file)
                put(final, folder, file)
                done.append(name)
        except BaseException as error:
            # No event describes the files.
            with contextlib.suppress(LakeUnavailable, OSError):
                final.discard(".", done)
            if isinstance(error, Lost):
                raise LakeUnavailable(f"{error}. Another attempt is safe") from error
            raise
        return super().deliver(add_facts(events, facts))

    def _call(self, local: str, uri: str) -> dict[str, str]:
        """Call the function until it succeeds. Raises LakeUnavailable after the time limit."""
        until = time.monotonic() + self._work.timeout
        pause = _FIRST_PAUSE
        while True:
            try:
                return call_before_publish(
                    self._work.function, local, uri, path=search_path(), environment=os.environ
                )
            except WorkFailed as error:
                if time.monotonic() >= until:
                    raise LakeUnavailable(f"{error}. Another attempt is safe") from error
                if pause == _FIRST_PAUSE:
                    _log.warning(
                        "region %s of %s: %s. It is called again, with longer pauses, for %g s",
                        *(self._region.name, self._region.stream, error, self._work.timeout),
                    )
            time.sleep(spread(pause))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def abort(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


class Deferred:
    """The files stay in the spool of this machine, and its uploader publishes the events."""

    def __init__(self, region: Region, attempt: Attempt, uploads: Uploads) -> None:
        self._region = region
        self._attempt = attempt
        self._uploads = uploads
        self._spool: Spool | None = None
        self._storage: SpooledStorage | None = None
        self._lock: int | None = None
        self._keys_of: Mapping[str, str] = {}
        """Options of the catalog that gives the keys of the storage."""

    def target(self, target: Target) -> Target:
        return replace(target, wrap=self._wrap, with_facts=self._uploads.before_publish is not None)

    def _wrap(self, final: Storage) -> Storage:
        """Return the storage of the attempt, once the spool has room. An attempt without rows needs none."""
        # The module loads what a driver does not need.
        from sluicegate.lakes.spooled import SpooledStorage

        if self._uploads.before_publish is not None:
            resolve_function(self._uploads.before_publish)
        spool = make_spool(self._uploads.spool_folder())
        self._keys_of = source_options(final)
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
            *(time.time_ns(), region.stream, region.name, storage, self._keys_of),
            *(self._uploads.log, store_variables()),
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
        entry = Entry.of_task(storage.uri, files, events, self._uploads, self._keys_of)
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


def delivery_of(options: SinkOptions, attempt: Attempt, most_held: float) -> Delivery:
    """Return the way of an attempt. `most_held`: bytes of events that its driver may publish for it."""
    arm_from(os.environ)
    if options.uploads is not None:
        return Deferred(options.region, attempt, options.uploads)
    if options.work is not None:
        return Worked(options.region, most_held, options.work)
    return Direct(options.region, most_held)
