"""Process of a coordinator: its signals, and a last log line with the cause of its end."""

import asyncio
import signal
from collections.abc import Callable

import structlog

from sluicegate.coordinator.runtime.allocator import keep_freed_memory
from sluicegate.coordinator.runtime.collector import calm_collector
from sluicegate.coordinator.runtime.service import Service
from sluicegate.coordinator.settings.model import Settings

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


async def serve(settings: Settings, load: Callable[[], Settings], signals: Signals) -> None:
    """Run one service until SIGTERM or SIGINT; SIGHUP reloads the settings."""
    stop = asyncio.Event()
    service = Service(settings, load)
    signals.listen(stop.set, service.reload)
    await service.run(stop)


def run_service(settings: Settings, load: Callable[[], Settings], signals: Signals) -> int:
    """Run the service to its end and return the exit status. Raises TopicError, CannotServe, KafkaError.

    The last line of the log has the cause of the end in every case.
    """
    calm_collector()
    keep_freed_memory()
    cause = "an end without a cause"
    try:
        asyncio.run(serve(settings, load, signals))
        cause = signals.cause or cause
    except BaseException as error:
        cause = f"{type(error).__name__}: {error}"
        raise
    finally:
        tell = log.info if cause == signals.cause else log.error
        tell("stopped", cause=cause)
    return 0
