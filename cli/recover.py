"""`sluicegate stream recover`: replace an unusable state record, so that the log is read again."""

import click
from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import StateKey, partition_count, read_state_keys
from sluicegate.cli.noting import note_order, require_permissions
from sluicegate.cli.options import config_option, require_stream, stream_option
from sluicegate.cli.ordered_by import order_options
from sluicegate.cli.recover_ahead import record_of_log
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord, encode_record, recovery_record
from sluicegate.coordinator.observe.messages import ADOPT, fill
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.records import Held, read_held
from sluicegate.events.envelope import partition_of
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.clients import started
from sluicegate.kafka.permissions import Client
from sluicegate.kafka.producer import SessionProducer
from sluicegate.kafka.topics import TopicRole


@click.command()
@config_option
@stream_option
@order_options
def recover(settings: Settings, stream: str) -> None:
    """Replace a state record that is malformed, or that lacks decisions of its log and its table.

    The stream continues from its base record and the log. Without a base record, the whole log is read
    again, with the commit user of the settings: do not change that meanwhile. If the log has lost events that
    are needed, the command changes nothing. Restart the coordinators afterwards: a stalled stream does not
    read its record again.

    A record lacks decisions if its coordinator had no key for them (`table-ahead`). Stop the coordinators
    first, and give them and this command all keys. The log is compared with the table before.
    """
    require_stream(settings, stream)
    record = run_async(settings, _recover(settings, stream))
    user = record.commit_user or settings.streams[stream].commit_user
    click.echo(
        f"stream {stream} has a new state record for its commit user {user}: its log is read again from "
        f"offset {record.low_water}. Restart the coordinators"
    )


async def _recover(settings: Settings, stream: str) -> StateRecord:
    """Write the record from which the stream recovers, and return it. Raises KafkaError, UserError."""
    topic = settings.kafka.topic_names().state
    count = await partition_count(settings, topic)
    kafka = settings.kafka
    found = await read_held(topic, count, kafka.client_options(), [stream], kafka.request_timeout)
    held = found.get(stream)
    if held is not None and isinstance(held.record, StateRecord):
        record = await record_of_log(settings, stream, held, held.record)
    elif held is not None and _malformed(held):
        record = _start(settings, stream, held, await _first_offset(settings, stream))
    else:
        raise UserError(
            f"stream {stream} has no malformed record, so it is not replaced. See: "
            f"sluicegate status --stream {stream}"
        )
    keys = [each for each in await read_state_keys(settings, stream) if each.name == stream]
    await require_permissions(settings, Client.KEEPER, TopicRole.STATE)
    await note_order(settings, stream)
    await _write(settings, keys, record)
    return record


def _malformed(held: Held) -> bool:
    return isinstance(held.record, Problem) and held.record.code is Code.STATE_RECORD_MALFORMED


async def _first_offset(settings: Settings, stream: str) -> int:
    """Return the first offset of the stream's log. Raises KafkaError, UserError."""
    topic = settings.kafka.topic_names().events
    source = TopicPartition(topic, partition_of(stream, await partition_count(settings, topic)))
    consumer = AIOKafkaConsumer(**settings.kafka.client_options(), enable_auto_commit=False)
    async with started(consumer):
        first: int = (await consumer.beginning_offsets([source]))[source]
        return first


def _start(settings: Settings, stream: str, held: Held, begin: int) -> StateRecord:
    """Return the record to begin with, in a log that begins at this offset. Raises UserError."""
    base = recovery_record(None, held.bases, begin)
    if base is not None and base.low_water >= begin:
        return base
    if begin > 0:
        raise UserError(
            f"the log of stream {stream} begins at offset {begin}, and no base record has the state before "
            "that. To leave it, " + fill(ADOPT, {"stream": stream})
        )
    user = settings.streams[stream].commit_user
    return StateRecord(stream=stream, applied=-1, low_water=0, state=LogState(), commit_user=user)


async def _write(settings: Settings, keys: list[StateKey], record: StateRecord) -> None:
    kafka = settings.kafka
    producer = SessionProducer(kafka.max_message_bytes, kafka.limits(), **kafka.client_options())
    topic = settings.kafka.topic_names().state
    async with started(producer):
        for each in keys:
            await producer.send_and_wait(
                topic, encode_record(record), key=each.name.encode(), partition=each.partition
            )
