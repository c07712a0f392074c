"""Child processes start whatever other threads do."""

import os
import threading
from pathlib import Path

import pytest

from sluicegate.cli.local.process import ChildProcess
from tests.integration.waiting import BACKSTOP

STARTS = 60
VARIABLES = 5_000


@pytest.mark.slow
def test_a_start_beside_a_thread_that_sets_variables(tmp_path: Path) -> None:
    """The C library moves its table of variables when one is set; a child must not read that one."""
    names = [f"SLUICEGATE_TEST_{number}" for number in range(VARIABLES)]
    ended = threading.Event()

    def change() -> None:
        while not ended.is_set():
            for name in names:
                os.putenv(name, "v" * 200)
            for name in names:
                os.unsetenv(name)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(STARTS):
            child = ChildProcess(["/bin/sh", "-c", "exit 0"], log_file=tmp_path / "log", cwd=tmp_path)
            assert child.wait(BACKSTOP) == 0
    finally:
        ended.set()
        thread.join()
