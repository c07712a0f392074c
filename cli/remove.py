"""`sluicegate remove`: stop waiting for a region."""

import click

from sluicegate.cli.commands import Place, append_command, known_record, require_region
from sluicegate.cli.errors import run_async
from sluicegate.cli.options import config_option, require_stream, stream_option
from sluicegate.cli.outcomes import make_command
from sluicegate.coordinator.settings.model import Settings


@click.command()
@config_option
@stream_option
@click.option("--region", required=True, help="Name of the region.")
def remove(settings: Settings, stream: str, region: str) -> None:
    """Stop waiting for a region that has ended for good; its completed checkpoints are still committed.

    When a query opens the region again, the stream waits for it as before.
    """
    require_stream(settings, stream)
    place = run_async(settings, _remove(settings, stream, region))
    click.echo(
        f"region {region} of stream {stream} is told to be removed (partition {place.partition}, "
        f"offset {place.offset} of {settings.kafka.topic_names().events}): commits do not wait for it; "
        "starting its query takes that back"
    )


async def _remove(settings: Settings, stream: str, region: str) -> Place:
    record = await known_record(settings, stream)
    # A region whose opening was refused can be removed too: that clears the refusal from the status.
    if region not in record.refused:
        require_region(record, region)
    command = make_command(f"region {region!r}", {"command": "remove", "region": region})
    return await append_command(settings, stream, command)
