"""`sluicegate pause`: make no new commits until the stream is resumed."""

import click

from sluicegate.cli.commands import Place, append_command, known_record
from sluicegate.cli.errors import run_async
from sluicegate.cli.options import config_option, require_stream, stream_option
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.models import StreamCommand


@click.command()
@config_option
@stream_option
def pause(settings: Settings, stream: str) -> None:
    """Pause a stream: decide no commits until it is resumed. Commits decided before still complete.

    Its writers keep running, and their events wait in the log. The retention of the log must exceed the
    pause.
    """
    require_stream(settings, stream)
    place = run_async(settings, _pause(settings, stream))
    click.echo(
        f"stream {stream} is told to pause (partition {place.partition}, offset {place.offset} of "
        f"{settings.kafka.topic_names().events}); go on with: sluicegate resume --stream {stream}"
    )


async def _pause(settings: Settings, stream: str) -> Place:
    await known_record(settings, stream)
    return await append_command(settings, stream, StreamCommand(command="pause"))
