"""`sluicegate commit`: give up a commit that the table does not accept."""

import click

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.main import Commands
from sluicegate.cli.options import json_option, order_options, region_option
from sluicegate.cli.orders import UNFINISHED, make_command, not_yet, order, show, timeout_option
from sluicegate.cli.stream_log import Step
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.models import CutReverted, StreamCommand


@click.group(cls=Commands)
def commit() -> None:
    """Give up a decided commit that the table does not accept."""


@commit.command()
@order_options
@click.option(
    "--decision", required=True, type=click.IntRange(min=1), help="The decision; the stall names it."
)
@region_option("The region whose files the table does not accept.")
@timeout_option
@json_option
@click.pass_context
def revert(
    context: click.Context,
    settings: Settings,
    stream: str,
    decision: int,
    region: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Revert a decision without an outcome: an empty commit takes its place, and its checkpoints are pending.

    The incarnation of the named region ends: the region has to be reset. The other regions commit without it.
    If the decision is in the table after all, nothing is reverted, and the exit status is 1.
    """

    def make(state: LogState) -> StreamCommand:
        _require_unresolved(stream, state, decision, region)
        return make_command({"command": "revert", "decision": decision, "region": region})

    ordered = run_async(settings, order(settings, stream, make, _outcome, timeout))
    match ordered.effect:
        case "reverted":
            text = (
                f"decision {decision} of stream {stream} is reverted; the incarnation of region {region} has "
                "ended. Let its driver begin a new one at the committed position. With Spark, stop the "
                f"query, run sluicegate region reset --stream {stream} --region {region} "
                "--checkpoint-location LOCATION, and start it again"
            )
        case "committed":
            text = f"decision {decision} of stream {stream} is in the table after all; nothing is reverted"
        case _:
            text = not_yet(ordered, f"the revert of decision {decision} of stream {stream}", timeout)
    show(ordered, text, {"outcome": ordered.effect}, as_json=as_json)
    context.exit(0 if ordered.effect == "reverted" else UNFINISHED)


def _outcome(step: Step, _: Replica) -> str | None:
    """Return the outcome of the decision if this record is it."""
    if step.applied.resolved is None:
        return None
    return "reverted" if isinstance(step.record.body, CutReverted) else "committed"


def _newest(state: LogState) -> str:
    """Format the newest decision, with its outcome."""
    if state.unresolved is not None:
        return f"That is decision {state.unresolved.id}"
    if state.decided:
        return f"The newest decision is {state.decided}, and it has its outcome"
    return "The stream has decided nothing yet"


def _require_unresolved(stream: str, state: LogState, decision: int, region: str) -> None:
    """Refuse a decision or a region that cannot be reverted. Raises UserError."""
    pending = state.unresolved
    if pending is None or pending.id != decision:
        raise UserError(
            f"decision {decision} of stream {stream} cannot be reverted: only a decision without an outcome "
            f"can. {_newest(state)}"
        )
    if region not in pending.moves:
        raise UserError(
            f"decision {decision} of stream {stream} includes nothing of region {region}, so its revert "
            f"would change nothing; it includes checkpoints of: {', '.join(sorted(pending.moves))}"
        )
    if pending.revert is not None:
        raise UserError(
            f"the revert of decision {decision} of stream {stream} is ordered already, for region "
            f"{pending.revert.region}. See: sluicegate status --stream {stream}"
        )
