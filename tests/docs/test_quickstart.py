"""The quick starts in README.md and docs/quickstart.md, run with real servers as they stand in the text.

A `bash` block is run. The `text` block after it is the whole standard output, where `...` matches any text.
After a command in the background, the test waits for the lines of the `text` block.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from sluicegate.cli.local.jars import kafka_jars
from tests.integration.waiting import tail, wait_until

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("README.md", "docs/quickstart.md")
PORTS: Final = (9092, 6379, 8080)
"""The ports of the text: Kafka, Valkey, and the coordinator."""
OWN_NETWORK: Final = (
    *("unshare", "--map-root-user", "--net"),
    *("sh", "-c", 'ip link set lo up && exec "$@"', "sh"),
)
"""Runs a command where all ports are free."""
BLOCK: Final = re.compile(r"^```(bash|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def _fits(shown: str, line: str) -> bool:
    """Return True if a line is one of the text, where `...` matches any text."""
    return re.fullmatch(".*".join(map(re.escape, shown.split("..."))), line) is not None


@dataclass(frozen=True, slots=True)
class Step:
    """One block of commands, and the lines that the text shows for it."""

    commands: str
    expected: list[str]

    @property
    def background(self) -> bool:
        return self.commands.rstrip().endswith("&")

    def is_shown(self, printed: str) -> bool:
        """Return True if each line of the text is in the output so far."""
        lines = printed.splitlines()
        return all(any(_fits(each, line) for line in lines) for each in self.expected)

    def differs(self, printed: list[str]) -> bool:
        """Return True if the output is not the one of the text."""
        fits = [_fits(*pair) for pair in zip(self.expected, printed, strict=False)]
        return len(printed) != len(self.expected) or not all(fits)


@dataclass(frozen=True, slots=True)
class Job:
    """A background process of the shell."""

    pid: int

    def poll(self) -> int | None:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 1
        return None


class Shell:
    """One bash that runs the steps in order, as a reader does; it ends at the first command that fails."""

    def __init__(self, process: subprocess.Popen[str], outputs: Path) -> None:
        self._process = process
        self._outputs = outputs
        self._count = 0

    def run(self, step: Step) -> None:
        """Run one step. Raises AssertionError if it fails, or prints something else than the text."""
        self._count += 1
        out, err, done = (self._outputs / f"{self._count}.{each}" for each in ("out", "err", "done"))
        commands = f"{{\n{step.commands}}} < /dev/null > '{out}' 2> '{err}'\n"
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(f"{commands}echo $! > '{done}.part'; mv '{done}.part' '{done}'\n")
        stdin.flush()
        wait_until(done.exists, by=self._process, log=err, what=step.commands)
        if step.background:
            job = Job(int(done.read_text()))
            wait_until(
                lambda: f"{out.read_text()}{err.read_text()}",
                step.is_shown,
                by=job,
                log=err,
                what=step.commands,
            )
        elif step.expected:
            printed = out.read_text().splitlines()
            shown = "\n".join(printed)
            assert not step.differs(printed), f"{step.commands}prints:\n{shown}{tail(err)}"


def steps_of(text: str) -> list[Step]:
    """Return the steps of a page."""
    steps: list[Step] = []
    for kind, content in BLOCK.findall(text):
        if kind == "bash":
            steps.append(Step(content, []))
        elif steps:
            steps[-1] = Step(steps[-1].commands, content.splitlines())
    return steps


def journey(page: str) -> list[Step]:
    """Return the steps of a page."""
    return steps_of((ROOT / page).read_text(encoding="utf-8"))


def _has_own_network() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*OWN_NETWORK, "true"], capture_output=True).returncode == 0


def _taken() -> list[int]:
    found = []
    for port in PORTS:
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                found.append(port)
    return found


@contextmanager
def shell_in(clone: Path) -> Iterator[Shell]:
    """Give a shell in a folder, with the commands of this environment first."""
    own_network = _has_own_network()
    if not own_network and (taken := _taken()):
        pytest.skip(f"ports of the text are taken ({taken}), and this system gives no network of its own")
    outputs = clone.parent / "outputs"
    outputs.mkdir()
    kept = {"SLUICEGATE_CACHE", "SLUICEGATE_MAVEN"}
    env = {
        key: value for key, value in os.environ.items() if key in kept or not key.startswith("SLUICEGATE_")
    }
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    if own_network:
        env["SPARK_LOCAL_IP"] = "127.0.0.1"
        kafka_jars()  # there is no way out to download them
    command = [*(OWN_NETWORK if own_network else ()), "bash", "-e"]
    log = outputs / "shell.log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=clone,
            env=env,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield Shell(process, outputs)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.spark
@pytest.mark.parametrize("page", PAGES)
def test_a_quick_start_works_as_it_stands(page: str, tmp_path: Path) -> None:
    steps = journey(page)
    assert any("python examples/read_" in step.commands and step.expected for step in steps)
    clone = tmp_path / "clone"
    clone.mkdir()
    shutil.copytree(ROOT / "examples", clone / "examples")
    with shell_in(clone) as shell:
        for step in steps:
            shell.run(step)


@pytest.mark.parametrize("page", PAGES)
def test_the_extras_of_the_install_lines_exist(page: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r'pip install "\.\[([\w,-]+)\]"', (ROOT / page).read_text(encoding="utf-8"))
    assert named
    assert {extra for group in named for extra in group.split(",")} <= set(project["optional-dependencies"])
