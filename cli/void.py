"""`sluicegate void`: void a decision that the table does not accept."""

import click

from sluicegate.cli.commands import known_record, require_region
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
)
from sluicegate.coordinator.core.orders import moved
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.models import Body, CutCommitted, CutVoided, StreamCommand


@click.command()
@config_option
@stream_option
@click.option("--decision", required=True, type=int, help="The decision; the stall names it.")
@click.option("--region", required=True, help="The region whose files the table does not take.")
@click.option("--checkpoint", required=True, type=int, help="Its first checkpoint that is to be held out.")
@timeout_option
@json_option
@click.pass_context
def void(
    context: click.Context,
    settings: Settings,
    stream: str,
    decision: int,
    region: str,
    checkpoint: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Void a pending decision: an empty commit replaces it, and the regions return to the state before it.

    The named checkpoint of the region, and all later ones, stay out until the region is rewound. If the
    decision is in the table after all, nothing is voided, and the exit status is 1.
    """
    require_stream(settings, stream)
    values = {"command": "void", "decision": decision, "region": region, "checkpoint": checkpoint}
    command = make_command("this order", values)
    ordered = run_async(settings, _void(settings, stream, command, timeout))
    what = f"the void of decision {decision} of stream {stream}"
    match ordered.outcome:
        case CutVoided():
            outcome = "voided"
            text = (
                f"decision {decision} of stream {stream} is void; region {region} is held out from "
                f"checkpoint {checkpoint} on. Go on with: sluicegate rewind --stream {stream} "
                f"--region {region} --checkpoint-location ..."
            )
        case CutCommitted():
            outcome = "committed"
            text = f"decision {decision} of stream {stream} is in the table after all; nothing was voided"
        case _:
            outcome, text = "waiting", not_yet(ordered, what, timeout)
    show(ordered, outcome=outcome, text=text, as_json=as_json)
    context.exit(0 if outcome == "voided" else UNFINISHED)


async def _void(settings: Settings, stream: str, command: StreamCommand, patience: float) -> Ordered:
    record = await known_record(settings, stream)
    require_region(record, command.region or "")
    wanted = command.decision or 0
    if wanted <= record.state.committed:
        raise UserError(
            f"decision {wanted} of stream {stream} has its outcome already, the last one that has is "
            f"{record.state.committed}; only a decision that waits for the table can be voided"
        )
    if wanted > record.state.decided:
        raise UserError(
            f"stream {stream} has no decision {wanted} yet, the last one is {record.state.decided}; only a "
            "decision that waits for the table can be voided, and `sluicegate status` names it"
        )
    pending = next((each for each in record.state.pending if each.id == wanted), None)
    if pending is not None and pending.before is not None and command.region not in moved(pending):
        raise UserError(
            f"decision {wanted} of stream {stream} takes nothing of region {command.region}, so to hold that "
            f"out would change nothing; it takes something of: {', '.join(sorted(moved(pending)))}"
        )

    def concerns(body: Body) -> bool:
        return isinstance(body, CutVoided | CutCommitted) and body.decision == wanted

    return await order(settings, stream, command, concerns, patience)
