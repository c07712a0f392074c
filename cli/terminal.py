"""Output of commands that take long: one line of a terminal, written again; and their end by Ctrl-C."""

import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

_CLEAR: Final = "\r\x1b[K"


class ProgressLine:
    """The last line of stderr, if that is a terminal."""

    def __init__(self, *, wanted: bool = True) -> None:
        """`wanted`: False beside JSON, which is for programs."""
        self._shows = wanted and sys.stderr.isatty()
        self._written = False

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._shows:
            # A longer line would wrap, and could not be replaced.
            width = shutil.get_terminal_size().columns - 1
            click.echo(f"{_CLEAR}{text[:width]}", err=True, nl=False)
            self._written = True

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
def progress_line(*, wanted: bool = True) -> Iterator[ProgressLine]:
    """Give a line that is removed at the end, also after an error."""
    line = ProgressLine(wanted=wanted)
    try:
        yield line
    finally:
        line.clear()


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
