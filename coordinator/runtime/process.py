"""Process of a service: its end by a signal, and a last log line with the cause of its end."""

import asyncio
import signal
from typing import Protocol

import structlog

from sluicegate.coordinator.runtime.memory import calm_collector, keep_freed_memory
from sluicegate.coordinator.runtime.signals import Signals

log = structlog.get_logger(__name__)


class Runs(Protocol):
    """A service."""

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        ...

    def reload(self) -> None:
        """Request a reload of the settings."""
        ...


async def _serve(service: Runs, signals: Signals) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def end(number: signal.Signals) -> None:
        log.info("stopping", cause=number.name)
        stop.set()

    signals.listen(loop, end, service.reload)
    try:
        await service.run(stop)
    finally:
        signals.leave(loop)


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
