"""Wait for conditions. No test waits a fixed time: how long work takes depends on the machine.

A wait ends when its condition holds. It fails at once when the process, thread or task that should bring the
condition about has ended. `BACKSTOP` ends waits that hang; a slow machine must not reach it.
"""

import asyncio
import inspect
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, overload

BACKSTOP: Final = 900.0
"""Seconds after which a wait is a hang. The timeout of pytest is longer, so that the wait itself fails."""
_PAUSE: Final = 0.02
_LINES: Final = 30

T = TypeVar("T")


class Polled(Protocol):
    """A child process of any kind."""

    def poll(self) -> int | None:
        """Return the exit status, None while the process lives."""


Source = Polled | threading.Thread | asyncio.Task[Any]
"""Something that can bring a condition about."""

_watched: list[Source] = []


@contextmanager
def watched(source: Source) -> Iterator[None]:
    """Fail every wait in the block as soon as this source ends."""
    _watched.append(source)
    try:
        yield
    finally:
        _watched.remove(source)


@overload
async def until(
    look: Callable[[], Awaitable[T]],
    holds: Callable[[T], bool] = ...,
    *,
    by: Source | None = ...,
    log: Path | None = ...,
    what: str = ...,
) -> T: ...


@overload
async def until(
    look: Callable[[], T],
    holds: Callable[[T], bool] = ...,
    *,
    by: Source | None = ...,
    log: Path | None = ...,
    what: str = ...,
) -> T: ...


async def until(
    look: Callable[[], T | Awaitable[T]],
    holds: Callable[[T], bool] = bool,
    *,
    by: Source | None = None,
    log: Path | None = None,
    what: str = "",
) -> T:
    """Look until the condition holds, and return what was seen.

    Raises AssertionError with the last sight and the end of the log when `by` or a watched source has ended,
    or the backstop has passed.
    """
    wait = _Wait(by, log, what)
    while True:
        ended = wait.ended()
        seen = look()
        value: T = await seen if inspect.isawaitable(seen) else seen
        if holds(value):
            return value
        wait.check(ended, value)
        await asyncio.sleep(_PAUSE)


def wait_until(
    look: Callable[[], T],
    holds: Callable[[T], bool] = bool,
    *,
    by: Source | None = None,
    log: Path | None = None,
    what: str = "",
) -> T:
    """Do the same as `until` outside an event loop."""
    wait = _Wait(by, log, what)
    while True:
        ended = wait.ended()
        value = look()
        if holds(value):
            return value
        wait.check(ended, value)
        time.sleep(_PAUSE)


async def finished(work: Coroutine[Any, Any, T] | asyncio.Future[T], what: str = "") -> T:
    """Return the result of a task or coroutine when it ends. Raises AssertionError at the backstop."""
    try:
        async with asyncio.timeout(BACKSTOP):
            return await work
    except TimeoutError as error:
        raise AssertionError(f"{what or repr(work)} has not ended within {BACKSTOP:g} s") from error


def exit_status(process: subprocess.Popen[Any], log: Path | None = None) -> int:
    """Wait until a process ends by itself. Raises AssertionError with the end of its log at the backstop."""
    try:
        return process.wait(BACKSTOP)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{process.args!r} has not ended within {BACKSTOP:g} s{tail(log)}") from None


def tail(log: Path | None) -> str:
    """Return the last lines of a log, with its name; nothing without a log."""
    if log is None or not log.exists():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LINES:]
    return f"\nthe end of {log}:\n" + "\n".join(lines)


class _Wait:
    """One wait: its sources, its start, and its failure."""

    def __init__(self, by: Source | None, log: Path | None, what: str) -> None:
        self._sources = [*_watched, *([by] if by is not None else [])]
        self._log = log
        self._what = f"{what}: " if what else ""
        self._start = time.monotonic()

    def ended(self) -> str | None:
        """Return how a source has ended, None while all live. It comes before a look: the last one counts."""
        return next((how for source in self._sources if (how := _end(source)) is not None), None)

    def check(self, ended: str | None, seen: object) -> None:
        """Raise AssertionError if the condition cannot come about any more."""
        if ended is None and time.monotonic() - self._start > BACKSTOP:
            ended = f"nothing ended, but {BACKSTOP:g} s have passed"
        if ended is not None:
            raise AssertionError(f"{self._what}{ended}; last seen: {seen!r}{tail(self._log)}")


def _end(source: Source) -> str | None:
    if isinstance(source, threading.Thread):
        return None if source.is_alive() else f"thread {source.name} has ended"
    if isinstance(source, asyncio.Task):
        if not source.done():
            return None
        error = None if source.cancelled() else source.exception()
        return f"task {source.get_name()} has ended: {error!r}"
    status = source.poll()
    return None if status is None else f"the process has ended with status {status}"
