"""`sluicegate stream skip`: read over one record that only a newer release reads."""

import time
import uuid

import click
from aiokafka import ConsumerRecord

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.options import config_option, require_stream, stream_option
from sluicegate.cli.ordered_by import current_order, order_options
from sluicegate.cli.orders import note_nobody
from sluicegate.cli.signing_keys import require_accepted_key
from sluicegate.cli.stream_log import StreamLog, Unreadable, connect_log, known_record, open_log
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.observe.messages import iso_time
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.codec import newer_envelope
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import PER_REGION, Envelope, EventType
from sluicegate.events.models import StreamCommand
from sluicegate.events.orders import digest_of, order_header


@click.command()
@config_option
@stream_option
@order_options
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    help="Offset of the record, as `status` names it. Without it, the record is only shown.",
)
@click.pass_context
def skip(context: click.Context, settings: Settings, stream: str, offset: int | None) -> None:
    """Skip the record at which a stream stalls, since only a newer release reads it.

    Use it for a record that a program wrote by mistake. If a newer release of this product wrote it, upgrade
    the coordinators instead: they read it, and nothing is lost.

    The order names the offset and the digest of the record, so it skips no other one. The record has no
    effect for any reader then. What it said of a region is unknown, so that region stalls until it is reset.
    A registration is refused. A decision or an outcome takes nothing out of the table. Once a coordinator
    has read the record, it cannot be skipped any more.

    Without --offset, the exit status is 1, because nothing is skipped.
    """
    require_stream(settings, stream)
    if not run_async(settings, _skip(settings, stream, offset)):
        context.exit(1)


async def _skip(settings: Settings, stream: str, offset: int | None) -> bool:
    await require_accepted_key(settings, stream)
    async with connect_log(settings, stream) as log:
        record = await _stalling_record(log, stream, offset)
        place, shown = f"offset {record.offset} of {record.topic}", describe(record)
        if offset is None:
            click.echo(
                f"stream {stream} stalls at {place}, partition {record.partition}:\n{shown}\nIf a release of "
                "this product wrote it, upgrade the coordinators. If a program wrote it by mistake: "
                f"sluicegate stream skip --stream {stream} --offset {record.offset}"
            )
            return False
        if offset != record.offset:
            raise UserError(
                f"stream {stream} does not stall at offset {offset}, but at {place}, so nothing is skipped. "
                f"To see that record: sluicegate stream skip --stream {stream}"
            )
        if (known := await known_record(settings, stream)).applied >= offset:
            # Since the log was opened, a coordinator has read the record.
            raise _too_late(stream, offset, known.state)
        ordered = await _append(log, stream, record)
    click.echo(f"the record at {place} is skipped (order at offset {ordered}):\n{shown}")
    await note_nobody(settings)
    await _tell_next(settings, stream, record)
    return True


async def _stalling_record(log: StreamLog, stream: str, offset: int | None) -> ConsumerRecord:
    """Return the record at which the stream stalls. Raises UserError if it does not stall at one."""
    if offset is not None and offset <= log.replica.applied:
        raise _too_late(stream, offset, log.replica.state)
    try:
        await log.read_to_end()
    except Unreadable as found:
        return found.record
    if offset is not None and _is_skipped(log.replica.state, offset):
        raise _too_late(stream, offset, log.replica.state)
    raise UserError(
        f"stream {stream} does not stall at a record that only a newer release reads, so nothing is skipped. "
        f"See: sluicegate status --stream {stream}"
    )


def _is_skipped(state: LogState, offset: int) -> bool:
    return any(each.offset == offset for each in state.skipped)


def _too_late(stream: str, offset: int, state: LogState) -> UserError:
    if _is_skipped(state, offset):
        return UserError(f"the record at offset {offset} is skipped already, so nothing is to be done")
    return UserError(
        f"the record at offset {offset} is not skipped: the state record of stream {stream} is at or after "
        "it, so a coordinator has read it. Nothing stalls at it any more. If a newer release has applied it, "
        "that release is the way on: upgrade all coordinators"
    )


async def _append(log: StreamLog, stream: str, record: ConsumerRecord) -> int:
    """Append the order; return its offset. Raises KafkaError, UserError."""
    digest = digest_of(record.key, record.headers, record.value)
    command = StreamCommand(command="skip", offset=record.offset, digest=digest)
    envelope = Envelope(uuid.uuid4().hex, EventType.STREAM_COMMAND, stream)
    message = encode_event(envelope, command, time.time_ns() // 1_000_000)
    message.headers.append(order_header(current_order()))
    return await log.append(message, signed=True)


async def _tell_next(settings: Settings, stream: str, record: ConsumerRecord) -> None:
    """Print the next step: the reset of a region, or the next record of this kind."""
    envelope = newer_envelope(record.headers)
    if envelope.type is EventType.REGION_REGISTERED:
        click.echo("The registration is refused. Install this release for its driver, and start it again")
    elif envelope.type in PER_REGION and envelope.type is not EventType.REGION_HEARTBEAT:
        name = envelope.region or "REGION"
        click.echo(
            f"What it said of region {name} is unknown. If its incarnation is live, the region stalls: "
            f"sluicegate region reset --stream {stream} --region {name} --checkpoint-location LOCATION, then "
            "start its query again"
        )
    try:
        async with open_log(settings, stream):
            return
    except Unreadable as found:
        click.echo(f"The next one is at offset {found.record.offset}:\n{describe(found.record)}")
        click.echo(
            f"To skip it, too: sluicegate stream skip --stream {stream} --offset {found.record.offset}"
        )


def describe(record: ConsumerRecord) -> str:
    """Return what a record says of itself, in lines."""
    told = {name: value for name, value in record.headers if name.startswith("ce_") and value is not None}
    lines = [f"  appended  {iso_time(record.timestamp)}"]
    lines += [f"  {name}  {_shown(value)}" for name, value in sorted(told.items())]
    return "\n".join([*lines, f"  digest  {digest_of(record.key, record.headers, record.value)}"])


def _shown(raw: bytes) -> str:
    text = raw[:100].decode(errors="replace")
    return "".join(each if each.isprintable() else "?" for each in text)
