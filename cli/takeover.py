"""`sluicegate takeover`: let this group of coordinators serve a stream of another group."""

import click

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import partition_count
from sluicegate.cli.options import config_option, require_stream, stream_option
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.ownership import group_members
from sluicegate.coordinator.records import read_held
from sluicegate.coordinator.settings.model import Settings
from sluicegate.replay.records import write_record


@click.command()
@config_option
@stream_option
def takeover(settings: Settings, stream: str) -> None:
    """Sign a stream's state record with this group, so that its coordinators serve the stream.

    Needed only if the other group still has members, or cannot be described. Stop its coordinators for good.
    Two groups on one stream commit nothing twice, but send every answer and notification twice.
    """
    require_stream(settings, stream)
    before, members = run_async(settings, _take(settings, stream))
    own = settings.kafka.group_id
    if before in (None, own):
        click.echo(f"stream {stream} is served by the group {own} already")
        return
    click.echo(f"stream {stream} is taken over from the group {before} by the group {own}")
    if members != 0:
        seen = "cannot be seen from here" if members is None else f"has {members} members"
        click.echo(f"the group {before} {seen}: stop its coordinators")


async def _take(settings: Settings, stream: str) -> tuple[str | None, int | None]:
    topic, options = settings.kafka.topic_names().state, settings.kafka.client_options()
    count = await partition_count(settings, topic)
    patience = settings.kafka.request_timeout
    held = (await read_held(topic, count, options, [stream], patience)).get(stream)
    if held is None:
        raise UserError(
            f"stream {stream} has no state record: no job has opened it yet, any group may serve it"
        )
    if held.group in (None, settings.kafka.group_id):
        return held.group, None
    if not isinstance(held.record, StateRecord):
        raise UserError(str(held.record))
    members = await group_members(options, held.group)
    await write_record(settings, held.record)
    return held.group, members
