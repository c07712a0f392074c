"""`sluicegate stream forget`: delete the records of a stream, so that it does not hold the log any more."""

import click
from aiokafka import AIOKafkaProducer

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import StateKey, read_state_keys
from sluicegate.cli.live import ask_coordinator
from sluicegate.cli.noting import note_order, require_permissions
from sluicegate.cli.options import config_option, stream_option
from sluicegate.cli.ordered_by import order_options
from sluicegate.cli.views import has_view, remove_view
from sluicegate.coordinator.settings.model import Settings
from sluicegate.kafka.clients import started
from sluicegate.kafka.permissions import Client
from sluicegate.kafka.topics import TopicRole
from sluicegate.state_store import StateStoreUnavailable


@click.command()
@config_option
@stream_option
@order_options
@click.option("--yes", is_flag=True, help="Delete the records. Without it, the command only shows them.")
@click.pass_context
def forget(context: click.Context, settings: Settings, stream: str, yes: bool) -> None:
    """Delete all records of a stream that is not in the settings any more, and its view in Redis.

    Its table and its log stay.

    A stream with records keeps its events in the log: the coordinators delete no event that it could still
    need. After `forget`, they may. The stream can then neither be continued nor replayed. Remove it from the
    settings of all coordinators first: the command sees only its own settings and the coordinator at
    http.host. Without --yes, the exit status is 1, because nothing is deleted.
    """
    keys, viewed = run_async(settings, _forget(settings, stream, yes=yes))
    topic = settings.kafka.topic_names().state
    if not keys and not viewed:
        raise UserError(f"stream {stream} has no record in {topic}, so there is nothing to forget")
    if yes:
        click.echo(f"stream {stream} is forgotten: {len(keys)} records in {topic} are deleted")
        if viewed:
            click.echo("its view in Redis is deleted")
        click.echo(
            "Its events may be deleted from the log, and its pending checkpoints are never committed. A "
            "coordinator that has the stream in its settings would begin it again from the start of the log"
        )
        return
    for each in keys:
        click.echo(f"would be deleted: {each.name} (partition {each.partition} of {topic})")
    if viewed:
        click.echo("would be deleted: its view in Redis")
    click.echo(
        "Make sure that no coordinator has the stream in its settings, and that its pending checkpoints are "
        f"not needed. Then: sluicegate stream forget --stream {stream} --yes"
    )
    context.exit(1)


async def _forget(settings: Settings, stream: str, *, yes: bool) -> tuple[list[StateKey], bool]:
    """Return the records of the stream, and True if it has a view in Redis; delete them if `yes`.

    Raises KafkaError, UserError.
    """
    if stream in settings.streams:
        raise UserError(
            f"stream {stream} is in these settings, so a coordinator serves it. Remove [streams.{stream}] "
            "from the settings of all coordinators, let them read the settings again (SIGHUP), and repeat"
        )
    if stream in await ask_coordinator(settings):
        raise UserError(
            f"the coordinator at {settings.http.host}:{settings.http.port} has stream {stream} in its "
            "settings. Remove it there, send that coordinator SIGHUP, and repeat"
        )
    keys = await read_state_keys(settings, stream)
    try:
        viewed = await has_view(settings, stream)
    except StateStoreUnavailable as error:
        raise _redis_away(stream, str(error)) from error
    if yes and (keys or viewed):
        await require_permissions(settings, Client.KEEPER, TopicRole.STATE)
        await note_order(settings, stream)
        await _delete(settings, keys)
        # The view last: while it is there, a command that failed can be repeated.
        if viewed and (reason := await remove_view(settings, stream)) is not None:
            raise _redis_away(stream, reason)
    return keys, viewed


def _redis_away(stream: str, reason: str) -> UserError:
    return UserError(f"{reason}. It may have a view of stream {stream}. Repeat when it responds")


async def _delete(settings: Settings, keys: list[StateKey]) -> None:
    producer = AIOKafkaProducer(**settings.kafka.client_options(), acks="all", enable_idempotence=True)
    async with started(producer):
        for each in keys:
            topic = settings.kafka.topic_names().state
            await producer.send_and_wait(topic, None, key=each.name.encode(), partition=each.partition)
