"""`sluicegate status`: state of the streams, from the coordinator, else from the state records."""

import json
import time
from datetime import UTC, datetime
from typing import Any, Final

import click

from sluicegate.cli.completing import complete_streams
from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.interrupting import until_interrupted
from sluicegate.cli.kafka import Dated, LogOffsets, count_members, read_dated_records, read_offsets
from sluicegate.cli.live import ask_member
from sluicegate.cli.options import config_option, json_option, require_stream
from sluicegate.cli.serving import format_unserved, is_unserved
from sluicegate.cli.status_lines import lines_of
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.observe.view import overview
from sluicegate.coordinator.settings.model import Settings, StreamSettings
from sluicegate.events.envelope import partition_of
from sluicegate.events.problems import Problem

_AGAIN: Final = 2.0
"""Seconds between two looks with --watch."""


@click.command()
@config_option
@click.option("--stream", shell_complete=complete_streams, help="Only this stream.")
@click.option("--verbose", "-v", is_flag=True, help="Show incarnations and source offsets in full.")
@click.option("--watch", is_flag=True, help="Show them again every 2 s, until Ctrl-C.")
@json_option
def status(settings: Settings, stream: str | None, verbose: bool, watch: bool, as_json: bool) -> None:
    """Show the streams: positions of the regions, last commit, and all conditions that delay the next one.

    Streams of the coordinator at http.host and http.port are shown live. Other streams are shown from their
    state records, with the age of the record. A record is written when the stream commits, stalls or resumes.
    The command needs Kafka. Without Kafka, ask a coordinator: GET /status.
    """
    if stream is not None:
        require_stream(settings, stream)
    if watch:
        _watch(settings, stream, verbose=verbose, as_json=as_json)
    else:
        click.echo(_text(settings, stream, verbose=verbose, as_json=as_json))


def _watch(settings: Settings, stream: str | None, *, verbose: bool, as_json: bool) -> None:
    """Print the status again and again, until Ctrl-C. An outage is shown, and waited for."""
    with until_interrupted():
        while True:
            try:
                text = _text(settings, stream, verbose=verbose, as_json=as_json)
            except UserError as error:
                text = f"{error.message}. It is tried again"
            click.clear()
            click.echo(f"{datetime.now(UTC):%H:%M:%S} UTC\n{text}")
            time.sleep(_AGAIN)


def _text(settings: Settings, stream: str | None, *, verbose: bool, as_json: bool) -> str:
    """Format the status as of now. Raises UserError."""
    shown, coordinators, differences = run_async(settings, _collect(settings))
    if stream is not None:
        shown = [each for each in shown if each["stream"] == stream]
    if as_json:
        found = {"coordinators": coordinators, "differences": differences, "streams": shown}
        return json.dumps(found, indent=2)
    now = time.time_ns() // 1_000_000
    lines = [f"THE MEMBERS DIFFER: {each}" for each in differences]
    lines += [line for each in shown for line in lines_of(each, now, verbose=verbose)]
    if coordinators == 0:
        group = settings.kafka.group_id
        lines.insert(
            0, f"no coordinator is running (group {group} has no members). Start one: sluicegate run"
        )
    return "\n".join(lines)


async def _collect(settings: Settings) -> tuple[list[dict[str, Any]], int | None, list[str]]:
    """Return the streams, the number of running coordinators, and the differences between them.

    The number is None without permission to describe the group.
    """
    records = await read_dated_records(settings)
    offsets = await read_offsets(settings)
    member, coordinators = await ask_member(settings), await count_members(settings)
    live = {} if member is None else member["streams"]
    shown = [
        describe(name, records.get(name), offsets, settings.streams.get(name), live=live.get(name))
        for name in sorted({*records, *settings.streams})
    ]
    for each in shown if coordinators else []:
        stream, recorded = each["stream"], each["recorded_at"] is not None
        if each["configured"] and is_unserved(stream, each["partition"], member, recorded=recorded):
            each["unserved"] = format_unserved(stream, settings.kafka.group_id)
    # An older release tells none.
    return shown, coordinators, [] if member is None else member.get("differences", [])


def describe(
    stream: str,
    dated: Dated | None,
    offsets: LogOffsets,
    settings: StreamSettings | None,
    *,
    live: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a stream as JSON values, from its coordinator if that answers, else from its record.

    `settings` are those of this command; None: they do not have the stream.

    Times are milliseconds since the Unix epoch.
    """
    record = dated.record if dated else None
    known = record.state.partition if isinstance(record, StateRecord) else None
    partition = partition_of(stream, len(offsets.end)) if known is None else known
    end, group = offsets.end.get(partition), offsets.group.get(partition)
    shown: dict[str, Any] = {
        "stream": stream,
        "configured": settings is not None,
        "owner": settings.owner if settings is not None else "",
        "known": record is not None,
        "problem": format_problem(record, stream) if isinstance(record, Problem) else None,
        "partition": partition,
        "end_offset": end,
        "group_offset": group,
        "read_by_restart": None if end is None else end - min(group or 0, end),
        "recorded_at": dated.time if dated else None,
        "live": live is not None,
        "unserved": None,
    }
    if live is not None:
        shown |= {name: value for name, value in live.items() if name not in shown or name == "owner"}
        shown["known"] = record is not None or live["assignment"] is not None
    elif isinstance(record, StateRecord) and dated is not None:
        shown |= overview(record, dated.time)
    return shown
