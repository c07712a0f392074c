"""Coordinators that begin at once: each is forked from a process that has loaded the program already.

The campaign of tests/faults/together.py starts one after each kill. A loaded machine needs half a minute to
load the program.
"""

import multiprocessing
import os
import secrets
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sluicegate.cli.local.process import free_port
from sluicegate.failpoints.points import LOG_VARIABLE, VARIABLE
from sluicegate.lakes import drafts
from tests.faults.inside import kill_inside
from tests.faults.lives import Deployment, Life

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

_LOADED: Final = ["sluicegate.coordinator.service.service", "sluicegate.cli.run", "tests.faults.together"]
"""Modules that a coordinator needs, and those that a fork loads else before it begins."""


class Forked:
    """One coordinator, with the methods of a child process that a life needs."""

    def __init__(self, config: Path, log_file: Path, variables: Mapping[str, str], tickets: Path) -> None:
        given = (str(config), str(log_file), {**os.environ, **variables}, str(tickets))
        self._process = _context().Process(target=_run, args=given, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it lives."""
        return self._process.exitcode

    def send(self, number: signal.Signals) -> None:
        """Send a signal; no effect if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> int:
        """Kill it, and return its exit status."""
        self.send(signal.SIGKILL)
        self._process.join()
        status = self.poll()
        assert status is not None
        return status

    def end(self, grace: float) -> int:
        """Ask it to end, kill it after `grace` seconds, and return its exit status."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        self._process.join(grace)
        return self.kill()


class ForkedLife(Life):
    """A life that is forked. `tickets`: the folder of `kill_inside`."""

    def __init__(self, deployment: Deployment, number: int, failpoints: str, tickets: Path) -> None:
        self.port = free_port()
        self.log_file = deployment.folder / f"coordinator-{number}.log"
        config = deployment.write_settings(number, self.port)
        variables = {VARIABLE: f"*=note;{failpoints}", LOG_VARIABLE: str(deployment.hits)}
        self._process: Any = Forked(config, self.log_file, variables, tickets)


@cache
def _context() -> "ForkServerContext":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    return context


def _run(config: str, log_file: str, environment: Mapping[str, str], tickets: str) -> None:
    """Be a coordinator."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    output = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    os.chdir(Path(config).parent)
    # What a process of its own has drawn when it loaded the program.
    drafts.COORDINATOR = secrets.token_hex(6)  # type: ignore[misc]
    kill_inside(tickets, environment[LOG_VARIABLE])
    sys.argv = ["sluicegate", "run", "--config", config]
    from sluicegate.cli.main import main

    main()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
