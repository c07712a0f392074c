"""Output of commands for people: progress of long ones, colours, and their end by Ctrl-C."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

import click

# Progress. Terminals get one line that is written again, logs and pipes get a line from time to time.

_CLEAR: Final = "\r\x1b[K"
EVERY: Final = 30.0
"""Seconds between two lines of progress without a terminal."""


class ProgressLine:
    """The last line of stderr if that is a terminal, else a line from time to time."""

    def __init__(self, *, wanted: bool = True, every: float = EVERY) -> None:
        """`wanted`: False beside JSON, which is for programs. `every`: seconds between lines that stay."""
        self._wanted = wanted
        self._rewrites = sys.stderr.isatty()
        self._every = every
        self._written = False
        self._printed = time.monotonic()

    def show(self, text: str) -> None:
        """Replace the line. Without a terminal, print it if the last one is old enough."""
        if not self._wanted:
            return
        if self._rewrites:
            # A longer line would wrap, and could not be replaced.
            width = shutil.get_terminal_size().columns - 1
            click.echo(f"{_CLEAR}{text[:width]}", err=True, nl=False)
            self._written = True
        elif (now := time.monotonic()) - self._printed >= self._every:
            self._printed = now
            click.echo(text, err=True)

    def note(self, text: str) -> None:
        """Print a message that stays, also without a terminal."""
        self.clear()
        click.echo(text, err=True)

    def clear(self) -> None:
        """Remove the line, for other output."""
        if self._written:
            click.echo(_CLEAR, err=True, nl=False)
            self._written = False


@contextmanager
def progress_line(*, wanted: bool = True, every: float = EVERY) -> Iterator[ProgressLine]:
    """Give a line that is removed at the end, also after an error."""
    line = ProgressLine(wanted=wanted, every=every)
    try:
        yield line
    finally:
        line.clear()


# Colours.

Severity = Literal["good", "warning", "bad"]
_COLOURS: Final[dict[Severity, str]] = {"good": "green", "warning": "yellow", "bad": "red"}


def coloured(text: str, severity: Severity | None) -> str:
    """Return a text in the colour of its severity; plain without one, or if NO_COLOR is set.

    `click.echo` removes the colour where the output is no terminal.
    """
    if severity is None or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=_COLOURS[severity])


# Commands that run until Ctrl-C.


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Run the block until Ctrl-C or SIGTERM, which both leave it in order."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
