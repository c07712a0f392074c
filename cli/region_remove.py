"""`sluicegate region remove`: end a region."""

import click

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.options import config_option, region_option, require_stream, stream_option
from sluicegate.cli.ordered_by import order_options
from sluicegate.cli.orders import at_once, make_command, order, place_of
from sluicegate.cli.stream_log import region_assignment
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.models import StreamCommand


@click.command()
@config_option
@stream_option
@order_options
@region_option("Name of the region.")
@click.option(
    "--discard", is_flag=True, help="Also discard its completed checkpoints that are not committed."
)
def remove(settings: Settings, stream: str, region: str, discard: bool) -> None:
    """Remove a region from its assignment: commits do not wait for it any more.

    The completed checkpoints of the region are still committed, unless --discard is given. A query of the
    region that runs stops by itself. The region comes back only with the next assignment.
    """
    require_stream(settings, stream)

    def make(state: LogState) -> StreamCommand:
        number = region_assignment(state, stream, region).number
        _require_open(stream, state, region, discard=discard)
        command = "discard" if discard else "remove"
        return make_command({"command": command, "region": region, "number": number})

    ordered = run_async(settings, order(settings, stream, make, at_once))
    click.echo(
        f"region {region} of stream {stream} is removed {place_of(ordered, settings)}; "
        f"{_end(ordered.state, region)}"
    )


def _require_open(stream: str, state: LogState, region: str, *, discard: bool) -> None:
    """Refuse a region of which nothing is left to remove. Raises UserError."""
    held = state.regions.get(region)
    if held is not None and held.removed and held.has_ended and state.unresolved(region) is None:
        raise UserError(
            f"region {region} of stream {stream} was removed already, and nothing of it waits for a commit; "
            f"{_end(state, region)}"
        )
    if held is not None and held.removed and not discard:
        raise UserError(
            f"region {region} of stream {stream} was removed already; {_end(state, region)}. To discard what "
            f"is not committed of it: sluicegate region remove --stream {stream} --region {region} --discard"
        )


def _end(state: LogState, region: str) -> str:
    """Format the place where a removed region ends."""
    held = state.regions[region]
    committed = held.has_ended and state.unresolved(region) is None
    pending = "" if committed else ", which is still to be committed"
    if held.final is not None and held.incarnation is not None:
        return f"it ends at checkpoint {held.final} of incarnation {held.incarnation.id}{pending}"
    if held.position is not None:
        at = held.position
        return f"it ends at checkpoint {at.checkpoint} of incarnation {at.incarnation}{pending}"
    return "nothing of it was committed"
