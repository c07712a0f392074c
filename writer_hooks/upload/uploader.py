"""Uploader of a spool: sends its entries, several at a time, and again after failures."""

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final

from sluicegate.kafka.clients import spread
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.writer_hooks.errors import HookError, PublishFailed
from sluicegate.writer_hooks.upload.entry import BadEntry, Connections, Entry, read_entry
from sluicegate.writer_hooks.upload.failures import Lost, format_way_back
from sluicegate.writer_hooks.upload.names import EntryName
from sluicegate.writer_hooks.upload.sending import Credentials, report_lost, send
from sluicegate.writer_hooks.upload.spool import Spool

_log = logging.getLogger(__name__)

_LOOK: Final = 0.05
"""Seconds between two looks at a spool."""
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
    uploaded: set[str] = field(default_factory=set)
    """Files that this process has put, so that a later try does not do it again."""


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
        """Wait until an entry is sent, or for the next look."""
        if not self._running:
            time.sleep(_LOOK)
            return
        done, _ = wait(self._running, timeout=_LOOK, return_when=FIRST_COMPLETED)
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
            if work.failing_since is None:
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
        expected = isinstance(error, LakeUnavailable | TableRefused | HookError | OSError | BadEntry)
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
            send(self.spool, name, entry, self._credentials, work.uploaded)
        except Lost as error:
            self._lose(name, entry, str(error))
        except PublishFailed as error:
            # The files are in the store. When Kafka is back, the events still count, however late it is.
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
