"""`sluicegate replay`: list a stream's decisions from its log, and verify, repair or rebuild its table."""

import json
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import click

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import count_members, partition_count
from sluicegate.cli.options import config_option, json_option, require_stream, stream_option
from sluicegate.cli.replay_words import (
    REPLACED,
    Said,
    dry_said,
    rebuilt_said,
    repaired_said,
    verdict_said,
)
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.ownership import OwnedElsewhere, refuse_other_groups
from sluicegate.coordinator.records import read_held
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.continuity import Home
from sluicegate.lakes.port import TableRefused
from sluicegate.replay.base import Base, bases, check_continuity
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.log import StreamLog, open_log, stream_records
from sluicegate.replay.marks import FORMS, Mark, Window, parse_mark
from sluicegate.replay.rebuild import Rebuild
from sluicegate.replay.records import write_record
from sluicegate.replay.repair import Repair
from sluicegate.replay.tables import ReplayTable
from sluicegate.replay.verify import list_decisions, verify

DIFFERENT: Final = 1
"""Exit status if the table differs from the log."""


_START: Final = "earliest"


def _absolute(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Return a local table path as an absolute path, because logs and records name the table by it."""
    return value if value is None or urlsplit(value).scheme else os.path.abspath(value)


def _mark(_: click.Context, __: click.Parameter, value: str) -> Mark:
    """Parse a mark of the log. Raises BadParameter."""
    try:
        return parse_mark(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@config_option
@stream_option
@click.option(
    "--from", "start", callback=_mark, default=_START, show_default=True, help=f"From where on: {FORMS}."
)
@click.option(
    "--to", "stop", callback=_mark, default="latest", show_default=True, help="Up to where, included."
)
@click.option("--dry-run", "dry", is_flag=True, help="Only tell what was decided, or what would be done.")
@click.option(
    "--verify", "verifying", is_flag=True, help="Compare with the table: missing, doubled, foreign."
)
@click.option("--commit-missing", "mending", is_flag=True, help="Commit what the table provably lacks.")
@click.option(
    "--into",
    metavar="TABLE",
    callback=_absolute,
    help="Make a fresh table of copies of the files, with the same cuts.",
)
@json_option
@click.pass_context
def replay(
    context: click.Context,
    settings: Settings,
    stream: str,
    start: Mark,
    stop: Mark,
    dry: bool,
    verifying: bool,
    mending: bool,
    into: str | None,
    as_json: bool,
) -> None:
    """Read a stream's log again and list its decisions. Compare them with the table, or commit missing ones.

    The comparison uses the ids and digests of decisions in the table's history. It ignores file paths, which
    compaction rewrites. Exit status 1 if the table differs from the log.
    """
    require_stream(settings, stream)
    if verifying + mending + (into is not None) > 1 or not (dry or verifying or mending or into):
        raise click.UsageError("say one of --verify, --commit-missing and --into, or --dry-run")
    if start.text == "latest" or stop.text == "earliest":
        raise click.UsageError("--from latest and --to earliest leave nothing to replay")
    if into is not None and start.text != _START:
        raise click.UsageError("--into makes a table from its first commit on: it goes with --from earliest")
    wanted = _Wanted(stream, start, stop, dry, verifying, mending, into)
    said = run_async(settings, _replay(settings, wanted))
    if as_json:
        click.echo(json.dumps(said.values, indent=2))
    else:
        for line in said.lines:
            click.echo(line)
    context.exit(DIFFERENT if said.different else 0)


@dataclass(frozen=True)
class _Wanted:
    stream: str
    start: Mark
    stop: Mark
    dry: bool
    verifying: bool
    mending: bool
    into: str | None


@dataclass
class _Setup:
    """Open connections and the possible starting points of a replay."""

    log: StreamLog
    records: list[StateRecord]
    choices: list[Base]
    table: ReplayTable
    threads: ThreadPoolExecutor


async def _replay(settings: Settings, wanted: _Wanted) -> Said:
    try:
        async with _opened(settings, wanted) as setup:
            return await _do(settings, wanted, setup)
    except (ReplayRefused, TableRefused) as error:
        raise UserError(str(error)) from error


@asynccontextmanager
async def _opened(settings: Settings, wanted: _Wanted) -> AsyncIterator[_Setup]:
    stream = wanted.stream
    records = await stream_records(settings, stream)
    with ThreadPoolExecutor(1) as threads:
        table = ReplayTable(settings.streams[stream], threads)
        async with open_log(settings, stream) as log:
            held = await log.range()
            home = Home(log.source.partition, settings.streams[stream].commit_user)
            await check_continuity(log.fetcher, home, records, held)
            yield _Setup(log, records, bases(records, held, wanted.start), table, threads)
        table.close()


async def _do(settings: Settings, wanted: _Wanted, setup: _Setup) -> Said:
    stream, window = wanted.stream, Window(wanted.start, wanted.stop)
    where = (setup.log, stream, setup.choices, window)
    members = await count_members(settings)
    working = members is None or members > 0
    known = setup.records[-1].state.table if setup.records else None
    if wanted.into is not None:
        place = settings.streams[stream].model_copy(update={"table": wanted.into, "allowed_locations": ()})
        target = ReplayTable(place, setup.threads)
        try:
            rebuild = Rebuild(setup.log, setup.table, target, dry=wanted.dry)
            made = await rebuild.run(stream, setup.choices, window, _say)
        finally:
            target.close()
        return rebuilt_said(stream, wanted.into, made, dry=wanted.dry)
    if wanted.mending:
        newest = setup.records[-1] if setup.records else None
        if known not in (None, (await setup.table.history()).identity):
            raise ReplayRefused(REPLACED)
        repair = Repair(setup.log, setup.table, newest, lambda: _refuse_if_owned(settings), dry=wanted.dry)
        if not wanted.dry:
            await _refuse_other_group(settings, stream)
            await _refuse_if_owned(settings)
        # Checked again before each write: a coordinator may have started in the meantime.
        repaired = await repair.run(stream, setup.choices, window, _say)
        if repaired.record is not None:
            await _refuse_if_owned(settings)
            await write_record(settings, repaired.record)
        return repaired_said(stream, repaired, dry=wanted.dry)
    if wanted.verifying:
        return verdict_said(stream, await verify(*where, setup.table, known=known, working=working, say=_say))
    return dry_said(stream, *await list_decisions(*where, setup.table, say=_say))


async def _refuse_if_owned(settings: Settings) -> None:
    """Refuse a stream while a coordinator of the group runs, or may run. Raises ReplayRefused."""
    group = settings.kafka.group_id
    members = await count_members(settings)
    if members is None:
        raise ReplayRefused(
            f"whether a coordinator runs cannot be seen: this client may not describe the group {group}; "
            "grant it DESCRIBE on the group"
        )
    if members > 0:
        raise ReplayRefused(
            f"{members} coordinator{'s run' if members > 1 else ' runs'} (group {group}): what is missing is "
            "committed there, or `sluicegate status` says why not. To do it from here, stop the coordinators "
            "first (one that was killed counts until its session ends)"
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


def _say(text: str) -> None:
    click.echo(text, err=True)
