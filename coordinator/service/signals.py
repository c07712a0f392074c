"""Signals of the process of a service. No signal is lost, and none ends the process out of order.

This module imports little: `run` holds the signals before it imports everything else, which takes a second.
"""

import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio


_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_ALL: Final = (*_ENDING, signal.SIGHUP)


class Signals:
    """Signals from now on. One that arrives before the service listens takes effect when it does.

    Their handlers stay to the end. The handlers of an event loop would not: a loop that is closed restores
    the default, with which a SIGHUP ends the process.
    """

    def __init__(self) -> None:
        self.cause: str | None = None
        """The signal that ended the service."""
        self._noted: list[signal.Signals] = []
        self.is_over = False
        """True if signals have no effect any more."""
        self._ends: tuple[socket.socket, socket.socket] | None = None
        for number in _ALL:
            signal.signal(number, self._note)
        # A parent may have blocked them, so that none came before the handlers.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)

    def _note(self, number: int, _: object) -> None:
        self._noted.append(signal.Signals(number))

    def listen(
        self,
        loop: "asyncio.AbstractEventLoop",
        stop: Callable[[signal.Signals], None],
        reload: Callable[[], None],
    ) -> None:
        """Call `stop` or `reload` on the signals, in the running event loop, until `leave`."""
        # The interpreter writes to one end when a signal arrives, which wakes the loop.
        self._ends = ours, theirs = socket.socketpair()
        for end in self._ends:
            end.setblocking(False)

        def act() -> None:
            with suppress(BlockingIOError):
                ours.recv(4096)
            noted, self._noted = self._noted, []
            for number in noted:
                if number is signal.SIGHUP:
                    reload()
                else:
                    self.cause = number.name
                    stop(number)

        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        loop.add_reader(ours, act)
        loop.call_soon(act)

    def leave(self, loop: "asyncio.AbstractEventLoop") -> None:
        """Stop listening, before the loop is closed. Signals have no effect from now on."""
        if self._ends is None:
            return
        (ours, theirs), self.is_over = self._ends, True
        signal.set_wakeup_fd(-1)
        loop.remove_reader(ours)
        ours.close()
        theirs.close()
        # The interpreter restores the default of other handlers before it ends.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


_held: Final[list[Signals]] = []


def hold_signals() -> Signals:
    """Return the signals of this process, which are noted from the first call on."""
    if not _held or _held[-1].is_over:
        _held.append(Signals())
    return _held[-1]
