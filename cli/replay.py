"""`sluicegate replay`: compare a stream's table with its log, repair it, or build a fresh one."""

import json
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import click
from pydantic import SecretStr

from sluicegate.cli.completing import complete_folders
from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.group import Commands
from sluicegate.cli.kafka import count_members, partition_count
from sluicegate.cli.noting import note_order
from sluicegate.cli.options import config_option, forged_option, json_option, require_stream, stream_option
from sluicegate.cli.ordered_by import current_order, order_options
from sluicegate.cli.progress import progress_line
from sluicegate.cli.replay_text import Output, rebuilt_output, repaired_output, verdict_output
from sluicegate.coordinator.replay.decisions import ReplayRefused
from sluicegate.coordinator.replay.reading import FORMS, Mark, Window, parse_mark, require_verified
from sluicegate.coordinator.replay.rebuild import Rebuild
from sluicegate.coordinator.replay.repair import Repair
from sluicegate.coordinator.replay.tables import Connected, ReplayTable, connect
from sluicegate.coordinator.replay.verify import verify as verify_table
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.other_groups import OwnedElsewhere, refuse_other_groups
from sluicegate.coordinator.stream.records import read_held
from sluicegate.lakes.port import TableRefused

DIFFERENT: Final = 1
"""Exit status if the table differs from the log."""


def _absolute(_: click.Context, __: click.Parameter, value: str) -> str:
    """Return a local table path as an absolute path, because logs and records name the table by it."""
    return value if urlsplit(value).scheme else os.path.abspath(value)


def _pairs(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, SecretStr]:
    """Return options of a table by name. Raises BadParameter."""
    if wrong := [value for value in values if not value.partition("=")[0] or "=" not in value]:
        raise click.BadParameter(f"{wrong[0]!r} does not have the form NAME=VALUE")
    return {name: SecretStr(text) for name, _, text in (value.partition("=") for value in values)}


