"""Spools of tests, and the uploaders that tasks start for them."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sluicegate.failpoints.points import VARIABLE
from sluicegate.writer_hooks.upload.spool import Spool, make_spool
from sluicegate.writer_hooks.upload.uploader import Uploader
from tests.integration.waiting import exit_status, wait_until


def end_uploader(spool: Spool) -> None:
    """Kill the process that uploads from a spool, if there is one, and wait for its end."""
    lock = Path(spool.folder) / "uploader.lock"
    # An uploader notes its id after it has taken the lock.
    wait_until(lambda: not spool.has_uploader() or lock.read_text().strip())
    if not spool.has_uploader():
        return
    pid = int(lock.read_text())
    if pid != os.getpid() and spool.folder in psutil.Process(pid).cmdline():
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not spool.has_uploader())


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """A spool, whose uploader ends with the test."""
    made = make_spool(str(tmp_path / "spool"))
    yield made
    end_uploader(made)


def killed_at(spool: Spool, point: str) -> None:
    """Run an uploader, as a task starts it, until a failpoint kills it."""
    path = Path(spool.folder) / "uploader.log"
    command = [sys.executable, "-m", "sluicegate.writer_hooks.upload.process", spool.folder]
    variables = {**os.environ, VARIABLE: f"{point}=kill"}
    with path.open("ab") as log, subprocess.Popen(command, env=variables, stdout=log, stderr=log) as process:
        assert exit_status(process, path) == -signal.SIGKILL


def upload_all(spool: Spool) -> None:
    """Upload in this process until nothing waits."""
    Uploader(spool).run(lambda empty: empty)


@contextlib.contextmanager
def nobody_uploads(spool: Spool) -> Iterator[None]:
    """Let all that tasks leave in the spool wait there."""
    with spool.uploading() as mine:
        assert mine
        yield
