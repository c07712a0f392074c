"""The folder of a session: whose it is, and when it goes."""

import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from sluicegate.writer_hooks.region import Registered
from sluicegate.writer_hooks.spark.registry import Registry

_HOLD = """
import sys
from sluicegate.writer_hooks.spark.registry import Registry
Registry(sys.argv[1]).hold()
print("held", flush=True)
sys.stdin.read()
"""


def _holder(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _HOLD, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.slow
def test_a_folder_goes_at_the_next_attach_once_its_process_was_ended_by_a_signal(tmp_path: Path) -> None:
    left, own = (tmp_path / f"sluicegate-{uuid4().hex}" for _ in range(2))
    others = [tmp_path / f"sluicegate-{uuid4().hex}", tmp_path / "sluicegate-kafka-x"]
    for each in others:
        each.mkdir()
    registry = Registry(str(own))
    registry.hold()
    registry.hold()
    registry.put("q", {"stream": "flights"}, Registered("i", "r"))
    with _holder(left) as process:
        Registry(str(left)).put("q", {"stream": "flights"}, Registered("i", "r"))
        registry.remove_dead()
        assert left.is_dir(), "its process lives"
        process.send_signal(signal.SIGTERM)
    registry.remove_dead()
    assert sorted(tmp_path.iterdir()) == sorted([own, *others]), "what has no lock may be somebody's"
    assert registry.options("q") == {"stream": "flights"}
    assert registry.registered("q") == Registered("i", "r")
    assert registry.incarnation("q") == "i"
    registry.remove()
    assert not own.exists()


def test_a_new_run_forgets_the_run_before(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path))
    registry.begin("q", "i")
    assert registry.incarnation("q") == "i"
    registry.put("q", {}, Registered("j", "r"))
    assert registry.incarnation("q") == "j", "it began another one, with its first batch"
    registry.doubt("q")
    registry.stop_run("q")
    registry.new_run("q")
    assert registry.incarnation("q") is None
    assert not registry.take_doubt("q")
    assert not registry.stopped("q")


def test_a_doubt_is_taken_once(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path))
    assert not registry.take_doubt("q")
    registry.doubt("q")
    registry.doubt("q")
    assert registry.take_doubt("q")
    assert not registry.take_doubt("q")


def test_one_process_at_a_time_registers_a_query(tmp_path: Path) -> None:
    registry, other = Registry(str(tmp_path)), Registry(str(tmp_path))
    with registry.registering("q") as first, other.registering("q", wait=False) as second:
        assert (first, second) == (True, False)
    with other.registering("q", wait=False) as free, other.registering("p", wait=False) as unrelated:
        assert free
        assert unrelated
