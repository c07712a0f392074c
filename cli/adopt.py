"""`sluicegate stream adopt`: continue a stream from its table, in topics that know nothing of it."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import click
from pydantic import ValidationError

from sluicegate.cli.adopt_listeners import Listeners, read_listeners
from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import count_members, partition_count
from sluicegate.cli.live import ask_coordinator
from sluicegate.cli.noting import note_order, require_permissions
from sluicegate.cli.options import config_option, json_option, require_stream, stream_option
from sluicegate.cli.ordered_by import order_options
from sluicegate.cli.views import remove_view
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.record_codec import encode_record
from sluicegate.coordinator.records import Held, read_held
from sluicegate.coordinator.retention import base_key
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.continuity import Home, LogRange, last_events, obstacle
from sluicegate.coordinator.telemetry.messages import format_problem
from sluicegate.events.codec import read_attributes
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Position
from sluicegate.events.partitioning import partition_of
from sluicegate.events.problems import Problem
from sluicegate.kafka.clients import started
from sluicegate.kafka.permissions import Client
from sluicegate.kafka.producer import SessionProducer
from sluicegate.lakes.port import TableRefused
from sluicegate.replay.adoption import Adopted, Place, read_adopted
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.log import StreamLog, open_log
from sluicegate.replay.tables import ReplayTable

_FORM: Final = "REGION=INCARNATION:CHECKPOINT:DIGEST"


def _positions(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, Position]:
    """Parse positions; return them by region. Raises BadParameter."""
    found: dict[str, Position] = {}
    for text in given:
        region, _equals, place = text.partition("=")
        parts = place.split(":", 2)
        try:
            incarnation, checkpoint, digest = parts
            at = Position(incarnation=incarnation, checkpoint=int(checkpoint), digest=digest)
        except (ValueError, ValidationError) as error:
            raise click.BadParameter(f"{text!r} does not have the form {_FORM}") from error
        if not region or region in found:
            raise click.BadParameter(f"{text!r}: name each region once")
        found[region] = at
    return found


@click.command("adopt")
@config_option
@stream_option
@order_options
@click.option("--from-table", is_flag=True, required=True, help="Take the positions from the table.")
@click.option("--from-stream", metavar="NAME", help="Former name of the stream, if it has another one now.")
@click.option(
    "--position",
    "stated",
    multiple=True,
    metavar=_FORM,
    callback=_positions,
    help="Your statement: the table has the region up to this checkpoint, and nothing after it. For a table "
    "whose newest commit does not state its positions; once for each region.",
)
@click.option("--dry-run", "dry", is_flag=True, help="Only print the positions.")
@json_option
def adopt(
    settings: Settings,
    stream: str,
    from_table: bool,
    from_stream: str | None,
    stated: dict[str, Position],
    dry: bool,
    as_json: bool,
) -> None:
    """Continue a stream from its table, in topics that have nothing of it.

    For topics that were lost, another Kafka cluster, or another name of the stream. The next decision follows
    the newest commit in the table. Everything after that is read again: start the drivers again, and reset
    the regions of Spark queries. Stop the coordinators and the drivers first. If others have committed since
    an adoption, and the adopted stream has decided nothing, adopt it again.
    """
    require_stream(settings, stream)
    found = run_async(settings, _adopt(settings, stream, from_stream or stream, stated, dry=dry))
    if as_json:
        click.echo(json.dumps(_values(stream, found), indent=2))
        return
    for line in _lines(stream, found, dry=dry):
        click.echo(line)


class _Found(NamedTuple):
    adopted: Adopted
    place: Place
    skipped: int
    """Events of the stream that the topics have already, and that have no effect."""
    listeners: Listeners
    view_stays: str | None = None
    """Reason for which the former view is still in Redis; None: it is not."""


async def _adopt(
    settings: Settings, stream: str, former: str, stated: Mapping[str, Position], *, dry: bool
) -> _Found:
    """Write the records of the adopted stream, the base record first. Raises KafkaError, UserError."""
    own = settings.streams[stream]
    if former != stream:
        await _refuse_former(settings, former)
    async with open_log(settings, stream) as log:
        begin = await log.begin()
        place, skipped = await _unread_place(log, stream, begin)
        await _refuse_known(settings, stream, log, place, skipped)
    with ThreadPoolExecutor(1) as threads:
        try:
            table = ReplayTable(own, threads, stream)
            try:
                adopted, seen = await read_adopted(former, table, stated)
            finally:
                table.close()
        except (ReplayRefused, TableRefused) as error:
            raise UserError(str(error)) from error
    listeners = await read_listeners(settings, stream, former, adopted.account.decision)
    view_stays = None
    if not dry:
        record = adopted.record(own.commit_user, seen.identity, place)
        await require_permissions(settings, Client.KEEPER)
        await note_order(settings, stream, f"after decision {adopted.account.decision}")
        value = encode_record(record.model_copy(update={"stream": stream}))
        # Only the last one is read first, so an interrupted command is simply repeated.
        values = {**listeners.messages(), base_key(stream, begin): value, stream: value}
        await _write(settings, stream, values)
        # Its revision is an offset of the former log, and may be higher than those of the new one.
        view_stays = await remove_view(settings, stream)
    return _Found(adopted, place, skipped, listeners, view_stays)


async def _unread_place(log: StreamLog, stream: str, begin: int) -> tuple[Place, int]:
    """Return the end of the log, and the number of the stream's events before it.

    Raises UserError if the log has a decision of the stream, KafkaError.
    """
    end, newest, skipped = await log.end(), None, 0
    async for records in log.read(begin, end):
        for record in records:
            envelope = read_attributes(record.headers)
            event = envelope if isinstance(envelope, Envelope) else None
            newest = event.id if event is not None and record.offset == end - 1 else None
            if event is None or event.stream != stream:
                continue
            skipped += 1
            if event.type is EventType.CUT_DECIDED:
                raise UserError(
                    f"the events topic has decisions of stream {stream} (offset {record.offset} of partition "
                    f"{log.partition}), so its log is not lost, and it continues from there. See: "
                    f"sluicegate replay verify --stream {stream}"
                )
    return Place(log.partition, end, newest), skipped


async def _refuse_known(settings: Settings, stream: str, log: StreamLog, place: Place, events: int) -> None:
    """Refuse a stream that continues by itself, or that is served. Raises UserError, KafkaError."""
    topic, kafka = settings.kafka.topic_names().state, settings.kafka
    count = await partition_count(settings, topic)
    held = await read_held(topic, count, kafka.client_options(), [stream], kafka.request_timeout)
    there = held.get(stream, Held(None, None, {})).record
    if isinstance(there, Problem):
        raise UserError(format_problem(there, stream))
    if there is None and not events:
        # A coordinator that has the stream writes its record or its policy at once.
        return
    if there is not None and there.state.decided > 0 and not await _is_ahead(settings, stream, there):
        span = LogRange(await log.begin(), place.end)
        seen = await last_events(log.fetcher, log.partition, [there], span)
        if obstacle(there, Home(log.partition, settings.streams[stream].commit_user), span, seen) is None:
            raise UserError(
                f"the topics have stream {stream} up to decision {there.state.decided}, so it continues by "
                "itself. Start the coordinators"
            )
    members = await count_members(settings)
    if members != 0:
        who = f"{members} run" if members else "they cannot be seen from here"
        raise UserError(
            f"coordinators of the group {kafka.group_id} may serve stream {stream} ({who}), and would "
            "replace what this command writes. Stop them first (a killed one counts until its session ends)"
        )


async def _refuse_former(settings: Settings, former: str) -> None:
    """Refuse while the coordinator that this command sees commits by the former name. Raises UserError."""
    if former in await ask_coordinator(settings):
        raise UserError(
            f"the coordinator at {settings.http.host}:{settings.http.port} has the former stream {former} in "
            "its settings, and may commit more to the table. Remove it from the settings of all "
            "coordinators, send them SIGHUP, and repeat"
        )


async def _is_ahead(settings: Settings, stream: str, there: StateRecord) -> bool:
    """True if the table has later decisions than a record whose log has none of the stream.

    Then an adoption was too early: a coordinator of the former topics or name has committed since. Raises
    UserError.
    """
    with ThreadPoolExecutor(1) as threads:
        try:
            table = ReplayTable(settings.streams[stream], threads, stream)
            try:
                return ((await table.inspect()).newest_decision or 0) > there.state.decided
            finally:
                table.close()
        except (ReplayRefused, TableRefused) as error:
            raise UserError(str(error)) from error


async def _write(settings: Settings, stream: str, values: Mapping[str, bytes]) -> None:
    topic = settings.kafka.topic_names().state
    partition = partition_of(stream, await partition_count(settings, topic))
    producer = SessionProducer(settings.kafka.max_message_bytes, **settings.kafka.client_options())
    async with started(producer):
        for key, value in values.items():
            await producer.send_and_wait(topic, value, key=key.encode(), partition=partition)


# --- output ---------------------------------------------------------------------------------------


def _values(stream: str, found: _Found) -> dict[str, Any]:
    account = found.adopted.account
    regions = {name: each.position for name, each in account.regions.items()}
    return {
        "stream": stream,
        "decision": account.decision,
        "snapshot": found.adopted.newest.ref.id,
        "stated": found.adopted.stated,
        "skipped_events": found.skipped,
        "positions": {name: at.model_dump() if at is not None else None for name, at in regions.items()},
        "watermark": account.watermark,
        "listeners_continued": sorted(found.listeners.continued),
        "listeners_without_marks": list(found.listeners.without),
        "ended": sorted(name for name, each in account.regions.items() if each.ended is not None),
    }


def _lines(stream: str, found: _Found, *, dry: bool) -> list[str]:
    account, newest = found.adopted.account, found.adopted.newest
    what = "would continue" if dry else "continues"
    lines = [
        f"stream {stream} {what} after decision {account.decision} (snapshot {newest.ref.id} of its table)"
    ]
    for name, each in sorted(account.regions.items()):
        at = each.position
        place = (
            f"checkpoint {at.checkpoint} of incarnation {at.incarnation}" if at else "nothing is committed"
        )
        lines.append(f"  {name}  {place}" + (f", {each.ended}" if each.ended else ""))
    if found.skipped:
        lines.append(f"{found.skipped} events of it that are in the topics already have no effect")
    lines += found.listeners.lines(account.watermark)
    if found.view_stays is not None:
        lines.append(f"Its former view is still in Redis: {found.view_stays}. The coordinator replaces it")
    if not dry:
        lines.append(
            "Start the coordinators. Then start each Python driver again. Before a Spark query starts again: "
            f"sluicegate region reset --stream {stream} --region REGION --checkpoint-location LOCATION"
        )
        lines.append(
            "Commits wait for each region that has not ended, also if it was idle. For a region of batch "
            "jobs, call prepare_jobs with their options. If one has ended for good: "
            f"sluicegate region remove --stream {stream} --region REGION"
        )
    return lines
