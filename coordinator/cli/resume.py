"""`sluicegate resume`: decide again after a stall."""

import click

from sluicegate.coordinator.cli.commands import Place, append_command, known_record
from sluicegate.coordinator.cli.errors import run_async
from sluicegate.coordinator.cli.options import config_option, require_stream, stream_option
from sluicegate.coordinator.settings import Settings
from sluicegate.events import StreamCommand


@click.command()
@config_option
@stream_option
def resume(settings: Settings, stream: str) -> None:
    """Let a stalled stream go on, once the cause that `status` names is gone."""
    require_stream(settings, stream)
    place = run_async(settings, _resume(settings, stream))
    click.echo(
        f"stream {stream} is told to resume (partition {place.partition}, offset {place.offset} "
        f"of {settings.kafka.topic_names().events})"
    )


async def _resume(settings: Settings, stream: str) -> Place:
    await known_record(settings, stream)
    return await append_command(settings, stream, StreamCommand(command="resume"))
