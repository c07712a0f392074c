"""`sluicegate orphans`: list files that no commit will include, with the reason; delete them on request."""

import json
import time
from typing import Any

import click

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.options import config_option, json_option, require_stream, stream_option
from sluicegate.cli.outcomes import parse_timeout
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.telemetry.wording import iso_time
from sluicegate.lakes.port import Fate
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.orphans import Deletable, Found, Search
from sluicegate.replay.sweep import open_search


@click.command()
@config_option
@stream_option
@click.option(
    "--grace",
    callback=lambda context, option, value: None if value is None else parse_timeout(context, option, value),
    help="How old a file must be, and what makes it an orphan; by default the stream's janitor.grace.",
)
@click.option("--delete", is_flag=True, help="Delete what is listed; log and table are asked again for each.")
@json_option
def orphans(settings: Settings, stream: str, grace: float | None, delete: bool, as_json: bool) -> None:
    """List files of attempts that no commit will include: losing attempts, and attempts of replaced lineages.

    The search covers only files that the log names before the stream's low-water mark. It skips every file
    that a snapshot, branch, tag or changelog of the table refers to.
    """
    require_stream(settings, stream)
    wait = settings.streams[stream].janitor.grace if grace is None else grace
    found, fates, said = run_async(settings, _orphans(settings, stream, wait, delete=delete))
    if as_json:
        click.echo(json.dumps(_values(stream, found, fates, said, wait), indent=2))
        return
    if said:
        click.echo(said)
    for file in found.files:
        click.echo(_line(file, fates.get(file.path)))
    click.echo(_summary(stream, found, fates, wait, delete=delete))


async def _orphans(
    settings: Settings, stream: str, grace: float, *, delete: bool
) -> tuple[Found, dict[str, Fate], str | None]:
    now = time.time_ns() // 1_000_000
    fates: dict[str, Fate] = {}
    try:
        async with open_search(settings, stream, round(grace * 1000), _say) as search:
            found = await search.find(now)
            if delete:
                async for file, fate in search.delete(found.files, now):
                    fates[file.path] = fate
            return found, fates, _limits(search)
    except ReplayRefused as error:
        raise UserError(str(error)) from error


def _limits(search: Search) -> str | None:
    return search.base.said if search.base else None


def _line(file: Deletable, fate: Fate | None) -> str:
    at = file.orphan.arrival
    done = "" if fate is None else f"{_FATES[fate]}  "
    return (
        f"{done}{file.path}  ({file.size:,} bytes): {file.orphan.reason}; attempt {at.writer or at.event} of "
        f"region {at.region}, lineage {at.lineage}, offset {at.offset}, an orphan since "
        f"{iso_time(file.orphan.since)}"
    )


_FATES = {
    Fate.DELETED: "deleted",
    Fate.GONE: "was gone",
    Fate.REFERENCED: "KEPT, something refers to it now:",
    Fate.OUTSIDE: "KEPT, no place of a data file:",
    Fate.UNREFERENCED: "KEPT",
}


def _summary(stream: str, found: Found, fates: dict[str, Fate], grace: float, *, delete: bool) -> str:
    size = sum(file.size for file in found.files)
    text = f"{len(found.files)} files of stream {stream} ({size:,} bytes) are in no commit and never will be"
    if delete:
        deleted = sum(fate is Fate.DELETED for fate in fates.values())
        text += f"; {deleted} deleted"
    elif found.files:
        text += "; --delete deletes them"
    if found.young:
        text += f"; {found.young} orphaned attempts are younger than {grace:g} s"
    return text


def _values(
    stream: str, found: Found, fates: dict[str, Fate], said: str | None, grace: float
) -> dict[str, Any]:
    return {
        "stream": stream,
        "grace_seconds": grace,
        "note": said,
        "younger": found.young,
        "kept": found.kept,
        "gone": found.gone,
        "files": [
            {
                "path": file.path,
                "size": file.size,
                "reason": file.orphan.reason,
                "since": file.orphan.since,
                **file.orphan.arrival._asdict(),
                "fate": fates[file.path].value if file.path in fates else None,
            }
            for file in found.files
        ],
    }


def _say(text: str) -> None:
    click.echo(text, err=True)
