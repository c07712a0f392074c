"""`sluicegate accept`: allow a lineage without parents to open."""

from typing import NamedTuple

import click

from sluicegate.cli.commands import Place, append_command, known_record
from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.options import config_option, require_stream, stream_option
from sluicegate.cli.pending import undecided
from sluicegate.cli.refusals import refused_lineages
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.telemetry.wording import spans
from sluicegate.events.models import Parent, Position, StreamCommand


@click.command()
@config_option
@stream_option
@click.option("--region", required=True, help="Name of the region.")
@click.option("--lineage", required=True, help="The lineage that was refused; the refusal names it.")
@click.option("--force", is_flag=True, help="Accept it also if no refusal of it is found.")
def accept(settings: Settings, stream: str, region: str, lineage: str, force: bool) -> None:
    """Accept a lineage without a parent, after its checkpoint location was lost or replaced.

    The lineage starts after the committed rows of its region. Rows that its source delivers again are written
    again: accept a query only if its source begins directly after the committed rows. If a commit includes
    more of the region before the lineage opens, the opening is refused again. That refusal names the
    checkpoint after which to accept the lineage.
    """
    require_stream(settings, stream)
    accepted = run_async(settings, _accept(settings, stream, region, lineage, force=force))
    click.echo(
        f"lineage {lineage} of region {region} is accepted (partition {accepted.place.partition}, "
        f"offset {accepted.place.offset} of {settings.kafka.topic_names().events}); start the query again"
    )
    for line in (_dropped(accepted), _doubled(accepted, region)):
        click.echo(line)


class _Accepted(NamedTuple):
    """An appended acceptance, and the state of the region before it."""

    place: Place
    # `ref` is a decided position; the table may not have its commit yet.
    ref: Position | None
    undecided: set[tuple[str, int]] | None
    pending: bool
    """True if a decision of the stream is not confirmed yet."""
    parents: list[Parent]
    """Committed checkpoints of other regions that the region's lineages build on."""


def _dropped(accepted: _Accepted) -> str:
    """Format the line about the pending checkpoints that the new lineage drops."""
    if accepted.undecided is None:
        return "dropped when it starts: what is not committed by then; see how far that is: sluicegate status"
    if not accepted.undecided:
        return "dropped when it starts: nothing; no completed checkpoint waits for its commit"
    return (
        f"dropped when it starts: what is not committed by then of the completed checkpoints "
        f"{spans(accepted.undecided)}; their rows get into the table only if the source gives them again"
    )


def _doubled(accepted: _Accepted, region: str) -> str:
    """Format the line about the rows that can be written twice."""
    again = "if more is committed before the new query starts, it is refused, and to be accepted again"
    if accepted.ref is not None:
        stands = "decided, and about to be committed" if accepted.pending else "committed"
        place = f"{stands} up to: checkpoint {accepted.ref.checkpoint} of lineage {accepted.ref.lineage}"
    elif accepted.parents:
        named = (
            f"checkpoint {_number(each)} of {each.lineage} of {each.region}" for each in accepted.parents
        )
        place = f"region {region} goes on from {' and '.join(named)}"
    else:
        return f"nothing of region {region} is committed yet, so no row can come twice; {again}"
    return (
        f"{place}; rows up to there that the new checkpoint location reads again are written twice. If its "
        "source does not begin right after them, do not start it: start the query in another empty location, "
        f"with a source that does, and accept the lineage that is refused then; {again}"
    )


def _number(parent: Parent) -> str:
    return "(none)" if parent.checkpoint is None else str(parent.checkpoint)


async def _accept(settings: Settings, stream: str, region: str, lineage: str, *, force: bool) -> _Accepted:
    record = await known_record(settings, stream)
    regions = record.state.regions
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
        # The position is part of the command: if it has moved when the lineage opens, the core refuses again.
        behind = regions[region].ref
        command = StreamCommand(command="accept", region=region, lineage=lineage, behind=behind)
    except ValueError as error:
        raise UserError(f"{lineage!r} cannot be a lineage: letters, digits, `_`, `.` and `-`") from error
    if not force:
        await _require_refusal(settings, stream, region, lineage)
    found, held = await undecided(settings, record, region), regions[region]
    parents = [each for name in held.chain for each in held.lineages[name].parents]
    place = await append_command(settings, stream, command)
    return _Accepted(place, behind, found, bool(record.state.pending), parents)


async def _require_refusal(settings: Settings, stream: str, region: str, lineage: str) -> None:
    """Refuse a lineage without a refused opening in the log. Raises UserError.

    A wrong id would accept a lineage that does not exist, and leave the right one refused.
    """
    read = await refused_lineages(settings, stream, region, lineage)
    if lineage in read.lineages:
        return
    known = f"refused were: {', '.join(read.lineages)}" if read.lineages else "none was refused"
    part = "" if read.whole else ", in what could be read in time"
    raise UserError(
        f"no opening of lineage {lineage} of region {region} was refused; {known}{part}. "
        "To accept it all the same: --force"
    )
