"""Progress of the demo: a block that redraws itself on a terminal, else plain lines."""

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TextIO

from sluicegate.demo.watch import Progress

_REDRAW_SECONDS: Final = 0.2
_LINE_SECONDS: Final = 3.0
_WIDTH: Final = 24
_UP: Final = "\x1b[{}A\x1b[J"


class Display:
    """Writes notes and, on a terminal, the newest state below them; may be used from any thread."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.live = out.isatty()
        """True if the block redraws itself."""
        self._lock = threading.Lock()
        self._block: Sequence[str] = ()
        self._shown = 0.0
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        """Write a permanent line."""
        with self._lock:
            self._clear()
            self._out.write(f"{self._clock()}  {text}\n")
            self._draw()

    def show(self, block: Sequence[str], *, at_once: bool = False) -> None:
        """Show the newest state. Unless `at_once`, updates are limited to a readable rate."""
        with self._lock:
            now = time.monotonic()
            pause = _REDRAW_SECONDS if self.live else _LINE_SECONDS
            if now - self._shown < pause and not at_once:
                return
            # Plain lines are permanent, so a repeated one is omitted.
            if not self.live and block == self._block:
                return
            self._shown = now
            self._clear()
            self._block = block
            if not self.live:
                self._out.write(f"{self._clock()}  {' | '.join(block)}\n")
            self._draw()

    def leave(self) -> None:
        """Keep the last state on the screen."""
        with self._lock:
            self._block = ()

    def _clock(self) -> str:
        return f"{time.monotonic() - self._began:6.1f} s"

    def _clear(self) -> None:
        if self.live and self._block:
            self._out.write(_UP.format(len(self._block)))

    def _draw(self) -> None:
        if self.live:
            self._out.writelines(f"{line}\n" for line in self._block)
        self._out.flush()


def describe(progress: Progress, totals: Mapping[str, int], kills: str, *, bars: bool) -> list[str]:
    """Format the progress: a line for each region, and one for the table."""
    if not any(view.batches for view in progress.regions.values()):
        return ["Spark is starting; no batch is complete yet"]
    lines = []
    for region, total in totals.items():
        view = progress.regions[region]
        bar = f"[{_bar(view.rows_committed, view.rows_written, total)}]  " if bars else ""
        lines.append(
            f"{region} {bar}{len(view.batches)} batches, {view.rows_written:,} of {total:,} rows, "
            f"{_committed(view.committed)}{', closed' if view.closed else ''}"
        )
    lines.append(f"table: {progress.commits} commits, watermark {_time(progress.watermark)}{kills}")
    return lines


def _committed(batch: int) -> str:
    return "nothing committed yet" if batch < 0 else f"committed up to batch {batch}"


def _bar(committed: int, written: int, total: int) -> str:
    """Format a bar: committed rows as `#`, written but uncommitted rows as `=`."""
    first, second = (_WIDTH * part // max(total, 1) for part in (committed, max(written, committed)))
    return "#" * first + "=" * (second - first) + "." * (_WIDTH - second)


def _time(millis: int | None) -> str:
    if millis is None:
        return "none yet"
    return f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%d %H:%M} UTC"
