"""`sluicegate status`: where the streams stand, by the log alone."""

import json
import time
from typing import Any

import click

from sluicegate.coordinator.cli.errors import run_async
from sluicegate.coordinator.cli.kafka import (
    Dated,
    LogOffsets,
    Unreadable,
    count_members,
    read_dated_records,
    read_offsets,
)
from sluicegate.coordinator.cli.options import config_option, json_option, require_stream
from sluicegate.coordinator.core.state import RegionState, StateRecord
from sluicegate.coordinator.reasons import behind, exhausted, notes, region_reason
from sluicegate.coordinator.settings import Settings
from sluicegate.coordinator.wording import duration, iso_time
from sluicegate.events import partition_of


@click.command()
@config_option
@click.option("--stream", help="Only this stream.")
@json_option
def status(settings: Settings, stream: str | None, as_json: bool) -> None:
    """Show the streams: regions, cut, last commit, watermark, what the next one waits for.

    Read from the state records, so the service need not run. They are written when something is committed,
    stalls or goes on, and how old each is is shown.
    """
    if stream is not None:
        require_stream(settings, stream)
    shown, coordinators = run_async(settings, _collect(settings))
    if stream is not None:
        shown = [each for each in shown if each["stream"] == stream]
    if as_json:
        click.echo(json.dumps({"coordinators": coordinators, "streams": shown}, indent=2))
        return
    for each in shown:
        click.echo("\n".join(_lines(each)))
    if coordinators == 0:
        click.echo(f"no coordinator is running (group {settings.kafka.group_id} has no members)")


async def _collect(settings: Settings) -> tuple[list[dict[str, Any]], int | None]:
    """The streams, and how many coordinators run; None if that may not be asked."""
    records = await read_dated_records(settings)
    offsets = await read_offsets(settings)
    shown = [
        describe(name, records.get(name), offsets, configured=name in settings.streams)
        for name in sorted({*records, *settings.streams})
    ]
    return shown, await count_members(settings)


def describe(stream: str, dated: Dated | None, offsets: LogOffsets, *, configured: bool) -> dict[str, Any]:
    """A stream as JSON values; times in milliseconds since the Unix epoch."""
    record = dated.record if dated else None
    known = record.state.partition if isinstance(record, StateRecord) else None
    partition = partition_of(stream, len(offsets.end)) if known is None else known
    end, group = offsets.end.get(partition), offsets.group.get(partition)
    shown: dict[str, Any] = {
        "stream": stream,
        "configured": configured,
        "opened": record is not None,
        "problem": record.reason if isinstance(record, Unreadable) else None,
        "partition": partition,
        "end_offset": end,
        "group_offset": group,
        "read_by_restart": None if end is None else end - min(group or 0, end),
        "recorded_at": dated.time if dated else None,
    }
    if isinstance(record, StateRecord):
        shown |= _of_record(record)
    return shown


def _of_record(record: StateRecord) -> dict[str, Any]:
    state = record.state
    snapshot = state.recorded
    pause = state.blocked if state.paused else None
    names = {*state.regions, *record.refused, *(state.assignment.regions if state.assignment else ())}
    assigned = state.assignment.regions if state.assignment else ()
    return {
        "stalled": next((why for why in (record.stalled, state.blocked) if why != pause), None),
        "paused": pause,
        "retries": [each.model_dump() for each in record.retries],
        "applied_offset": record.applied,
        "low_water": record.low_water,
        "assignment": state.assignment.number if state.assignment else None,
        "next_assignment": state.next.model_dump(mode="json") if state.next else None,
        "partial": state.policy.partial if state.policy else None,
        "joined": record.joined,
        "fallbacks": {name: at.model_dump() if at else None for name, at in behind(state).items()},
        "forced_by": exhausted(state),
        "savepoint": state.savepoint.model_dump(mode="json") if state.savepoint else None,
        "waits_for": record.waits,
        "notes": notes(record),
        "decided": state.decided,
        "committed": state.committed,
        "pending": len(state.pending),
        "snapshot": snapshot.id if snapshot else None,
        "table": state.table,
        "watermark": state.watermark,
        "regions": {name: _region(record, name, assigned=name in assigned) for name in sorted(names)},
    }


