"""`run` takes signals from its first instruction to its end: none is lost, and none ends it out of order."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from sluicegate.cli.local.process import free_port
from tests.integration.waiting import BACKSTOP, wait_until

# Each import of the process is a line of its output, so a test knows how far it is.
_COMMAND: Final = (
    sys.executable,
    "-X",
    "importtime",
    "-c",
    "from sluicegate.cli.main import main; main()",
    "run",
)
EARLY: Final = "sluicegate.events.problems"
"""One of the first modules that the command imports, a second before the service listens."""


class Run:
    """A coordinator without Kafka, and its output."""

    def __init__(self, config: Path) -> None:
        self.process = subprocess.Popen(
            [*_COMMAND, "--config", str(config)], stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.lines.append(line.rstrip("\n"))

    def wait(self, holds: Callable[[], object], what: str) -> None:
        wait_until(lambda: bool(holds()) or self.process.poll() is not None, what=what)
        assert self.process.poll() is None, "\n".join(self.lines[-5:])

    def has_imported(self, module: str) -> bool:
        return any(line.endswith(f" {module}") for line in list(self.lines))

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def has(self, event: str) -> bool:
        return any(each["event"] == event for each in self.events())

    def end(self) -> int:
        status = self.process.wait(BACKSTOP)
        self._reader.join(BACKSTOP)
        return status


@pytest.fixture
def config(tmp_path: Path) -> Path:
    config = tmp_path / "sluicegate.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "127.0.0.1:{free_port()}"\n[http]\nport = 0\n'
        f'[streams.flights]\ntable = "{tmp_path}/flights"\n',
        encoding="utf-8",
    )
    return config


@contextmanager
def running(config: Path) -> Iterator[Run]:
    made = Run(config)
    try:
        yield made
    finally:
        made.process.kill()
        made.end()


@pytest.fixture
def run(config: Path) -> Iterator[Run]:
    with running(config) as made:
        yield made


@pytest.mark.slow
@pytest.mark.seam
def test_signals_while_the_command_is_imported(run: Run) -> None:
    run.wait(lambda: run.has_imported(EARLY), "the command is not imported")
    assert not run.has("listening")
    run.process.send_signal(signal.SIGHUP)
    run.wait(lambda: run.has("settings reloaded"), "the reload is lost")
    # Until the last moment, also when the loop is closed.
    run.process.send_signal(signal.SIGTERM)
    while run.process.poll() is None:
        run.process.send_signal(signal.SIGHUP)
    assert run.end() == 0
    assert (run.events()[-1]["event"], run.events()[-1]["cause"]) == ("stopped", "SIGTERM")


@pytest.mark.slow
def test_an_end_while_the_command_is_imported(run: Run) -> None:
    run.wait(lambda: run.has_imported(EARLY), "the command is not imported")
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 0
    assert (run.events()[-1]["event"], run.events()[-1]["cause"]) == ("stopped", "SIGTERM")


@pytest.mark.slow
def test_a_parent_that_blocks_a_signal_loses_none(config: Path) -> None:
    """`sluicegate up` starts its coordinator so: the signal waits until the process can take it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        with running(config) as run:
            run.process.send_signal(signal.SIGHUP)
            run.wait(lambda: run.has("settings reloaded"), "the reload is lost")
            run.process.send_signal(signal.SIGTERM)
            assert run.end() == 0
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
