"""Operator commands with an awaited outcome: the notification on the commits topic."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import click
from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.cli.commands import Place, append_event, command_event
from sluicegate.cli.errors import UserError
from sluicegate.cli.kafka import POLL_MS, partition_count, read_records
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.settings.units import parse_seconds
from sluicegate.coordinator.telemetry.reasons import waits_for
from sluicegate.events.codec import read_event
from sluicegate.events.models import Event, StreamCommand
from sluicegate.events.partitioning import partition_of
from sluicegate.events.models import Body
from sluicegate.kafka.starting import start_client

UNFINISHED: Final = 1
"""Exit status if the command has no outcome yet, or not the requested one."""


def parse_timeout(_: click.Context, __: click.Parameter, value: str) -> float:
    """Parse a duration of an option: a number of seconds, or a number with a unit. Raises BadParameter."""
    try:
        return parse_seconds(float(value) if value.replace(".", "", 1).isdigit() else value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


timeout_option = click.option(
    "--timeout",
    default="5m",
    show_default=True,
    callback=parse_timeout,
    help="How long to wait for the outcome. The order stays in force after it.",
)


@dataclass(frozen=True, slots=True)
class Ordered:
    """Operator command, with its place in the log and its outcome."""

    command: StreamCommand
    place: Place
    outcome: Body | None
    """The notification; None if none arrived in time."""
    waiting: str = ""
    """Reason for the delay, if there is no outcome."""


async def order(
    settings: Settings,
    stream: str,
    command: StreamCommand,
    concerns: Callable[[Body], bool],
    patience: float,
) -> Ordered:
    """Append a command, and wait for the notification that concerns it. Raises KafkaError, UserError."""
    place, outcome = await tell(settings, command_event(stream, command), concerns, patience)
    if outcome is not None:
        return Ordered(command, place, outcome)
    record = (await read_records(settings)).get(stream)
    readable = record if isinstance(record, StateRecord) else None
    return Ordered(command, place, None, waits_for(readable, place.offset))


async def tell(
    settings: Settings, event: Event, concerns: Callable[[Body], bool], patience: float
) -> tuple[Place, Body | None]:
    """Append an event, and wait for the notification that concerns it. Raises KafkaError, UserError.

    The notification is None if none arrives within `patience` seconds.
    """
    topic, stream = settings.kafka.topic_names().commits, event.envelope.stream
    source = TopicPartition(topic, partition_of(stream, await partition_count(settings, topic)))
    consumer = AIOKafkaConsumer(
        **settings.kafka.client_options(),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    try:
        await start_client(consumer)
        consumer.assign([source])
        # Take the end offset before the event is appended: a fast outcome cannot be missed.
        consumer.seek(source, (await consumer.end_offsets([source]))[source])
        place = await append_event(settings, event)
        return place, await _within(patience, _outcome(consumer, stream, concerns))
    finally:
        await consumer.stop()


async def _within(seconds: float, work: Awaitable[Body]) -> Body | None:
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError:
        return None


async def _outcome(consumer: AIOKafkaConsumer, stream: str, concerns: Callable[[Body], bool]) -> Body:
    while True:
        for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
            for record in records:
                event = read_event(record.headers, record.value)
                if not isinstance(event, Event) or event.envelope.stream != stream:
                    continue
                if concerns(event.body):
                    return event.body


def show(ordered: Ordered, *, outcome: str, text: str, as_json: bool) -> None:
    """Print an outcome, or the reason for the delay; `outcome` is one word, `text` a sentence."""
    if not as_json:
        click.echo(text, err=ordered.outcome is None)
        return
    shown: dict[str, Any] = {
        "outcome": outcome,
        "order": ordered.command.model_dump(exclude_none=True),
        "partition": ordered.place.partition,
        "offset": ordered.place.offset,
    }
    if ordered.outcome is not None:
        shown |= ordered.outcome.model_dump(mode="json")
    else:
        shown["waits_for"] = ordered.waiting
    click.echo(json.dumps(shown, indent=2))


def not_yet(ordered: Ordered, what: str, timeout: float) -> str:
    """Format the message for a command without an outcome, with the reason for the delay."""
    return (
        f"{what} has no outcome after {timeout:g} s; the order stands (partition {ordered.place.partition}, "
        f"offset {ordered.place.offset}) and is still carried out. It waits for: {ordered.waiting}"
    )


def timestamped(prefix: str) -> str:
    """Make a name of the prefix and the current time in UTC."""
    return f"{prefix}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


def make_command(what: str, values: Mapping[str, Any]) -> StreamCommand:
    """Make a command of values that a user typed. Raises UserError."""
    try:
        return StreamCommand.model_validate(values)
    except ValueError as error:
        raise UserError(
            f"{what}: names have letters, digits, `_`, `.` and `-`, at most 200, and start with none of the "
            "last two; decisions count from 1, checkpoints from 0"
        ) from error