def _region(record: StateRecord, name: str, *, assigned: bool) -> dict[str, Any]:
    state = record.state
    region, refused = state.regions.get(name, RegionState()), record.refused.get(name)
    standing = _state(region, assigned=assigned) if name in state.regions else "not opened"
    return {
        "state": "refused" if refused and standing not in ("stalled", "removed") else standing,
        "lineage": region.live,
        "cut": region.ref.model_dump() if region.ref else None,
        "watermark": region.watermark,
        "consecutive_fallbacks": region.fallbacks,
        "owned": region.owned,
        "listeners": region.listeners,
        "reason": region_reason(state, name) if name in state.regions else None,
        "refused": refused,
        "heard": record.heard.get(name),
    }


def _state(region: RegionState, *, assigned: bool) -> str:
    """In the order of what matters most to who looks."""
    if region.fault:
        return "stalled"
    if region.removed:
        return "removed"
    if region.left:
        return "closed"
    if not assigned:
        return "not assigned"
    if region.closed:
        return "closing"
    if not region.chain:
        return "not opened"
    if region.resting:
        return "idle"
    return "behind" if region.fallbacks else "active"


def _lines(shown: dict[str, Any]) -> list[str]:
    """A stream for people."""
    again = shown["read_by_restart"]
    place = f"partition {shown['partition']}" + (
        "" if again is None else f" (a restart reads {again} records)"
    )
    note = "" if shown["configured"] else "  NOT CONFIGURED HERE"
    if "regions" not in shown:
        return [f"{shown['stream']}  {shown['problem'] or 'not opened yet'}  {place}{note}"]
    snapshot = "" if shown["snapshot"] is None else f" (snapshot {shown['snapshot']})"
    commit = f"commit {shown['committed']}{snapshot}" if shown["committed"] else "no commit yet"
    pending = f", {shown['pending']} decided and not confirmed" if shown["pending"] else ""
    lines = [
        f"{shown['stream']}  {commit}{pending}  watermark {_time(shown['watermark'])}  {place}{note}",
        f"  as of {_time(shown['recorded_at'])}, {_age(shown['recorded_at'])} ago",
    ]
    if shown["paused"]:
        lines.append(f"  PAUSED: {shown['paused']}. Nothing is committed; what is below is as it was then")
    if shown["stalled"]:
        lines.append(f"  STALLED: {shown['stalled']}")
    lines += [
        f"  RETRYING: {each['effect']}, failed {each['failures']} times in "
        f"{duration(each['lasted'] / 1000)}: {each['reason']}"
        for each in shown["retries"]
    ]
    lines += [f"  NOTE: {note}" for note in shown["notes"]]
    lines += [f"  WAITS: {each}" for each in shown["waits_for"]]
    width = max((len(name) for name in shown["regions"]), default=0)
    for name, region in shown["regions"].items():
        cut = region["cut"]
        at = f"checkpoint {cut['checkpoint']} of lineage {cut['lineage']}" if cut else "nothing committed"
        # What a stall says stands above already.
        said = region["reason"] is None or region["reason"] == shown["stalled"]
        why = "" if said else f"  ({region['reason']})"
        heard = "" if region["heard"] is None else f", last heard of at {_time(region['heard'])}"
        lines.append(f"  {name:<{width}}  {region['state']:<12}  {at}{heard}{why}")
        if region["refused"]:
            lines.append(f"    LAST OPENING REFUSED: {region['refused']}")
    return lines


def _age(millis: int) -> str:
    return duration(max(0.0, time.time() - millis / 1000))


def _time(millis: int | None) -> str:
    return iso_time(millis) or ("-" if millis is None else f"{millis} ms")
