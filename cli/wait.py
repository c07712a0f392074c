"""`sluicegate wait`: wait until the rows before a time are committed."""

import asyncio
import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import click
from aiokafka.errors import KafkaError

from sluicegate.cli.coordinators import ask_coordinator
from sluicegate.cli.errors import UserError, kafka_away, run_async
from sluicegate.cli.kafka import read_own_records
from sluicegate.cli.options import json_option, parse_timeout, stream_options
from sluicegate.cli.orders import UNFINISHED, condition_of_wait, tell_reasons
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.messages import iso_time
from sluicegate.coordinator.observe.view import committed_watermark
from sluicegate.coordinator.service.startup import state_store
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.tasks import ended_with
from sluicegate.state_store import StateStore, StateStoreError

_LOOK: Final = 1.0
"""Seconds between two looks at the watermark."""
_AWAY: Final = (KafkaError, UserError, OSError)
"""Errors of an outage. TimeoutError is an OSError."""


def _parse_time(_: click.Context, __: click.Parameter, value: str) -> int:
    """Parse a time, in UTC if it has no zone. Return milliseconds since the Unix epoch."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no time; write it as 2013-02-01T00:00:00Z") from error
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


@click.command()
@stream_options
@click.option(
    "--watermark",
    required=True,
    metavar="TIME",
    callback=_parse_time,
    help="Event time, such as 2013-02-01T00:00:00Z. Without a zone it is in UTC.",
)
@click.option("--timeout", default="1h", show_default=True, callback=parse_timeout, help="How long to wait.")
@json_option
@click.pass_context
def wait(
    context: click.Context, settings: Settings, stream: str, watermark: int, timeout: float, as_json: bool
) -> None:
    """Wait until the table has all rows before an event time, by the watermark of the stream.

    Exit status 0 when the watermark of the newest commit has reached the time, 1 if it has not within the
    timeout. The watermark is read from the coordinator at http.host and http.port, else from Redis, else from
    the state records in Kafka. A commit that is reverted later takes its watermark back.
    """
    found, reason = run_async(settings, _wait(settings, stream, watermark, timeout))
    reached = found is not None and found >= watermark
    if as_json:
        values = {"stream": stream, "watermark": found, "reached": reached}
        click.echo(json.dumps(values if reached else {**values, "waits_for": reason}, indent=2))
    elif reached:
        click.echo(f"the watermark of stream {stream} is {iso_time(found)}")
    else:
        click.echo(
            f"the watermark of stream {stream} is {iso_time(found) or 'not known yet'}, and has not reached "
            f"{iso_time(watermark)} after {timeout:g} s. It waits, because: {reason}",
            err=True,
        )
    if not reached:
        context.exit(UNFINISHED)


async def _wait(settings: Settings, stream: str, wanted: int, patience: float) -> tuple[int | None, str]:
    """Return the watermark when it has reached the time, or the last one and the reason of the delay."""
    async with state_store(settings) as store:
        # The first look finds wrong settings. Later ones outlive an outage.
        newest = await _watermark(settings, store, stream)
        until = time.monotonic() + patience
        async with ended_with(tell_reasons(settings, stream)):
            while (newest is None or newest < wanted) and time.monotonic() < until:
                await asyncio.sleep(_LOOK)
                with suppress(*_AWAY):
                    newest = await _watermark(settings, store, stream)
        if newest is None or newest < wanted:
            # A view in Redis stays old while Redis takes no writes.
            with suppress(*_AWAY):
                recorded = await _recorded(settings, stream)
                newest = max((each for each in (newest, recorded) if each is not None), default=None)
    return newest, "" if newest is not None and newest >= wanted else await _reason(settings, stream, newest)


async def _reason(settings: Settings, stream: str, newest: int | None) -> str:
    try:
        found = await condition_of_wait(settings, stream)
    except _AWAY as error:
        return kafka_away(settings, error)
    if found is not None:
        return found
    if newest is None:
        return (
            "no commit has a watermark yet. Writers give it with the option event.time.column, or with "
            "complete(..., watermark=milliseconds)"
        )
    return f"no later watermark was committed. See the regions: sluicegate status --stream {stream}"


async def _watermark(settings: Settings, store: StateStore | None, stream: str) -> int | None:
    """Return the watermark of the newest commit in milliseconds; None: there is none yet."""
    live = (await ask_coordinator(settings)).get(stream)
    if live is not None:
        watermark: int | None = live.get("watermark")
        return watermark
    if store is not None:
        with suppress(StateStoreError):
            view = await store.read(stream)
            # Another deployment may use the same Redis, and the same names.
            if view is not None and view.table in (None, settings.streams[stream].table):
                return view.watermark
    return await _recorded(settings, stream)


async def _recorded(settings: Settings, stream: str) -> int | None:
    """Return the watermark of the newest state record in Kafka."""
    record = (await read_own_records(settings, stream)).record
    return committed_watermark(record.state) if isinstance(record, StateRecord) else None
