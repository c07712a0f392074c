"""`sluicegate stream savepoint`, `drain` and `cancel`."""

from typing import Any

import click

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.options import config_option, json_option, require_stream, stream_option
from sluicegate.cli.ordered_by import order_options
from sluicegate.cli.orders import (
    UNFINISHED,
    Ordered,
    at_once,
    make_command,
    not_yet,
    order,
    place_of,
    show,
    timeout_option,
    timestamped,
)
from sluicegate.cli.stream_log import Step
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import LogState, RegionPhase, RegionState
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.models import StreamCommand

_name_option = click.option("--name", help="Name of the order. Default: made of the time.")


@click.command()
@config_option
@stream_option
@order_options
@_name_option
@timeout_option
@json_option
@click.pass_context
def savepoint(
    context: click.Context, settings: Settings, stream: str, name: str | None, timeout: float, as_json: bool
) -> None:
    """Take a savepoint: one full commit that includes every checkpoint completed so far in any region.

    Of a region without one, it includes the next checkpoint, unless the region is idle or has ended. Exit
    status 0 when the commit is in the table, 1 if it is not yet. A savepoint that is not taken yet stays in
    force until `sluicegate stream cancel`.
    """
    _take(context, settings, stream, ("savepoint", name), timeout, as_json=as_json)


@click.command()
@config_option
@stream_option
@order_options
@_name_option
@timeout_option
@json_option
@click.pass_context
def drain(
    context: click.Context, settings: Settings, stream: str, name: str | None, timeout: float, as_json: bool
) -> None:
    """Wait until all regions of the assignment in force have ended, and print the final commit.

    A drain ends nothing by itself, and a query that is stopped leaves its region idle, not ended. A region
    ends when its query runs with bounded=true or calls close_region. sluicegate region remove ends one from
    outside, and sluicegate assignment close ends all.
    """
    _take(context, settings, stream, ("drain", name), timeout, as_json=as_json)


@click.command()
@config_option
@stream_option
@order_options
@click.option(
    "--name", required=True, help="Name of the savepoint or drain, as `sluicegate status` shows it."
)
def cancel(settings: Settings, stream: str, name: str) -> None:
    """Cancel a savepoint or a drain that is not reached yet; partial commits are possible again."""
    require_stream(settings, stream)

    def make(state: LogState) -> StreamCommand:
        names = [each.name for each in state.savepoints]
        if name not in names:
            raise UserError(
                f"stream {stream} waits for no savepoint or drain {name}; it waits for: "
                f"{', '.join(sorted(names)) or 'none'}"
            )
        return make_command({"command": "cancel", "name": name})

    ordered = run_async(settings, order(settings, stream, make, at_once))
    click.echo(f"{name} of stream {stream} is cancelled {place_of(ordered, settings)}")


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
    ended = False

    def make(state: LogState) -> StreamCommand:
        nonlocal ended
        if kind == "drain" and state.assignment is None:
            raise UserError(f"stream {stream} has no assignment to drain yet. Start its query first")
        ended = not any(True for _ in state.active())
        if any(each.name == name for each in state.savepoints):
            raise UserError(
                f"stream {stream} waits for a savepoint or drain {name} already. Give another --name, or "
                f"cancel that one: sluicegate stream cancel --stream {stream} --name {name}"
            )
        if kind == "savepoint":
            _name_absent(stream, name, state)
        return make_command({"command": kind, "name": name})

    def awaited(step: Step, _: Replica) -> bool | None:
        return any(each.name == name for each in step.applied.savepoints) or None

    ordered = run_async(settings, order(settings, stream, make, awaited, timeout))
    if ordered.effect is None:
        show(ordered, _not_yet(settings, stream, ordered, kind, timeout), {}, as_json=as_json)
        context.exit(UNFINISHED)
    text, values = _text(stream, kind, name, ordered.state), _values(ordered.state)
    if kind == "drain" and ended:
        text, values = f"{text}\n{_ended_before(stream)}", {**values, "ended_before": True}
    show(ordered, text, values, as_json=as_json)


def _name_absent(stream: str, name: str, state: LogState) -> None:
    """Name the regions that have no driver, as after `stream adopt`: the savepoint waits for them."""
    absent = sorted(
        region
        for region in state.active()
        if state.regions.get(region, RegionState()).phase is RegionPhase.WAITING
    )
    if absent:
        click.echo(
            f"regions without a driver: {', '.join(absent)}. The savepoint waits until each has completed a "
            "checkpoint, or is idle. Start their queries or drivers; for a region of batch jobs, call "
            "prepare_jobs with their options. Nothing of them is left to commit before that. To give it up: "
            f"sluicegate stream cancel --stream {stream} --name {name}",
            err=True,
        )


def _not_yet(settings: Settings, stream: str, ordered: Ordered[bool], kind: str, timeout: float) -> str:
    text = not_yet(ordered, settings, f"the {kind} {ordered.command.name} of stream {stream}", timeout)
    active = [*ordered.state.active()]
    if kind == "savepoint" or not active:
        return text
    return (
        f"{text}\nNot ended: {', '.join(active)}. A stopped query leaves its region idle, not ended. Run it "
        f"with bounded=true, or close the assignment: sluicegate assignment close --stream {stream}"
    )


def _ended_before(stream: str) -> str:
    return (
        "all its regions had ended before this order. If you have started the queries of the next "
        f"assignment, drain again when it is in force: sluicegate status --stream {stream}"
    )


def _text(stream: str, kind: str, name: str, state: LogState) -> str:
    number = state.assignment.number if state.assignment is not None else "none"
    done = f"is drained of assignment {number}" if kind == "drain" else f"has the savepoint {name}"
    snapshot = "no snapshot" if state.snapshot is None else f"snapshot {state.snapshot.snapshot}"
    decision = f"commit {state.decided}" if state.decided else "no commit"
    lines = [f"stream {stream} {done}: {decision}, {snapshot}"]
    lines += [
        f"  {region}  checkpoint {at.checkpoint} of incarnation {at.incarnation}"
        for region, at in sorted(state.cut.items())
    ]
    return "\n".join(lines)


def _values(state: LogState) -> dict[str, Any]:
    return {
        "assignment": state.assignment.number if state.assignment is not None else None,
        "decision": state.decided,
        "cut": {region: at.model_dump(mode="json") for region, at in sorted(state.cut.items())},
        "snapshot": None if state.snapshot is None else state.snapshot.model_dump(mode="json"),
        "watermark": state.watermark,
    }
