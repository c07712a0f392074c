"""`sluicegate orphans`: list files that no commit will include, with the reason, or delete them."""

import time
from typing import Any, Final

import click

from sluicegate.cli.errors import run_async
from sluicegate.cli.main import Commands
from sluicegate.cli.options import (
    forged_option,
    json_option,
    order_options,
    parse_timeout,
    print_result,
    stream_options,
)
from sluicegate.cli.orders import note_order
from sluicegate.cli.terminal import progress_line
from sluicegate.coordinator.observe.messages import iso_time
from sluicegate.coordinator.replay.log import Print, Progress
from sluicegate.coordinator.replay.orphans import Deletable, Found, Search, Unnamed
from sluicegate.coordinator.replay.reading import require_verified
from sluicegate.coordinator.replay.tables import connect
from sluicegate.coordinator.settings.model import Settings
from sluicegate.lakes.capabilities import FileStatus
from sluicegate.texts import counted

_STATUSES: Final = {
    FileStatus.DELETED: "deleted",
    FileStatus.GONE: "did not exist any more",
    FileStatus.REFERENCED: "KEPT, something refers to it now:",
    FileStatus.OUTSIDE: "KEPT, it is not at the place of a data file:",
    FileStatus.UNREFERENCED: "KEPT",
}

Statuses = dict[tuple[str, str], FileStatus]
"""By the name of the table and the path, the status of a file at its deletion."""

grace_option = click.option(
    "--grace",
    callback=parse_timeout,
    help="Minimum age of a file, and of the cause; by default the stream's janitor.grace.",
)


table_option = click.option(
    "--table",
    metavar="NAME",
    help="Search this further table alone; an empty name is the stream's own one. By default, all.",
)


@click.group(cls=Commands)
def orphans() -> None:
    """List or delete files that no commit will include.

    They are of losing attempts, of ended incarnations, and of drivers that died before an event named them.
    Drafts of a publication are among them: metadata files that a coordinator wrote and did not publish.
    """


@orphans.command("list")
@stream_options
@table_option
@grace_option
@json_option
def list_orphans(
    settings: Settings, stream: str, table: str | None, grace: float | None, as_json: bool
) -> None:
    """List the orphans of a stream, each with the reason.

    The search covers the files that the log names, and those whose names state their attempt or their
    decision. It skips every file that a snapshot, branch, tag or changelog of the table refers to.
    """
    _run(settings, stream, table, grace, delete=False, as_json=as_json)


@orphans.command()
@order_options
@table_option
@grace_option
@forged_option
@json_option
def delete(
    settings: Settings,
    stream: str,
    table: str | None,
    grace: float | None,
    forged: tuple[str, ...],
    as_json: bool,
) -> None:
    """Delete the orphans of a stream. The log and the table are read again before each deletion."""
    _run(settings, stream, table, grace, delete=True, forged=forged, as_json=as_json)


def _run(
    settings: Settings,
    stream: str,
    table: str | None,
    grace: float | None,
    *,
    delete: bool,
    forged: tuple[str, ...] = (),
    as_json: bool,
) -> None:
    wait = settings.streams[stream].janitor.grace if grace is None else grace
    with progress_line(wanted=not as_json) as line:
        found, statuses = run_async(
            settings, _orphans(settings, stream, table, wait, line.show, forged if delete else None)
        )
    repeated = ("" if table is None else f" --table {table or repr(table)}") + (
        "" if grace is None else f" --grace {grace:g}s"
    )
    lines = [_line(file, statuses.get((file.table, file.path))) for file in found.deletable]
    lines += [_waiting_line(file) for file in found.waiting]
    lines += [f"NOT SEARCHED  table {name}: {why}" for name, why in sorted(found.failed.items())]
    lines.append(_summary(stream, found, statuses, wait, delete=delete, repeated=repeated))
    print_result(_values(stream, found, statuses, wait), lines, as_json=as_json)


