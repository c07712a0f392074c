"""`sluicegate resume`: decide again after a stall."""

import click

from sluicegate.cli.commands import Place, append_command, known_record
from sluicegate.cli.errors import run_async
from sluicegate.cli.options import config_option, require_stream, stream_option
from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events import StreamCommand


@click.command()
@config_option
@stream_option
def resume(settings: Settings, stream: str) -> None:
    """Let a stalled stream go on, once the cause that `status` names is gone."""
    require_stream(settings, stream)
    record, place = run_async(settings, _resume(settings, stream))
    click.echo(
        f"stream {stream} is told to resume (partition {place.partition}, offset {place.offset} "
        f"of {settings.kafka.topic_names().events})"
    )

    if record.state.blocked is None:
        click.echo(_needless(record))


def _needless(record: StateRecord) -> str:
    """Why the order changes nothing, as far as the stream's state record knows."""
    if record.stalled is None:
        return f"stream {record.stream} was not stalled, so this changes nothing"
    return (
        f"stream {record.stream} needs no order, but goes on by itself once the cause is gone: "
        f"{record.stalled}"
    )


async def _resume(settings: Settings, stream: str) -> tuple[StateRecord, Place]:
    record = await known_record(settings, stream)
    return record, await append_command(settings, stream, StreamCommand(command="resume"))
