"""`sluicegate savepoint` and `sluicegate drain`: one full commit of all completed checkpoints."""

from typing import Final

import click

from sluicegate.cli.alive import last_signs
from sluicegate.cli.commands import known_record
from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.options import config_option, json_option, require_stream, stream_option
from sluicegate.cli.outcomes import (
    UNFINISHED,
    Ordered,
    make_command,
    not_yet,
    order,
    show,
    timeout_option,
    timestamped,
)
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.telemetry.wording import duration
from sluicegate.events.models import Body, StreamCommand
from sluicegate.events.notifications import SavepointTaken

RECENT: Final = 15.0
"""Seconds within which a running query sends an event: several times its heartbeat interval."""

_name_option = click.option("--name", help="Name of the savepoint. Default: made of the time.")


@click.command()
@config_option
@stream_option
@_name_option
@timeout_option
@json_option
@click.pass_context
def savepoint(
    context: click.Context, settings: Settings, stream: str, name: str | None, timeout: float, as_json: bool
) -> None:
    """Make one full commit that includes every checkpoint completed so far in any region, and print it.

    Exit status 0 when the commit is in the table, 1 if it is still pending. A pending savepoint stays in
    force.
    """
    _take(context, settings, stream, ("savepoint", name), timeout, as_json=as_json)


@click.command()
@config_option
@stream_option
@_name_option
@timeout_option
@json_option
@click.pass_context
def drain(
    context: click.Context, settings: Settings, stream: str, name: str | None, timeout: float, as_json: bool
) -> None:
    """Take a savepoint and close every region with it. The stream ends there, fully committed.

    Stop the queries first: a checkpoint completed later opens its region again. The command warns of regions
    whose query seems to run.
    """
    require_stream(settings, stream)
    for line in run_async(settings, _running(settings, stream)):
        click.echo(line, err=True)
    _take(context, settings, stream, ("drain", name), timeout, as_json=as_json)


def _take(
    context: click.Context,
    settings: Settings,
    stream: str,
    what: tuple[str, str | None],
    timeout: float,
    *,
    as_json: bool,
) -> None:
    require_stream(settings, stream)
    kind, name = what[0], what[1] or timestamped(what[0])
    command = make_command(f"the name {name!r}", {"command": kind, "name": name})
    ordered = run_async(settings, _order(settings, stream, command, timeout))
    if isinstance(ordered.outcome, SavepointTaken):
        show(ordered, outcome="taken", text=_text(stream, ordered.outcome), as_json=as_json)
        context.exit(0)
    text = not_yet(ordered, f"the {kind} {name} of stream {stream}", timeout)
    show(ordered, outcome="waiting", text=text, as_json=as_json)
    context.exit(UNFINISHED)


async def _running(settings: Settings, stream: str) -> list[str]:
    """Return a warning for each region whose query seems to run."""
    signs = await last_signs(settings, await known_record(settings, stream), RECENT)
    return [
        f"WARNING: region {region} gave a sign of life {duration(ago)} ago. If its query runs, what it "
        "completes after this order opens the region again: stop it, and repeat: sluicegate drain --stream "
        f"{stream}"
        for region, ago in signs.items()
    ]


def _text(stream: str, taken: SavepointTaken) -> str:
    kind = "drained with" if taken.drained else "has"
    snapshot = "no snapshot yet" if taken.snapshot is None else f"snapshot {taken.snapshot}"
    lines = [f"stream {stream} {kind} the savepoint {taken.name}: commit {taken.decision}, {snapshot}"]
    lines += [
        f"  {region}  checkpoint {at.checkpoint} of lineage {at.lineage}"
        for region, at in sorted(taken.cut.items())
    ]
    return "\n".join(lines)


async def _order(settings: Settings, stream: str, command: StreamCommand, patience: float) -> Ordered:
    state = (await known_record(settings, stream)).state
    if state.blocked:
        raise UserError(f"stream {stream} does not go on, so no savepoint can be taken: {state.blocked}")

    def concerns(body: Body) -> bool:
        return isinstance(body, SavepointTaken) and body.name == command.name

    return await order(settings, stream, command, concerns, patience)
