"""Process of a service: its signals, and a last log line with the cause of its end."""

import asyncio
import signal
from collections.abc import Callable
from typing import Protocol

import structlog

from sluicegate.coordinator.runtime.memory import calm_collector, keep_freed_memory

log = structlog.get_logger(__name__)

_ENDING = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Signals of the process. A signal before the service listens takes effect when it does."""

    def __init__(self) -> None:
        self._early: list[signal.Signals] = []
        self.cause: str | None = None
        """The signal that ended the service."""
        for number in (*_ENDING, signal.SIGHUP):
            signal.signal(number, lambda found, _: self._early.append(signal.Signals(found)))

    def listen(self, stop: Callable[[], None], reload: Callable[[], None]) -> None:
        """Call `stop` or `reload` on the signals, from the running event loop."""
        loop = asyncio.get_running_loop()

        def end(number: signal.Signals) -> None:
            self.cause = number.name
            log.info("stopping", cause=number.name)
            stop()

        for number in _ENDING:
            loop.add_signal_handler(number, end, number)
        loop.add_signal_handler(signal.SIGHUP, reload)
        for number in self._early:
            reload() if number is signal.SIGHUP else end(number)


class Runs(Protocol):
    """A service."""

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        ...

    def reload(self) -> None:
        """Request a reload of the settings."""
        ...


async def _serve(service: Runs, signals: Signals) -> None:
    stop = asyncio.Event()
    signals.listen(stop.set, service.reload)
    await service.run(stop)


def run_process(service: Runs, signals: Signals) -> None:
    """Run a service until SIGTERM or SIGINT; SIGHUP reloads its settings. Raises the errors of the service.

    The last line of the log has the cause of the end in every case.
    """
    calm_collector()
    keep_freed_memory()
    cause = "an end without a cause"
    try:
        asyncio.run(_serve(service, signals))
        cause = signals.cause or cause
    except BaseException as error:
        cause = f"{type(error).__name__}: {error}"
        raise
    finally:
        tell = log.info if cause == signals.cause else log.error
        tell("stopped", cause=cause)
