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
from tests.integration.waiting import exit_status, wait_until


def end_uploader(spool: Spool) -> None:
    """Kill the process that uploads from a spool, if there is one, and wait for its end."""
    if not spool.has_uploader():
        return
    pid = int((Path(spool.folder) / "uploader.lock").read_text())
    if pid != os.getpid() and spool.folder in psutil.Process(pid).cmdline():
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not spool.has_uploader())


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """A spool, whose uploader ends with the test."""
    made = make_spool(str(tmp_path / "spool"))
    yield made
    end_uploader(made)


def run_uploader(spool: Spool, failpoints: str = "") -> subprocess.Popen[bytes]:
    """Start an uploader as a task does, perhaps with failpoints."""
    with open(f"{spool.folder}/uploader.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "sluicegate.writer_hooks.upload.process", spool.folder],
            env={**os.environ, VARIABLE: failpoints},
            stdout=log,
            stderr=log,
        )


def killed_at(spool: Spool, point: str) -> None:
    """Run an uploader until a failpoint kills it."""
    status = exit_status(run_uploader(spool, f"{point}=kill"), Path(spool.folder) / "uploader.log")
    assert status == -signal.SIGKILL


@contextlib.contextmanager
def nobody_uploads(spool: Spool) -> Iterator[None]:
    """Let all that tasks leave in the spool wait there."""
    with spool.uploading() as mine:
        assert mine
        yield
