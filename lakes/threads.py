"""Threads for calls that may hang. A stuck call delays neither other calls nor the end of the process."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

PATIENCE: Final = 3.0
"""Seconds after which a call counts as stuck, so that another one may start in its place."""


class CommitThreads(Executor):
    """Executor that runs at most `most` calls at a time, without counting stuck ones."""

    def __init__(self, most: int, patience: float = PATIENCE) -> None:
        self._most = most
        self._patience = patience
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._started: dict[int, float] = {}
        self._idle = 0
        self._threads = 0
        self._closed = False
        self._change = threading.Condition()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run the call in a thread. Raises RuntimeError after `shutdown`."""
        future: Future[T] = Future()
        with self._change:
            if self._closed:
                raise RuntimeError("the commit threads are shut down")
            self._waiting.append((future, lambda: fn(*args, **kwargs)))
            self._change.notify()
        self.relieve()
        return future

    def relieve(self) -> None:
        """Start threads for waiting calls, also in place of stuck threads.

        Call it regularly: a thread becomes stuck without any event.
        """
        with self._change:
            late = time.monotonic() - self._patience
            busy = sum(started > late for started in self._started.values())
            room = self._most - busy - self._idle
            for _ in range(min(room, len(self._waiting) - self._idle)):
                self._idle += 1
                self._threads += 1
                name = f"commit-{self._threads}"
                # Daemon threads: at its end, the interpreter waits for all others, even if they hang.
                threading.Thread(target=self._work, name=name, daemon=True).start()

    def stuck(self) -> int:
        """Return the number of stuck calls."""
        with self._change:
            late = time.monotonic() - self._patience
            return sum(started <= late for started in self._started.values())

    def longest(self) -> float:
        """Return the seconds for which the oldest unfinished call has run; 0 if there is none."""
        with self._change:
            return time.monotonic() - min(self._started.values()) if self._started else 0.0

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Start no further calls, and abandon the running ones. `wait` is ignored."""
        with self._change:
            self._closed = True
            left, self._waiting = list(self._waiting), deque()
            self._change.notify_all()
        for future, _ in left:
            future.cancel()

    def _work(self) -> None:
        me = threading.get_ident()
        while True:
            with self._change:
                while not self._waiting:
                    # A stuck thread that was replaced may have returned, so there may be one thread too many.
                    if self._closed or self._idle > self._most:
                        self._idle -= 1
                        return
                    self._change.wait()
                future, call = self._waiting.popleft()
                self._idle -= 1
                self._started[me] = time.monotonic()
            _run(future, call)
            # An idle thread must not keep the last call and its result alive.
            del future, call
            with self._change:
                del self._started[me]
                self._idle += 1


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
