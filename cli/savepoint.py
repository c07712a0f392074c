"""`sluicegate stream savepoint`, `drain` and `cancel`."""

from typing import Any

import click

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.options import config_option, json_option, require_stream, stream_option
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
from sluicegate.coordinator.core.log_state import LogState
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.models import StreamCommand

_name_option = click.option("--name", help="Name of the order. Default: made of the time.")


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
    """Take a savepoint: one full commit that includes every checkpoint completed so far in any region.

    Of a region without one, it includes the next checkpoint, unless the region is idle or has ended. Exit
    status 0 when the commit is in the table, 1 if it is not yet. A savepoint that is not taken yet stays in
    force until `sluicegate stream cancel`.
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
    """Wait until all regions of the assignment have ended, and print the final commit.

    A drain ends nothing by itself: stop the queries so that their regions end, or close the assignment:
    sluicegate assignment close.
    """
    _take(context, settings, stream, ("drain", name), timeout, as_json=as_json)


@click.command()
@config_option
@stream_option
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

    def make(state: LogState) -> StreamCommand:
        if any(each.name == name for each in state.savepoints):
            raise UserError(
                f"stream {stream} waits for a savepoint or drain {name} already. Give another --name, or "
                f"cancel that one: sluicegate stream cancel --stream {stream} --name {name}"
            )
        return make_command({"command": kind, "name": name})

    def awaited(step: Step, _: Replica) -> bool | None:
        return any(each.name == name for each in step.applied.savepoints) or None

    ordered = run_async(settings, order(settings, stream, make, awaited, timeout))
    if ordered.effect is None:
        show(ordered, _not_yet(settings, stream, ordered, kind, timeout), {}, as_json=as_json)
        context.exit(UNFINISHED)
    show(ordered, _text(stream, kind, name, ordered.state), _values(ordered.state), as_json=as_json)


def _not_yet(settings: Settings, stream: str, ordered: Ordered[bool], kind: str, timeout: float) -> str:
    text = not_yet(ordered, settings, f"the {kind} {ordered.command.name} of stream {stream}", timeout)
    active = [*ordered.state.active()]
    if kind == "savepoint" or not active:
        return text
    return (
        f"{text}\nNot ended: {', '.join(active)}. Stop their queries, or close the assignment: "
        f"sluicegate assignment close --stream {stream}"
    )


def _text(stream: str, kind: str, name: str, state: LogState) -> str:
    done = "is drained" if kind == "drain" else f"has the savepoint {name}"
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
        "decision": state.decided,
        "cut": {region: at.model_dump(mode="json") for region, at in sorted(state.cut.items())},
        "snapshot": None if state.snapshot is None else state.snapshot.model_dump(mode="json"),
        "watermark": state.watermark,
    }
