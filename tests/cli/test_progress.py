"""The line of progress: on a terminal alone, and removed at the end."""

import os
import pty
import subprocess
import sys
from typing import Final

import pytest

PROGRAM: Final = """
from sluicegate.cli.terminal import progress_line
import click
with progress_line(wanted={wanted}) as line:
    line.show("reading the log: 1 of 2" + "x" * 500)
    line.note("decision 1 is in the table")
    line.show("reading the log: 2 of 2")
click.echo("done")
"""


def on_a_terminal(program: str) -> tuple[str, str]:
    """Run a program with a terminal as its stderr; return stdout and what the terminal got."""
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "40"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=slave, check=True
    )
    os.close(slave)
    with os.fdopen(master, "rb") as terminal:
        return done.stdout.decode(), terminal.read1().decode()


@pytest.mark.slow
def test_a_terminal_gets_one_line_that_is_removed() -> None:
    out, shown = on_a_terminal(PROGRAM.format(wanted=True))
    assert out == "done\n"
    clear = "\r\x1b[K"
    first, second, third, last = shown.split(clear)[1:]
    assert first == ("reading the log: 1 of 2" + "x" * 500)[:39]
    assert second.replace("\r\n", "\n") == "decision 1 is in the table\n"
    assert third == "reading the log: 2 of 2"
    assert last == ""


@pytest.mark.slow
def test_beside_json_the_terminal_gets_messages_alone() -> None:
    out, shown = on_a_terminal(PROGRAM.format(wanted=False))
    assert out == "done\n"
    assert shown.replace("\r\n", "\n") == "decision 1 is in the table\n"


@pytest.mark.slow
def test_a_pipe_gets_messages_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(wanted=True)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("done\n", "decision 1 is in the table\n")
