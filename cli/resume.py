"""`sluicegate resume`: make decisions again after a stall or a pause."""

import click

from sluicegate.cli.commands import Place, append_command, known_record
from sluicegate.cli.errors import run_async
from sluicegate.cli.options import config_option, require_stream, stream_option
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.models import StreamCommand


@click.command()
@config_option
@stream_option
def resume(settings: Settings, stream: str) -> None:
    """Resume a stalled or paused stream, after the cause that `status` names is removed."""
    require_stream(settings, stream)
    record, place = run_async(settings, _resume(settings, stream))
    click.echo(
        f"stream {stream} is told to resume (partition {place.partition}, offset {place.offset} "
        f"of {settings.kafka.topic_names().events})"
    )

    # The command is appended in any case: the state record can be older than the stall.
    if record.state.blocked is None:
        click.echo(_needless(record))


def _needless(record: StateRecord) -> str:
    """Format the reason why the command changes nothing, by the stream's state record."""
    if record.stalled is None:
        return f"stream {record.stream} was not stalled, so this changes nothing"
    return (
        f"stream {record.stream} needs no order, but goes on by itself once the cause is gone: "
        f"{record.stalled}"
    )


async def _resume(settings: Settings, stream: str) -> tuple[StateRecord, Place]:
    record = await known_record(settings, stream)
    return record, await append_command(settings, stream, StreamCommand(command="resume"))
