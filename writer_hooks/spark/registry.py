"""Exchange of state between the sink's workers and the listener, which are processes on one machine.

`ATTACHED` has what is shared within the driver's process. The registry is a folder of the session that only
its user can read, because options may contain passwords. It has the registration of each run, its doubts, its
idleness, and its newest commit. A run that it has lost registers again, so its loss loses no data.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4
from weakref import WeakValueDictionary

from sluicegate.events.models import Position
from sluicegate.writer_hooks.errors import HookError
from sluicegate.writer_hooks.region import Registered

_LOCK: Final = "lock"
_REGISTRATION: Final = "json"
_STOPPED: Final = "stopped"
_DOUBT: Final = "doubt"
_IDLE: Final = "idle"
_ADMITTED: Final = "admitted"
_COMMITTED: Final = "committed"
_INCARNATION: Final = "incarnation"
_RUN: Final = "run"
_OPTIONS: Final = "options"
_SINCE: Final = "since"
_OURS: Final = re.compile(r"sluicegate-[0-9a-f]{32}")


def stream_key(query: str, stream: str) -> str:
    """Return the key of a stream of a query that writes several ones, as short as the name of a file."""
    return f"{query}@{hashlib.sha256(stream.encode()).hexdigest()[:16]}"


class Registry:
    """Queries of one session, by their ids. A stream of a query with several ones has its `stream_key`."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._lock: int | None = None

    def hold(self) -> None:
        """Create the folder, and lock it for the life of this process. Repeated calls are allowed."""
        if self._lock is not None:
            return
        # The folder is locked before it gets its final name, so no other process takes it for an abandoned
        # one.
        draft = self._folder.with_name(f".{self._folder.name}")
        draft.mkdir(mode=0o700)
        self._lock = os.open(draft / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        draft.rename(self._folder)

    def remove_dead(self) -> None:
        """Delete sibling folders whose processes ended without deleting them."""
        for folder in self._folder.parent.glob("sluicegate-*"):
            if _OURS.fullmatch(folder.name) and folder != self._folder:
                with suppress(OSError):
                    _remove_if_dead(folder)

    @contextmanager
    def registering(self, query: str, *, wait: bool = True) -> Iterator[bool]:
        """Lock the registration of a query, since workers and listener may both begin one.

        Yields False if another process has the lock and `wait` is False.
        """
        lock = self._open_lock(query)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            yield False
            return
        try:
            yield True
        finally:
            os.close(lock)

    def put(
        self,
        query: str,
        options: Mapping[str, str],
        registered: Registered,
        committed: Position | None = None,
    ) -> None:
        """Record that a run of the query has registered, with the options of its sink.

        `committed` is the committed position of its region in the answer.
        """
        content = {
            _INCARNATION: registered.incarnation,
            _RUN: registered.run,
            _OPTIONS: dict(options),
            _SINCE: time.time(),
        }
        if committed is not None:
            self.commit(query, committed)
        self._write(self._path(query, _REGISTRATION), json.dumps(content))

    def options(self, query: str) -> dict[str, str] | None:
        """Return the options of the sink in the query's current run, None before its registration."""
        found = self._read(query)
        return None if found is None else {str(name): str(value) for name, value in found[_OPTIONS].items()}

    def registered(self, query: str) -> Registered | None:
        """Return the registration of the query's current run, None before that."""
        found = self._read(query)
        return None if found is None else Registered(str(found[_INCARNATION]), str(found[_RUN]))

    def since(self, query: str) -> float:
        """Return the time of the current run's registration, in seconds since the Unix epoch; 0 before it."""
        found = self._read(query)
        return 0.0 if found is None else float(found[_SINCE])

    def begin(self, query: str, incarnation: str) -> None:
        """Record the incarnation that a run of the query found in its checkpoint location."""
        self._write(self._path(query, _INCARNATION), incarnation)

    def incarnation(self, query: str) -> str | None:
        """Return the incarnation that the current run of the query began with, None if it had none yet."""
        registered = self.registered(query)
        return _text(self._path(query, _INCARNATION)) if registered is None else registered.incarnation

    def new_run(self, query: str) -> None:
        """Delete the records of the previous run of the query, and of its streams."""
        for kind in (_REGISTRATION, _INCARNATION, _STOPPED, _DOUBT, _IDLE, _ADMITTED):
            self._path(query, kind).unlink(missing_ok=True)
            for each in self._folder.glob(f"{query}@*.{kind}"):
                each.unlink(missing_ok=True)

    def doubt(self, query: str) -> None:
        """Record that the query has to ask, before its next batch, if its incarnation is still live."""
        self._path(query, _DOUBT).touch()

    def take_doubt(self, query: str) -> bool:
        """Return True once after each `doubt`."""
        try:
            self._path(query, _DOUBT).unlink()
        except FileNotFoundError:
            return False
        return True

    def record_idle(self, query: str) -> None:
        """Record that a heartbeat may have stated idle since the newest beginning that the log has."""
        self._path(query, _IDLE).touch()

    def may_be_idle(self, query: str) -> bool:
        """Return True if a heartbeat may have stated idle, and no beginning has followed."""
        return self._path(query, _IDLE).exists()

    def clear_idle(self, query: str) -> None:
        """Record that the log has a beginning after every heartbeat that stated idle."""
        self._path(query, _IDLE).unlink(missing_ok=True)

    # --- commits, and limits of what is not committed ---------------------------------------------

    def commit(self, query: str, at: Position) -> None:
        """Record a committed position of the query's region."""
        before = _position(self._path(query, _COMMITTED))
        if before is None or before.incarnation != at.incarnation or before.checkpoint < at.checkpoint:
            self._write(self._path(query, _COMMITTED), at.model_dump_json())

    def committed(self, query: str, incarnation: str) -> int | None:
        """Return the newest batch of an incarnation that is known to be committed, None if there is none."""
        found = _position(self._path(query, _COMMITTED))
        return found.checkpoint if found is not None and found.incarnation == incarnation else None

    def admit(self, query: str, batch: int) -> None:
        """Record that a batch of the current run may be written, within the limits or after a wait."""
        self._write(self._path(query, _ADMITTED), str(batch))

    def admitted(self, query: str) -> int | None:
        """Return the newest batch of the current run that may be written, None if there is none yet."""
        found = _text(self._path(query, _ADMITTED))
        return None if found is None else int(found)

    def stop_run(self, query: str) -> None:
        """Record that the current run of the query is being stopped, with all its streams."""
        self._path(query.partition("@")[0], _STOPPED).touch()

    def stopped(self, query: str) -> bool:
        """Return True if the current run of the query is being stopped."""
        return self._path(query.partition("@")[0], _STOPPED).exists()

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _open_lock(self, query: str) -> int:
        path = self._folder / f"{query}.lock"
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def _read(self, query: str) -> Any:
        found = _text(self._path(query, _REGISTRATION))
        return None if found is None else json.loads(found)

    def _write(self, target: Path, content: str) -> None:
        """Replace a file: readers see the old content or the new one."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = target.with_suffix(f".{uuid4().hex}.tmp")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(content)
        draft.replace(target)

    def _path(self, query: str, kind: str) -> Path:
        return self._folder / f"{query}.{kind}"


def _position(path: Path) -> Position | None:
    found = _text(path)
    return None if found is None else Position.model_validate_json(found)


def _text(path: Path) -> str | None:
    """Return the content of a file, None if there is none."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def _remove_if_dead(folder: Path) -> None:
    """Delete a folder whose lock is free.

    Raises OSError if the folder is in use, belongs to another user, or has no lock file.
    """
    lock = os.open(folder / _LOCK, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(lock)


# --- sessions of this process, and the sinks that run here --------------------------------------------

OnStreams = Callable[[str, Sequence[str]], None]
"""Function that learns the keys of a query's streams, which the registry has from now on."""


class BatchFunction(Protocol):
    """Sink of this process whose function Spark calls, as `ForeachBatch`."""

    def options_at(self, query: str, location: str) -> Mapping[str, Mapping[str, str]]:
        """Return the options of each stream by its key in the registry; empty for another location."""
        ...


@dataclass(slots=True)
class Attached:
    """Sessions of this process that `attach` has prepared."""

    registry: Registry | None = None
    """None: no session is attached (see `require_attached`)."""
    listener_state: Callable[[int], Mapping[str, str]] | None = None
    """Function of the state of listeners. The first session of the process that has one decides."""
    on_streams: list[OnStreams] = field(default_factory=list)
    """Functions of the listeners of the sessions. Each ignores queries of other sessions."""
    _functions: WeakValueDictionary[int, BatchFunction] = field(default_factory=WeakValueDictionary)
    """Sinks of this process that still exist, in the order in which they were made."""
    _number: "count[int]" = field(default_factory=count)

    def add_function(self, function: BatchFunction) -> None:
        """Add a sink. A query of Spark does not name the one that it calls."""
        self._functions[next(self._number)] = function

    def options_at(self, query: str, location: str) -> Mapping[str, Mapping[str, str]]:
        """Return the options of the sink of a query, by the keys of its streams; empty if it is not known.

        `location` is the checkpoint location that Spark uses. The newest sink of this location counts.
        """
        for _, function in sorted(self._functions.items(), reverse=True):
            if options := function.options_at(query, location):
                return options
        return {}


ATTACHED = Attached()


def require_attached(registry: Registry | None) -> Registry:
    """Return the registry of the session. Raises HookError if there is none."""
    if registry is None:
        raise HookError(
            "sluicegate.writer_hooks.attach(spark) was not called, so nobody would send heartbeats, learn of "
            "commits, or close the region of a bounded source: call it once, before the query starts"
        )
    return registry