async def _orphans(
    settings: Settings,
    stream: str,
    table: str | None,
    grace: float,
    show: Print,
    forged: tuple[str, ...] | None,
) -> tuple[Found, Statuses]:
    """Find the orphans, and delete them unless `forged` is None: the keys whose records are forged."""
    now = time.time_ns() // 1_000_000
    statuses: Statuses = {}
    async with connect(settings, stream, show) as connected:
        log, start = connected.log, connected.start
        if forged is not None:
            # A file of a decision that cannot be verified looks like an orphan.
            await require_verified(log, stream, start, forged)
        search = Search(stream, log, start, connected.tables(table), round(grace * 1000))
        show("listing the files of the table")
        found = await search.find(now)
        if forged is not None:
            files = found.deletable
            progress = Progress(show, "deleting", 0, len(files))
            await note_order(settings, stream, counted(len(files), "file"))
            async for file, status in search.delete(files, now):
                statuses[file.table, file.path] = status
                progress.at(len(statuses))
        return found, statuses


def _status(file: Deletable | Unnamed, statuses: Statuses) -> str | None:
    found = statuses.get((file.table, file.path))
    return found.value if found is not None else None


def _place(file: Deletable | Unnamed) -> str:
    """Return the place of a file, as lines name it."""
    return f"table {file.table}: {file.path}" if file.table else file.path


def _line(file: Deletable | Unnamed, status: FileStatus | None) -> str:
    done = "" if status is None else f"{_STATUSES[status]}  "
    if isinstance(file, Unnamed):
        since = iso_time(file.since)
        return f"{done}{_place(file)}  ({file.size:,} bytes): {file.reason}; nothing names it; since {since}"
    at = file.orphan.arrival
    return (
        f"{done}{_place(file)}  ({file.size:,} bytes): {file.orphan.reason}; attempt {at.writer or at.event} "
        f"of region {at.region}, incarnation {at.incarnation}, offset {at.offset}, an orphan since "
        f"{iso_time(file.orphan.since)}"
    )


def _waiting_line(file: Unnamed) -> str:
    settled = "" if file.since is None else f", since {iso_time(file.since)}"
    return f"STAYS  {_place(file)}  ({file.size:,} bytes): {file.reason}{settled}; nothing names it"


def _summary(
    stream: str,
    found: Found,
    statuses: Statuses,
    grace: float,
    *,
    delete: bool,
    repeated: str = "",
) -> str:
    """Format the result. `repeated` are options with which the next command finds the same files."""
    size = sum(file.size for file in found.deletable)
    files = counted(len(found.deletable), "file")
    text = f"{files} of stream {stream} ({size:,} bytes) in no commit, and in no later one"
    if delete:
        deleted = sum(status is FileStatus.DELETED for status in statuses.values())
        text += f"; {deleted} deleted"
    elif found.deletable:
        text += f". To delete them: sluicegate orphans delete --stream {stream}{repeated}"
    if found.young:
        text += f"; {counted(found.young, 'more orphaned attempt')} younger than {grace:g} s"
    if found.waiting:
        text += f"; {counted(len(found.waiting), 'file')} without an event left alone"
    return text


def _values(stream: str, found: Found, statuses: Statuses, grace: float) -> dict[str, Any]:
    return {
        "stream": stream,
        "grace_seconds": grace,
        "younger": found.young,
        "kept": found.kept,
        "gone": found.gone,
        "not_searched": dict(found.failed),
        "files": [
            {
                "path": file.path,
                "size": file.size,
                "reason": file.orphan.reason,
                "since": file.orphan.since,
                **file.orphan.arrival._asdict(),
                "status": _status(file, statuses),
            }
            for file in found.files
        ],
        "unnamed": [
            {
                **file._asdict(),
                "deletable": file in found.unnamed,
                "status": _status(file, statuses),
            }
            for file in (*found.unnamed, *found.waiting)
        ],
    }
