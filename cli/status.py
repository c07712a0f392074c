"""`sluicegate status`: state of the streams, from the coordinator, else from the state records."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from sluicegate.cli.coordinators import ask_member, format_unserved, is_unserved
from sluicegate.cli.errors import run_async
from sluicegate.cli.kafka import LogOffsets, count_members, read_offsets, read_records
from sluicegate.cli.options import config_option, json_option, print_result, require_stream
from sluicegate.cli.terminal import Severity, coloured
from sluicegate.coordinator.core.effects import OPTIONAL
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.messages import duration, format_problem, iso_time, listed, short_id
from sluicegate.coordinator.observe.view import RANKS, reasons_of, view_of
from sluicegate.coordinator.settings.model import Settings, StreamSettings
from sluicegate.coordinator.stream.records import Held
from sluicegate.events.envelope import partition_of
from sluicegate.events.models import Position, SnapshotRef
from sluicegate.events.problems import Code, Problem
from sluicegate.state_store import ConditionView, PendingView, StreamView
from sluicegate.texts import counted

# Format of a stream for people, as `sluicegate status` prints it.

_SHOWN: Final = 60
"""Characters of source offsets, which are opaque and may be long; `--verbose` shows all of them."""

Shown = Mapping[str, Any]


def lines_of(shown: Shown, now: int, *, verbose: bool) -> list[str]:
    """Format a stream as lines; `now` in milliseconds since the Unix epoch."""
    again = shown["read_by_restart"]
    place = f"partition {shown['partition']}" + (
        "" if again is None else f" (a restart reads {counted(again, 'record')})"
    )
    note = "" if shown["configured"] else "  NOT CONFIGURED HERE"
    note += f"  owner {shown['owner']}" if shown.get("owner") else ""
    if "revision" not in shown:
        state = shown["problem"] or "no coordinator has served it yet"
        return [f"{shown['stream']}  {state}  {place}{note}", *_unserved(shown)]
    view = StreamView.model_validate(shown)
    return [
        f"{view.stream}  {_commit(view)}  watermark {_time(view.watermark)}  {place}{note}",
        _source(shown, now),
        *_unserved(shown),
        *_conditions(view, now),
        *_progress(view),
        *_tables(view, verbose=verbose),
        *_regions(view, now, verbose=verbose, live=shown["live"]),
        *_listeners(view),
        *(
            f"  {coloured('REFUSED', 'bad')}: a driver of region {name}, which the stream does not have: "
            f"{why.message}"
            for name, why in view.strangers.items()
        ),
    ]


def reasons(view: StreamView) -> list[str]:
    """Return why a stream, or an order to it, does not progress, in the order of the live page."""
    optional = {each.message for each in view.conditions if _delays_nothing(each)}
    found = reasons_of(view, view.updated_at, None)
    return [each.message for each in found if each.message not in optional]


def _delays_nothing(condition: ConditionView) -> bool:
    """True if a step is tried again on which nothing depends, such as the view in Redis."""
    names = condition.arguments.get("names", ())
    return condition.code == Code.RETRYING and not {*names} - OPTIONAL


# --- the stream -----------------------------------------------------------------------------------


def _commit(view: StreamView) -> str:
    if not view.committed:
        return "no commit yet"
    return f"commit {view.committed}{_head(', snapshot', view.snapshot)}"


def _head(label: str, head: SnapshotRef | None) -> str:
    """Format a snapshot as the option --head of `sluicegate stream resume` takes it."""
    return "" if head is None else f"{label} {head.id}:{head.identity}"


def _source(shown: Shown, now: int) -> str:
    if shown["live"]:
        reading = "" if shown["ready"] else ", which is still reading the log or waits for its table"
        return f"  as of now, by its coordinator{reading}"
    return f"  as of {_ago(shown['updated_at'], now)}, by its state record"


def _unserved(shown: Shown) -> list[str]:
    """Format that no running coordinator serves the stream."""
    return [] if shown["unserved"] is None else [f"  {coloured('NOT SERVED', 'bad')}: {shown['unserved']}"]


def _listeners(view: StreamView) -> Iterator[str]:
    """Format the listeners of a stream that its coordinator runs."""
    for name, each in view.listeners.items():
        handled = "nothing handled yet" if not each.decision else f"handled decision {each.decision}"
        behind = f", {each.backlog} behind" if each.backlog else ""
        yield f"  listener {name} ({each.type}): {handled}{behind}"
        if each.problem is not None:
            stopped = coloured("STOPPED", "bad") if each.stopped else coloured("RETRY", "warning")
            yield f"    {stopped} {each.problem.code}: {each.problem.message}"
        if each.note:
            yield f"    NOTE: {each.note}"


def _conditions(view: StreamView, now: int) -> Iterator[str]:
    retries = {each.message: each.retry_in for each in view.conditions}
    for each in reasons_of(view, now, None):
        wait = retries.get(each.message)
        retry = f" (next try in {duration(wait / 1000)})" if wait else ""
        yield f"  {coloured(f'{each.kind.upper()} {each.code}', _severity(each.kind))}: {each.message}{retry}"


def _severity(kind: str) -> Severity | None:
    """Return the severity of a kind of reasons; None for what somebody ordered, or what passes by itself."""
    rank = RANKS.get(kind, RANKS["retry"])
    return "bad" if rank <= RANKS["refusal"] else "warning" if rank <= RANKS["letter"] else None


def _progress(view: StreamView) -> Iterator[str]:
    """Format the assignment, and everything that is on its way into the table.

    Savepoints and drains that wait are conditions.
    """
    if (assignment := view.assignment) is not None:
        after = f", after decision {assignment.after}" if assignment.after else ""
        # The stream has no cut of it yet, so it can still be withdrawn.
        provisional = ", not committed yet" if assignment.provisional else ""
        yield f"  assignment {assignment.number}: {listed(assignment.regions)}{after}{provisional}"
    if view.next_assignment_after is not None:
        yield (
            "  all its regions have ended; drivers of the next assignment set `after`, with Spark the option "
            f"assignment.after, to {view.next_assignment_after}"
        )
    if view.single_region:
        yield f"  every commit is full: the writers are one region ({view.single_region})"
    if view.forced_by:
        yield f"  the next commit is full: {listed(view.forced_by)} fell back as often as allowed"
    if view.absent:
        yield f"  the next commit is partial: it does not wait for {listed(view.absent)}"
    if view.pending is not None:
        yield _pending(view.pending, view.table_head)
    if waiting := [each for each in view.waiting.values() if each.files]:
        files, rows = sum(each.files for each in waiting), sum(each.rows for each in waiting)
        yield f"  waiting: {_amount(files, rows, min(each.since for each in waiting), view.updated_at)}"


def _pending(made: PendingView, head: SnapshotRef | None) -> str:
    back = f"; {listed(made.fallbacks)} fell back" if made.fallbacks else ""
    revert = f"; it is being reverted, without region {made.revert_of}" if made.revert_of else ""
    return (
        f"  decision {made.decision} with {counted(made.files, 'file')} of {listed(made.regions)} is not "
        f"committed yet{back}{revert}{_head('; table head', head)}"
    )


_MOST_TABLES: Final = 20
"""Further tables that are listed without `--verbose`."""


def _tables(view: StreamView, *, verbose: bool) -> Iterator[str]:
    """Format the further tables, each with its part of the vector."""
    most = len(view.tables) if verbose else _MOST_TABLES
    for name, each in list(view.tables.items())[:most]:
        touched = f"commit {each.decision}" if each.decision else "no commit yet"
        yield f"  table {name} ({each.identifier}): {touched}{_head(', snapshot', each.snapshot)}"
    if (more := len(view.tables) - most) > 0:
        yield f"  and {counted(more, 'further table')} (--verbose: all)"


# --- regions --------------------------------------------------------------------------------------


def _regions(view: StreamView, now: int, *, verbose: bool, live: bool) -> Iterator[str]:
    width = max((len(name) for name in view.regions), default=0)
    for name, region in view.regions.items():
        facts = "; ".join(_facts(view, name, now, verbose=verbose, live=live))
        state = coloured(f"{state_of(view, name):<8}", _STATES.get(state_of(view, name)))
        yield f"  {name:<{width}}  {state}  {facts}"
        if (offsets := region.source_offsets) is not None:
            whole = verbose or len(offsets) <= _SHOWN
            yield f"    source offsets {offsets if whole else f'{offsets[:_SHOWN]}… (--verbose: all)'}"


_STATES: Final[dict[str, Severity]] = {
    "STALLED": "bad",
    "REFUSED": "bad",
    "FAILED": "bad",
    "SILENT": "warning",
}


def state_of(view: StreamView, name: str) -> str:
    """Return one word for the state of a region, the gravest first."""
    region = view.regions[name]
    if region.stalled:
        return "STALLED"
    if region.refused:
        return "REFUSED"
    if region.failed is not None:
        return "FAILED"
    if name in view.silent:
        return "SILENT"
    if region.phase == "live" and region.idle:
        return "idle"
    return "closing" if region.phase == "closed" and not region.ended else region.phase


def _facts(view: StreamView, name: str, now: int, *, verbose: bool, live: bool) -> Iterator[str]:
    region, at, decided = view.regions[name], view.cut.get(name), view.decided_cut.get(name)
    yield _position(at, verbose=verbose) if at is not None else "nothing committed"
    if decided is not None and decided != at:
        yield f"decided: {_position(decided, verbose=verbose)}"
    if region.incarnation is not None and (at is None or at.incarnation != region.incarnation):
        yield f"live: {_incarnation(region.incarnation, verbose=verbose)}"
    if count := region.consecutive_fallbacks:
        yield "fell back once" if count == 1 else f"fell back {count} times in a row"
    if region.refused:
        yield f"newest registration refused ({region.refused.code})"
    if name in view.silent:
        silent = duration((view.updated_at - (region.heard or 0)) / 1000)
        due, then = duration((region.heartbeat_interval or 0) / 1000), "" if live else " at that time"
        yield f"silent for {silent}{then}, heartbeats are due every {due}: its driver has probably ended"
    elif region.heard is not None:
        yield f"last event {_ago(region.heard, now)}"
    if (waits := view.waiting.get(name)) is not None and waits.files:
        yield f"waiting: {_amount(waits.files, waits.rows, waits.since, view.updated_at)}"


def _position(at: Position, *, verbose: bool) -> str:
    return f"checkpoint {at.checkpoint} of {_incarnation(at.incarnation, verbose=verbose)}"


def _incarnation(incarnation: str, *, verbose: bool) -> str:
    return incarnation if verbose else short_id(incarnation)


def _amount(files: int, rows: int, since: int, as_of: int) -> str:
    some = f" with {counted(rows, 'row')}" if rows else ""
    # The clock of the brokers may be ahead of this host's.
    return f"{counted(files, 'file')}{some}, the oldest for {duration(max(0, as_of - since) / 1000)}"


def _ago(millis: int, now: int) -> str:
    return f"{duration(max(0, now - millis) / 1000)} ago"


def _time(millis: int | None) -> str:
    if millis is None:
        return "-"
    return iso_time(millis - millis % 1000) or f"{millis} ms"


@click.command()
@config_option
@click.option("--stream", help="Only this stream.")
@click.option("--verbose", "-v", is_flag=True, help="Show incarnations and source offsets in full.")
@json_option
def status(settings: Settings, stream: str | None, verbose: bool, as_json: bool) -> None:
    """Show the streams: positions of the regions, last commit, and all conditions that delay the next one.

    Streams of the coordinator at http.host and http.port are shown live. Other streams are shown from their
    state records, with the age of the record. A record is written when the stream commits, stalls or resumes.
    The command needs Kafka. Without Kafka, ask a coordinator: GET /status.
    """
    if stream is not None:
        require_stream(settings, stream)
    shown, coordinators, differences = run_async(settings, _collect(settings))
    if stream is not None:
        shown = [each for each in shown if each["stream"] == stream]
    lines = [f"THE MEMBERS DIFFER: {each}" for each in differences]
    if coordinators == 0:
        group = settings.kafka.group_id
        lines.append(f"no coordinator is running (group {group} has no members). Start one: sluicegate run")
    now = time.time_ns() // 1_000_000
    lines += [line for each in shown for line in lines_of(each, now, verbose=verbose)]
    values = {"coordinators": coordinators, "differences": differences, "streams": shown}
    print_result(values, lines, as_json=as_json)


async def _collect(settings: Settings) -> tuple[list[dict[str, Any]], int | None, list[str]]:
    """Return the streams, the number of running coordinators, and the differences between them.

    The number is None without permission to describe the group.
    """
    records = await read_records(settings)
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
    return shown, coordinators, [] if member is None else member["differences"]


def describe(
    stream: str,
    held: Held | None,
    offsets: LogOffsets,
    settings: StreamSettings | None,
    *,
    live: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a stream as JSON values, from its coordinator if that answers, else from its record.

    `settings` are those of this command; None: they do not have the stream.

    Times are milliseconds since the Unix epoch.
    """
    record = held.record if held else None
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
        "recorded_at": held.time if held else None,
        "live": live is not None,
        "unserved": None,
    }
    if live is not None:
        shown |= {name: value for name, value in live.items() if name not in shown or name == "owner"}
        shown["known"] = record is not None or live["assignment"] is not None
    elif isinstance(record, StateRecord) and held is not None:
        shown |= view_of(record, settings, held.time).model_dump(mode="json")
    return shown
