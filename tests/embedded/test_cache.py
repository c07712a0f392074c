"""The cache shows a whole directory or none, whoever asks at the same time and whoever is killed."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sluicegate.cli.local.jars import cache_dir, cached_directory
from tests.integration.waiting import BACKSTOP

_FILLER = """
import sys
from pathlib import Path
from sluicegate.cli.local.jars import cached_directory

def fill(directory):
    with open(sys.argv[1], "a") as journal:
        journal.write("filled\\n")
    (directory / "first").write_text("1")
    print("half", flush=True)
    sys.stdin.readline()
    (directory / "second").write_text("2")

print("asks", flush=True)
found = cached_directory("thing", fill)
print(*sorted(f.name + f.read_text() for f in found.iterdir() if f.suffix != ".json"), flush=True)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    monkeypatch.setenv("SLUICEGATE_CACHE", str(directory))
    return directory


def filler(tmp_path: Path) -> subprocess.Popen[str]:
    """Start a process that asks for the directory, and fills it when it is given a line."""
    command = [sys.executable, "-c", _FILLER, str(tmp_path / "journal")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def answer(process: subprocess.Popen[str]) -> str:
    """Let a process fill if it is its turn; what it found."""
    return process.communicate("\n", timeout=BACKSTOP)[0].splitlines()[-1]


@pytest.mark.slow
def test_processes_that_ask_at_once_fill_once(cache: Path, tmp_path: Path) -> None:
    processes = [filler(tmp_path) for _ in range(4)]
    assert [said(process) for process in processes] == ["asks\n"] * 4
    with ThreadPoolExecutor(len(processes)) as threads:
        assert list(threads.map(answer, processes)) == ["first1 second2"] * 4
    assert (tmp_path / "journal").read_text() == "filled\n"


@pytest.mark.slow
def test_a_killed_fill_is_done_again_by_who_waits(cache: Path, tmp_path: Path) -> None:
    with filler(tmp_path) as killed:
        assert [said(killed), said(killed)] == ["asks\n", "half\n"]
        with filler(tmp_path) as waiting:
            assert said(waiting) == "asks\n"
            assert not (cache / "thing").exists()
            killed.send_signal(signal.SIGKILL)
            assert answer(waiting) == "first1 second2"
    assert sorted(entry.name for entry in cache.iterdir()) == ["thing", "thing.lock"]


def test_a_failed_fill_leaves_nothing(cache: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "part").write_text("x")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cached_directory("thing", fail)
    assert [entry.name for entry in cache.iterdir()] == ["thing.lock"]


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLUICEGATE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "sluicegate"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "sluicegate"
    monkeypatch.setenv("SLUICEGATE_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