def _mark(_: click.Context, option: click.Parameter, value: str) -> Mark:
    """Parse a mark of the log. Raises BadParameter."""
    if value == {"start": "latest", "stop": "earliest"}.get(option.name or ""):
        raise click.BadParameter("this leaves nothing to replay")
    try:
        return parse_mark(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


from_option = click.option(
    "--from", "start", callback=_mark, default="earliest", show_default=True, help=f"First decision: {FORMS}."
)
to_option = click.option(
    "--to",
    "stop",
    callback=_mark,
    default="latest",
    show_default=True,
    help="Last decision, in the same forms.",
)
dry_option = click.option("--dry-run", "dry", is_flag=True, help="Only list what would be done.")


@click.group(cls=Commands)
def replay() -> None:
    """Read a stream's log again: compare its table with it, repair the table, or build a fresh one."""


@replay.command()
@config_option
@stream_option
@from_option
@to_option
@click.option(
    "--all", "everything", is_flag=True, help="List every decision, also those that are in the table."
)
@forged_option
@json_option
def verify(
    settings: Settings,
    stream: str,
    start: Mark,
    stop: Mark,
    everything: bool,
    forged: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare the table with the decisions of the log: missing, doubled and foreign commits.

    The comparison uses the ids and digests of decisions in the table's history. It ignores file paths, which
    compaction rewrites. It also opens the metadata of the newest snapshot and a sample of its data files. It
    may run beside a coordinator. Exit status 1 if the table differs from the log, if a file cannot be opened,
    or if records of the log are refused that may be yours: their key is missing here, or they have no
    signature.
    """
    require_stream(settings, stream)

    async def work() -> Output:
        with progress_line(wanted=not as_json) as line:
            async with _connected(settings, stream) as (log, begin, table, _):
                window, shown = Window(start, stop), line.show
                verdict = await verify_table(
                    log, stream, begin, window, table, shown, everything=everything, forged=forged
                )
                opened = await table.open_newest()
        return verdict_output(stream, verdict, opened)

    _print(settings, work(), as_json=as_json)


@replay.command()
@config_option
@stream_option
@order_options
@from_option
@to_option
@forged_option
@dry_option
@json_option
def repair(
    settings: Settings,
    stream: str,
    start: Mark,
    stop: Mark,
    forged: tuple[str, ...],
    dry: bool,
    as_json: bool,
) -> None:
    """Commit the decisions of the log that the table provably lacks, after it was rolled back or restored.

    They get the same ids and digests, so a coordinator finds them. Stop the coordinators first.
    """
    require_stream(settings, stream)

    async def work() -> Output:
        with progress_line(wanted=not as_json) as line:
            async with _connected(settings, stream) as (log, begin, table, _):
                if settings.kafka.signing.mode == "required":
                    await require_verified(log, stream, begin, forged)
                if not dry:
                    await _refuse_other_group(settings, stream)
                    await _refuse_if_owned(settings)
                    await note_order(settings, stream)
                # Checked again before each write: a coordinator may have started in the meantime.
                repairing = Repair(log, stream, table, lambda: _refuse_if_owned(settings), dry=dry)
                repaired = await repairing.run(begin, Window(start, stop), line.note, line.show)
                if repaired.orders:
                    await _refuse_if_owned(settings)
                    await log.append(stream, repaired.orders, current_order())
        return repaired_output(stream, repaired, dry=dry)

    _print(settings, work(), as_json=as_json)


@replay.command()
@config_option
@stream_option
@order_options
@click.option(
    "--into",
    required=True,
    shell_complete=complete_folders,
    metavar="TABLE",
    callback=_absolute,
    help="Location of the new table.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="Option of the new table in place of the stream's, such as identifier; repeat it for more.",
)
@to_option
@click.option("--incomplete", is_flag=True, help="Make a table also of a log whose beginning was deleted.")
@click.option(
    "--schema-from-target",
    "lost",
    is_flag=True,
    help="Your statement that TABLE, which exists and is empty, has the columns and the partitioning of the "
    "stream's table, whose metadata is lost. Each file is compared with it, as far as that is possible.",
)
@forged_option
@dry_option
@json_option
def rebuild(
    settings: Settings,
    stream: str,
    into: str,
    options: dict[str, SecretStr],
    stop: Mark,
    incomplete: bool,
    lost: bool,
    forged: tuple[str, ...],
    dry: bool,
    as_json: bool,
) -> None:
    """Build a fresh table from copies of the files, with the same commits in the same order.

    The stream's own table is not changed. The same command continues a run that was interrupted.
    """
    require_stream(settings, stream)

    async def work() -> Output:
        own = settings.streams[stream]
        changes = {"table": into, "allowed_locations": (), "options": own.options | options}
        place = own.model_copy(update=changes)
        with progress_line(wanted=not as_json) as line:
            async with _connected(settings, stream) as (log, begin, table, threads):
                if settings.kafka.signing.mode == "required":
                    await require_verified(log, stream, begin, forged)
                if not dry:
                    await note_order(settings, stream, f"into {into}")
                target = ReplayTable(place, threads, stream)
                try:
                    rebuilding = Rebuild(
                        log, stream, table, target, dry=dry, incomplete=incomplete, lost=lost
                    )
                    made = await rebuilding.run(begin, Window(parse_mark("earliest"), stop), line.show)
                finally:
                    target.close()
        return rebuilt_output(stream, into, made, dry=dry)

    _print(settings, work(), as_json=as_json)


@asynccontextmanager
async def _connected(settings: Settings, stream: str) -> AsyncIterator[Connected]:
    """Connect to the log and the table. Raises KafkaError, UserError."""
    try:
        async with connect(settings, stream) as connected:
            yield connected
    except (ReplayRefused, TableRefused) as error:
        raise UserError(str(error)) from error


def _print(settings: Settings, work: Coroutine[Any, Any, Output], *, as_json: bool) -> None:
    output = run_async(settings, work)
    if as_json:
        click.echo(json.dumps(output.values, indent=2))
    else:
        for line in output.lines:
            click.echo(line)
    click.get_current_context().exit(DIFFERENT if output.different else 0)


async def _refuse_if_owned(settings: Settings) -> None:
    """Refuse a stream while a coordinator of the group runs, or may run. Raises ReplayRefused."""
    group = settings.kafka.group_id
    members = await count_members(settings)
    if members is None:
        raise ReplayRefused(
            f"a running coordinator could not be seen: this client may not describe the group {group}. Grant "
            f"it DESCRIBE on the group {group}"
        )
    if members > 0:
        raise ReplayRefused(
            f"{members} coordinator{'s run' if members > 1 else ' runs'} (group {group}), and would commit "
            "beside this command. If it does not, `sluicegate status` shows why. To commit them from here, "
            "stop the coordinators first (a killed one counts until its session ends)"
        )


async def _refuse_other_group(settings: Settings, stream: str) -> None:
    """Refuse a stream that another group serves. Raises ReplayRefused."""
    topic, options = settings.kafka.topic_names().state, settings.kafka.client_options()
    count = await partition_count(settings, topic)
    held = await read_held(topic, count, options, [stream], settings.kafka.request_timeout)
    try:
        wrote = {name: each.group for name, each in held.items()}
        await refuse_other_groups(options, settings.kafka.group_id, wrote)
    except OwnedElsewhere as error:
        raise ReplayRefused(str(error)) from error
