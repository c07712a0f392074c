"""Waits end with their condition, or with the one who should bring it about, and say what was missing."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.integration import waiting
from tests.integration.waiting import exit_status, finished, until, wait_until, watched


def child(program: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen([sys.executable, "-c", program], stdout=output)


def test_a_wait_fails_with_the_log_when_its_process_has_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = child("print('out of memory'); raise SystemExit(3)", log)
    with pytest.raises(AssertionError, match=r"(?s)a port: .*status 3; last seen: \[\].*out of memory"):
        wait_until(list, by=process, log=log, what="a port")


async def test_a_wait_fails_when_what_is_watched_ends() -> None:
    async def fails() -> None:
        raise OSError("gone")

    task = asyncio.create_task(fails())
    with watched(task), pytest.raises(AssertionError, match="gone"):
        await until(lambda: False)
    thread = threading.Thread(target=list, name="reader")
    thread.start()
    with pytest.raises(AssertionError, match="thread reader has ended"):
        await until(lambda: False, by=thread)
    with pytest.raises(OSError, match="gone"):
        await finished(task)


@pytest.mark.slow
async def test_the_backstop_ends_a_hang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(waiting, "BACKSTOP", 0.05)
    with pytest.raises(AssertionError, match=r"0\.05 s have passed; last seen: 7"):
        await until(lambda: 7, lambda seen: seen > 7)
    with pytest.raises(AssertionError, match="the answer has not ended"):
        await finished(asyncio.Event().wait(), "the answer")
    process = child("import threading; threading.Event().wait()", tmp_path / "log")
    try:
        with pytest.raises(AssertionError, match="has not ended"):
            exit_status(process)
    finally:
        process.kill()
        process.wait()
