"""`sluicegate accept`: let a lineage start that names no parent."""

import click

from sluicegate.coordinator.cli.commands import Place, append_command, known_record
from sluicegate.coordinator.cli.errors import UserError, run_async
from sluicegate.coordinator.cli.options import config_option, require_stream, stream_option
from sluicegate.coordinator.settings import Settings
from sluicegate.events import StreamCommand


@click.command()
@config_option
@stream_option
@click.option("--region", required=True, help="Name of the region.")
@click.option("--lineage", required=True, help="The lineage that was refused; the refusal names it.")
def accept(settings: Settings, stream: str, region: str, lineage: str) -> None:
    """Accept a lineage without a parent, after its checkpoint location was lost or replaced.

    It starts behind what is committed. Rows that the source gives again are written again: start the query
    where the committed rows end.
    """
    require_stream(settings, stream)
    place = run_async(settings, _accept(settings, stream, region, lineage))
    click.echo(
        f"lineage {lineage} of region {region} is accepted (partition {place.partition}, "
        f"offset {place.offset} of {settings.kafka.topic_names().events}); start the query again"
    )


async def _accept(settings: Settings, stream: str, region: str, lineage: str) -> Place:
    regions = (await known_record(settings, stream)).state.regions
    if region not in regions:
        raise UserError(
            f"stream {stream} has no region {region} that could need this; it has: "
            f"{', '.join(sorted(regions)) or 'none'}"
        )
    if lineage in regions[region].lineages:
        raise UserError(
            f"lineage {lineage} of region {region} was opened before; the live one is {regions[region].live}"
        )
    try:
        command = StreamCommand(command="accept", region=region, lineage=lineage)
    except ValueError as error:
        raise UserError(f"{lineage!r} cannot be a lineage: letters, digits, `_`, `.` and `-`") from error
    return await append_command(settings, stream, command)
