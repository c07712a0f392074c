"""`sluicegate stream pause` and `sluicegate stream resume`."""

import asyncio

import click

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.options import config_option, require_stream, stream_option
from sluicegate.cli.ordered_by import order_options
from sluicegate.cli.orders import Ordered, at_once, make_command, order, place_of
from sluicegate.cli.stream_log import known_record, open_log
from sluicegate.coordinator.core.commit import asked_decision, disproves, lost_decision
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.settings.model import Settings, StreamSettings
from sluicegate.events.models import Head, StreamCommand
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.port import LakeUnavailable, TableRefused, TableState
from sluicegate.lakes.registry import adapter


@click.command()
@config_option
@stream_option
@order_options
def pause(settings: Settings, stream: str) -> None:
    """Pause a stream: decide no commits until it is resumed. A commit that is decided already completes.

    Its writers keep running, and their events wait in the log. If the log has a retention time, it must
    exceed the pause.
    """
    require_stream(settings, stream)
    ordered = run_async(settings, order(settings, stream, lambda _: StreamCommand(command="pause"), at_once))
    click.echo(
        f"stream {stream} is paused {place_of(ordered, settings)}. To resume it: "
        f"sluicegate stream resume --stream {stream}"
    )


def _parse_head(_context: click.Context, _option: click.Parameter, value: str | None) -> Head | None:
    if value is None:
        return None
    snapshot, _, identity = value.partition(":")
    try:
        # An empty identity is refused by the model.
        return Head(snapshot=int(snapshot), identity=identity)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not SNAPSHOT:IDENTITY. `sluicegate check` shows the head of the table so"
        ) from error


@click.command()
@config_option
@stream_option
@order_options
@click.option(
    "--head",
    callback=_parse_head,
    metavar="SNAPSHOT:IDENTITY",
    help="Your statement that this snapshot is in the history of the table, and that no commit of the "
    "unresolved decision is in the table at or before it.",
)
@click.option(
    "--committed",
    is_flag=True,
    help="With --head: your statement that the commit of the unresolved decision is in the table at or "
    "before that snapshot, and only its own snapshot has expired.",
)
def resume(settings: Settings, stream: str, head: Head | None, committed: bool) -> None:
    """Resume a paused stream, or prove to a stalled one that its decision is not in the table.

    A stalled stream needs no order: it continues when the cause that `status` shows is removed. Only a stall
    because the absence of a commit cannot be proven needs --head. It is refused while the table shows that a
    committed decision was rolled back: no statement brings that back.
    """
    require_stream(settings, stream)
    if committed and head is None:
        raise click.UsageError("--committed needs --head: `sluicegate check` shows the head of the table")
    was_paused = False

    def make(state: LogState) -> StreamCommand:
        nonlocal was_paused
        was_paused = state.paused
        if head is None:
            return StreamCommand(command="resume")
        asked = state.pending.id if state.pending is not None else state.decided + 1
        arguments = {"command": "resume", "decision": asked, "head": head, "committed": committed}
        return make_command(arguments)

    async def send() -> Ordered[bool]:
        if head is not None:
            await _require_history(settings, stream, committed=committed)
        return await order(settings, stream, make, at_once)

    ordered = run_async(settings, send())
    if head is not None:
        place, decision = place_of(ordered, settings), ordered.command.decision
        click.echo(
            f"your statement about stream {stream} is in the log {place}: decision {decision} is "
            f"{'' if committed else 'not '}in the table at or before snapshot {head.snapshot}"
        )
    elif was_paused:
        click.echo(f"stream {stream} is resumed {place_of(ordered, settings)}")
    else:
        click.echo(
            f"stream {stream} was not paused, so this changes nothing. If it does not progress, see: "
            f"sluicegate status --stream {stream}"
        )


async def _require_history(settings: Settings, stream: str, *, committed: bool) -> None:
    """Check that the table has the newest committed decision, and that it does not disprove the statement.

    Both as far as its history can be read. The evidence of a rollback can expire after the statement, so the
    coordinator alone cannot refuse it. Raises UserError, KafkaError, TimeoutError.
    """
    progress = (await known_record(settings, stream)).table
    async with open_log(settings, stream) as log:
        state = log.replica.state
    own = settings.streams[stream]
    try:
        found = await asyncio.to_thread(_inspect, own)
    except (TableRefused, LakeUnavailable) as error:
        raise UserError(
            f"the table of stream {stream} cannot be read, so your statement about it cannot be checked: "
            f"{own.table}: {error}"
        ) from error
    if (lost := lost_decision(state, found, progress)) is not None:
        raise UserError(f"no statement was made: {format_problem(lost, stream)}")
    if disproves(found, state.decided + 1):
        ahead = Problem(code=Code.TABLE_AHEAD, number=state.decided, other=found.newest_made)
        raise UserError(f"no statement was made: {format_problem(ahead, stream)}")
    if disproves(found, asked := asked_decision(state)) and not committed:
        raise UserError(
            f"no statement was made: the table of stream {stream} has decision {asked} of its commit user. A "
            "coordinator compares that with the log by itself: see what it tells then with "
            f"`sluicegate status --stream {stream}`"
        )


def _inspect(settings: StreamSettings) -> TableState:
    """Return the state of a table. Raises TableRefused, LakeUnavailable; blocks."""
    opened = adapter(settings.format)
    table = opened.parse_table(settings.table, settings.adapter_options())
    committer = opened.open_committer(table, settings.commit_user)
    try:
        return committer.inspect()
    finally:
        committer.close()
