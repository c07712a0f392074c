"""Threads for calls that may hang: they hold up neither each other nor the end of the process."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

PATIENCE: Final = 3.0
"""Seconds after which a call counts as stuck: another one may start in its place."""


class CommitThreads(Executor):
    """Runs at most so many calls at a time, apart from those that are stuck."""

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
        """Start threads for what waits, also in the place of stuck ones; to be called now and then."""
        with self._change:
            late = time.monotonic() - self._patience
            busy = sum(started > late for started in self._started.values())
            room = self._most - busy - self._idle
            for _ in range(min(room, len(self._waiting) - self._idle)):
                self._idle += 1
                self._threads += 1
                name = f"commit-{self._threads}"
                # The interpreter waits for other threads at its end, however long they hang.
                threading.Thread(target=self._work, name=name, daemon=True).start()

    def stuck(self) -> int:
        """How many calls are stuck."""
        with self._change:
            late = time.monotonic() - self._patience
            return sum(started <= late for started in self._started.values())

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Start nothing more, and leave behind what runs; `wait` is not heeded."""
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
                    # One that was stuck may have been replaced.
                    if self._closed or self._idle > self._most:
                        self._idle -= 1
                        return
                    self._change.wait()
                future, call = self._waiting.popleft()
                self._idle -= 1
                self._started[me] = time.monotonic()
            _run(future, call)
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
