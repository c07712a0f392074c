"""`sluicegate assignment`: end an assignment, so that the next one can begin."""

from typing import Any

import click

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.group import Commands
from sluicegate.cli.options import config_option, json_option, require_stream, stream_option
from sluicegate.cli.ordered_by import order_options
from sluicegate.cli.orders import (
    UNFINISHED,
    at_once,
    make_command,
    not_yet,
    order,
    place_of,
    show,
    timeout_option,
)
from sluicegate.cli.stream_log import Step
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import AssignmentState, LogState
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.models import StreamCommand

_number_option = click.option(
    "--number", type=click.IntRange(min=0), help="Number of the assignment. Default: the one in force."
)


@click.group(cls=Commands)
def assignment() -> None:
    """End the assignment of regions to queries, or take a new one back."""


@assignment.command()
@config_option
@stream_option
@order_options
@_number_option
@click.option("--wait", is_flag=True, help="Wait until the final cut of the assignment is committed.")
@timeout_option
@json_option
@click.pass_context
def close(
    context: click.Context,
    settings: Settings,
    stream: str,
    number: int | None,
    wait: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Close an assignment: remove all its regions, so that the next assignment can begin.

    Completed checkpoints are still committed. Queries of the assignment that run stop by themselves. With
    --wait, the command prints the decision id that the queries of the next assignment give as the option
    assignment.after, and the source offsets where they begin. Repeat the command to see both again.
    """
    require_stream(settings, stream)

    def make(state: LogState) -> StreamCommand:
        return _command("close", stream, state, number)

    def final(_: Step, replica: Replica) -> bool | None:
        return _is_final(replica.state) or None

    waited = order(settings, stream, make, final if wait else at_once, timeout if wait else None)
    ordered = run_async(settings, waited)
    closed = f"assignment {ordered.command.number} of stream {stream}"
    if ordered.effect is None:
        text = not_yet(ordered, settings, f"the final cut of {closed}", timeout)
        show(ordered, text, {}, as_json=as_json)
        context.exit(UNFINISHED)
    if _is_final(ordered.state):
        show(ordered, _final_text(closed, ordered.state), _final_values(ordered.state), as_json=as_json)
        return
    text = (
        f"{closed} is closed {place_of(ordered, settings)}. Its final cut is not committed yet. To wait for "
        f"it: sluicegate assignment close --stream {stream} --wait"
    )
    show(ordered, text, {}, as_json=as_json)


@assignment.command()
@config_option
@stream_option
@order_options
@_number_option
def withdraw(settings: Settings, stream: str, number: int | None) -> None:
    """Withdraw an assignment that has decided no commit yet: the one before is in force again.

    The number of the withdrawn assignment is refused from then on. Give the next one a higher number.
    """
    require_stream(settings, stream)

    def make(state: LogState) -> StreamCommand:
        command = _command("withdraw", stream, state, number)
        if state.assignment is not None and not state.assignment.provisional:
            raise UserError(
                f"assignment {command.number} of stream {stream} has decided a commit, so it cannot be "
                f"withdrawn. To end it: sluicegate assignment close --stream {stream}"
            )
        return command

    ordered = run_async(settings, order(settings, stream, make, at_once))
    click.echo(
        f"assignment {ordered.command.number} of stream {stream} is withdrawn {place_of(ordered, settings)}; "
        + _in_force(stream, ordered.state)
    )


def _in_force(stream: str, state: LogState) -> str:
    """Say what is in force after a withdrawal, and what can be started."""
    now = state.assignment
    if now is None:
        return "none is in force"
    regions = [state.regions[name] for name in now.regions if name in state.regions]
    if not regions or not all(each.ends for each in regions):
        return f"assignment {now.number} is in force again: start its queries again"
    following = max(now.number, state.withdrawn) + 1
    return (
        f"assignment {now.number} has ended before, so none of its queries can start. Begin a new one: start "
        f"all queries with the option `assignment` {following}, and with the `assignment.after` that "
        f"`sluicegate status --stream {stream}` names"
    )


def _command(command: str, stream: str, state: LogState, number: int | None) -> StreamCommand:
    """Make an order about the assignment in force. Raises UserError if that is not the given one."""
    current = _current(stream, state)
    if number is not None and number != current.number:
        raise UserError(
            f"assignment {number} of stream {stream} is not in force; that is assignment {current.number}"
        )
    return make_command({"command": command, "number": current.number})


def _current(stream: str, state: LogState) -> AssignmentState:
    if state.assignment is None:
        raise UserError(f"stream {stream} has no assignment yet. Start its query first")
    return state.assignment


def _is_final(state: LogState) -> bool:
    """True if every region has ended, and the log has the outcome of the newest decision."""
    return state.pending is None and not any(True for _ in state.active())


def _final_text(closed: str, state: LogState) -> str:
    lines = [
        f"{closed} has ended with decision {state.decided}",
        f"queries of the next assignment give the option assignment.after = {state.decided} and begin here:",
    ]
    for name, region in sorted(state.regions.items()):
        at = region.position
        where = "nothing committed" if at is None else f"checkpoint {at.checkpoint} of {at.incarnation}"
        offsets = "not recorded" if region.source_offsets is None else region.source_offsets
        lines.append(f"  {name}  {where}; source offsets: {offsets}")
    return "\n".join(lines)


def _final_values(state: LogState) -> dict[str, Any]:
    return {
        "decision": state.decided,
        "regions": {
            name: {
                "position": None if region.position is None else region.position.model_dump(mode="json"),
                "source_offsets": region.source_offsets,
            }
            for name, region in sorted(state.regions.items())
        },
    }
