"""`sluicegate stream`: orders that concern all regions of a stream."""

import asyncio
from dataclasses import asdict
from typing import Any

import click
from aiokafka import ConsumerRecord
from pydantic import TypeAdapter

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.main import LazyCommands
from sluicegate.cli.options import json_option, order_options
from sluicegate.cli.orders import (
    UNFINISHED,
    Ordered,
    at_once,
    make_command,
    not_yet,
    note_nobody,
    order,
    require_accepted_key,
    show,
    timeout_option,
    timestamped,
)
from sluicegate.cli.stream_log import FoldedLog, Step, Unreadable, connect_log, known_record, open_log
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import LogState, RegionPhase, RegionState, Savepoint
from sluicegate.coordinator.core.table import asked_decision, disproves
from sluicegate.coordinator.observe.messages import RESET, fill, format_problem, iso_time
from sluicegate.coordinator.replay.log import order_envelope
from sluicegate.coordinator.settings.model import Settings, StreamSettings
from sluicegate.events.codec import other_envelope
from sluicegate.events.envelope import PER_REGION, EventType
from sluicegate.events.models import SnapshotRef, StreamCommand
from sluicegate.events.orders import digest_of
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.port import LakeUnavailable, TableRefused, TableState
from sluicegate.lakes.registry import adapter


@click.group(
    cls=LazyCommands,
    package="sluicegate.cli",
    places={"adopt": "adopt", "forget": "recovery", "recover": "recovery"},
)
def stream() -> None:
    """Pause, resume, adopt, recover or forget a stream, take savepoints, wait for its end, skip a record."""


# `sluicegate stream pause` and `sluicegate stream resume`.


@stream.command()
@order_options
def pause(settings: Settings, stream: str) -> None:
    """Pause a stream: decide no commits until it is resumed. A commit that is decided already completes.

    Its writers keep running, and their events wait in the log. If the log has a retention time, it must
    exceed the pause.
    """
    ordered = run_async(settings, order(settings, stream, lambda _: StreamCommand(command="pause"), at_once))
    click.echo(
        f"stream {stream} is paused {ordered.place}. To resume it: sluicegate stream resume --stream {stream}"
    )


def _parse_head(_context: click.Context, _option: click.Parameter, value: str | None) -> SnapshotRef | None:
    if value is None:
        return None
    snapshot, _, identity = value.partition(":")
    try:
        # An empty identity is refused by the model.
        return TypeAdapter(SnapshotRef).validate_python({"id": int(snapshot), "identity": identity})
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not SNAPSHOT:IDENTITY. `sluicegate check` shows the head of the table so"
        ) from error


@stream.command()
@order_options
@click.option(
    "--head",
    callback=_parse_head,
    metavar="SNAPSHOT:IDENTITY",
    help="Your statement that this snapshot is in the history of the table, and that no commit of the "
    "unresolved decision is in the table at or before it.",
)
@click.option(
    "--table",
    metavar="NAME",
    help="With --head: your statement that this further table is right at the snapshot, with all decisions "
    "that touch it up to the newest one there.",
)
def resume(settings: Settings, stream: str, head: SnapshotRef | None, table: str | None) -> None:
    """Resume a paused stream, or prove to a stalled one that its decision is not in the table.

    A stalled stream needs no order: it continues when the cause that `status` shows is removed. Only a stall
    because the absence of a commit cannot be proven needs --head. It is refused while the table shows that a
    committed decision was rolled back: no statement brings that back.

    With --table, it ends no pause. A further table that lacks a decision, or was built again, gets no more
    commits until you state that it is right. To commit again what it lacks, use sluicegate replay repair.
    """
    if table is not None:
        _resume_table(settings, stream, table, head)
        return
    was_paused = False

    def make(state: LogState) -> StreamCommand:
        nonlocal was_paused
        was_paused = state.paused
        if head is None:
            return StreamCommand(command="resume")
        asked = state.unresolved.id if state.unresolved is not None else state.decided + 1
        return make_command({"command": "resume", "decision": asked, "head": head})

    async def send() -> Ordered[bool]:
        if head is not None:
            await _require_history(settings, stream)
        return await order(settings, stream, make, at_once)

    ordered = run_async(settings, send())
    if head is not None:
        place, decision = ordered.place, ordered.command.decision
        click.echo(
            f"your statement about stream {stream} is in the log {place}: decision {decision} is "
            f"not in the table at or before snapshot {head.id}"
        )
    elif was_paused:
        click.echo(f"stream {stream} is resumed {ordered.place}")
    else:
        click.echo(
            f"stream {stream} was not paused, so this changes nothing. If it does not progress, see: "
            f"sluicegate status --stream {stream}"
        )


def _resume_table(settings: Settings, stream: str, name: str, head: SnapshotRef | None) -> None:
    """State that a further table is right at a snapshot."""

    async def send() -> Ordered[bool]:
        # The readers of tables need seconds to import, which other orders do not wait for.
        from sluicegate.coordinator.replay.repair import state_table
        from sluicegate.coordinator.replay.tables import connect

        async with connect(settings, stream) as connected:
            state = connected.state
            command = await state_table(connected, stream, name, head)

        def make(now: LogState) -> StreamCommand:
            if now.tables.get(name) != state.tables[name]:
                # The table was compared with an older state.
                raise UserError(f"a commit has changed the table {name} meanwhile. Repeat this command")
            return command

        return await order(settings, stream, make, at_once)

    ordered = run_async(settings, send())
    newest, snapshot = ordered.command.decision, ordered.command.head
    which = f"decision {newest} is its newest one" if newest else "it has no decision"
    click.echo(
        f"your statement about table {name} of stream {stream} is in the log {ordered.place}: it is right at "
        f"snapshot {snapshot.id if snapshot is not None else 'none'}, and {which}"
    )


async def _require_history(settings: Settings, stream: str) -> None:
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
    if (lost := progress.lost_decision(state, found)) is not None:
        raise UserError(f"no statement was made: {format_problem(lost, stream)}")
    if disproves(found, state.decided + 1):
        ahead = Problem(code=Code.TABLE_AHEAD, number=state.decided, other=found.newest_made)
        raise UserError(f"no statement was made: {format_problem(ahead, stream)}")
    if disproves(found, asked := asked_decision(state)):
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


# `sluicegate stream savepoint`, `drain` and `cancel`.

_name_option = click.option("--name", help="Name of the order. Default: made of the time.")


@stream.command()
@order_options
@_name_option
@timeout_option
@json_option
@click.pass_context
def savepoint(
    context: click.Context, settings: Settings, stream: str, name: str | None, timeout: float, as_json: bool
) -> None:
    """Take a savepoint: wait until every checkpoint completed so far in any region is committed.

    Of a region without one, it waits for the next checkpoint, unless the region is idle or has ended. Commits
    continue meanwhile. Exit status 0 when all of it is in the table, 1 if it is not yet. A savepoint that is
    not taken yet stays in force until `sluicegate stream cancel`.
    """
    _take(context, settings, stream, ("savepoint", name), timeout, as_json=as_json)


@stream.command()
@order_options
@_name_option
@timeout_option
@json_option
@click.pass_context
def drain(
    context: click.Context, settings: Settings, stream: str, name: str | None, timeout: float, as_json: bool
) -> None:
    """Wait until all regions of the assignment in force have ended, and print the final commit.

    A drain ends nothing by itself, and a driver that stops leaves its region idle, not ended. A region ends
    when its driver closes it. sluicegate region remove ends one from outside, and sluicegate assignment close
    ends all. With Spark, a query closes its region if it runs with bounded=true, or calls close_region.
    """
    _take(context, settings, stream, ("drain", name), timeout, as_json=as_json)


@stream.command()
@order_options
@click.option(
    "--name", required=True, help="Name of the savepoint or drain, as `sluicegate status` shows it."
)
def cancel(settings: Settings, stream: str, name: str) -> None:
    """Cancel a savepoint or a drain that is not reached yet."""

    def make(state: LogState) -> StreamCommand:
        names = [each.name for each in state.savepoints]
        if name not in names:
            raise UserError(
                f"stream {stream} waits for no savepoint or drain {name}; it waits for: "
                f"{', '.join(sorted(names)) or 'none'}"
            )
        return make_command({"command": "cancel", "name": name})

    ordered = run_async(settings, order(settings, stream, make, at_once))
    click.echo(f"{name} of stream {stream} is cancelled {ordered.place}")


def _take(
    context: click.Context,
    settings: Settings,
    stream: str,
    what: tuple[str, str | None],
    timeout: float,
    *,
    as_json: bool,
) -> None:
    kind, name = what[0], what[1] or timestamped(what[0])
    ended = False

    def make(state: LogState) -> StreamCommand:
        nonlocal ended
        if kind == "drain" and state.assignment is None:
            raise UserError(f"stream {stream} has no assignment to drain yet. Start its driver first")
        ended = not any(True for _ in state.active())
        if any(each.name == name for each in state.savepoints):
            raise UserError(
                f"stream {stream} waits for a savepoint or drain {name} already. Give another --name, or "
                f"cancel that one: sluicegate stream cancel --stream {stream} --name {name}"
            )
        if kind == "savepoint":
            _name_absent(stream, name, state)
        return make_command({"command": kind, "name": name})

    def awaited(step: Step, _: Replica) -> Savepoint | None:
        return next((each for each in step.applied.savepoints if each.name == name), None)

    ordered = run_async(settings, order(settings, stream, make, awaited, timeout))
    if ordered.effect is None:
        show(ordered, _not_yet(stream, ordered, kind, timeout), {}, as_json=as_json)
        context.exit(UNFINISHED)
    text, values = _text(stream, kind, ordered.effect, ordered.state), _values(ordered.state)
    values["discarded"] = ordered.effect.discarded
    if kind == "drain" and ended:
        text += (
            "\nall its regions had ended before this order. If you have started the drivers of the next "
            f"assignment, drain again when it is in force: sluicegate status --stream {stream}"
        )
        values["ended_before"] = True
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
            "checkpoint, or is idle. Start their drivers; for a region of batch jobs in Python, call "
            "prepare_jobs with their options. Nothing of them is left to commit before that. To give it up: "
            f"sluicegate stream cancel --stream {stream} --name {name}",
            err=True,
        )


def _not_yet(stream: str, ordered: Ordered[Savepoint], kind: str, timeout: float) -> str:
    text = not_yet(ordered, f"the {kind} {ordered.command.name} of stream {stream}", timeout)
    active = [*ordered.state.active()]
    if kind == "savepoint" or not active:
        return text
    return (
        f"{text}\nNot ended: {', '.join(active)}. A driver that stops leaves its region idle, not ended. Let "
        f"it close the region, or close the assignment: sluicegate assignment close --stream {stream}. With "
        "Spark, run the query with bounded=true"
    )


def _text(stream: str, kind: str, taken: Savepoint, state: LogState) -> str:
    number = state.assignment.number if state.assignment is not None else "none"
    done = f"is drained of assignment {number}" if kind == "drain" else f"has the savepoint {taken.name}"
    snapshot = "no snapshot" if state.snapshot is None else f"snapshot {state.snapshot.id}"
    decision = f"commit {state.decided}" if state.decided else "no commit"
    lines = [f"stream {stream} {done}: {decision}, {snapshot}"]
    lines += [
        f"  {region}  checkpoint {at.checkpoint} of incarnation {at.incarnation}"
        for region, at in sorted(state.cut.items())
    ]
    if taken.discarded:
        lines.append(
            f"completed work of {', '.join(taken.discarded)} was discarded since the order, and is not in it"
        )
    return "\n".join(lines)


def _values(state: LogState) -> dict[str, Any]:
    return {
        "assignment": state.assignment.number if state.assignment is not None else None,
        "decision": state.decided,
        "cut": {region: at.model_dump(mode="json") for region, at in sorted(state.cut.items())},
        "snapshot": None if state.snapshot is None else asdict(state.snapshot),
        "watermark": state.watermark,
    }


# `sluicegate stream skip`: read over one record that only a newer release reads.


@stream.command()
@order_options
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    help="Offset of the record, as `status` names it. Without it, the record is only shown.",
)
@click.pass_context
def skip(context: click.Context, settings: Settings, stream: str, offset: int | None) -> None:
    """Skip the record at which a stream stalls, since only a newer release reads it.

    Use it for a record that a program wrote by mistake. If a newer release of this product wrote it, upgrade
    the coordinators instead: they read it, and nothing is lost.

    The order names the offset and the digest of the record, so it skips no other one. The record has no
    effect for any reader then. What it said of a region is unknown, so that region stalls until it is reset.
    A registration is refused. A decision or an outcome takes nothing out of the table. Once a coordinator
    has read the record, it cannot be skipped any more.

    Without --offset, the exit status is 1, because nothing is skipped.
    """
    if not run_async(settings, _skip(settings, stream, offset)):
        context.exit(1)


async def _skip(settings: Settings, stream: str, offset: int | None) -> bool:
    await require_accepted_key(settings, stream)
    async with connect_log(settings, stream) as log:
        record = await _stalling_record(log, stream, offset)
        place, shown = f"offset {record.offset} of {record.topic}", describe(record)
        if offset is None:
            click.echo(
                f"stream {stream} stalls at {place}, partition {record.partition}:\n{shown}\nIf a release of "
                "this product wrote it, upgrade the coordinators. If a program wrote it by mistake: "
                f"sluicegate stream skip --stream {stream} --offset {record.offset}"
            )
            return False
        if offset != record.offset:
            raise UserError(
                f"stream {stream} does not stall at offset {offset}, but at {place}, so nothing is skipped. "
                f"To see that record: sluicegate stream skip --stream {stream}"
            )
        if (known := await known_record(settings, stream)).applied >= offset:
            # Since the log was opened, a coordinator has read the record.
            raise _too_late(stream, offset, known.state)
        digest = digest_of(record.key, record.headers, record.value)
        command = StreamCommand(command="skip", offset=record.offset, digest=digest)
        ordered = await log.append(order_envelope(stream), command)
    click.echo(f"the record at {place} is skipped (order at offset {ordered}):\n{shown}")
    await note_nobody(settings)
    await _tell_next(settings, stream, record)
    return True


async def _stalling_record(log: FoldedLog, stream: str, offset: int | None) -> ConsumerRecord:
    """Return the record at which the stream stalls. Raises UserError if it does not stall at one."""
    if offset is not None and offset <= log.replica.applied:
        raise _too_late(stream, offset, log.replica.state)
    try:
        await log.read_to_end()
    except Unreadable as found:
        return found.record
    if offset is not None and _is_skipped(log.replica.state, offset):
        raise _too_late(stream, offset, log.replica.state)
    raise UserError(
        f"stream {stream} does not stall at a record that only a newer release reads, so nothing is skipped. "
        f"See: sluicegate status --stream {stream}"
    )


def _is_skipped(state: LogState, offset: int) -> bool:
    return any(each.offset == offset for each in state.skipped)


def _too_late(stream: str, offset: int, state: LogState) -> UserError:
    if _is_skipped(state, offset):
        return UserError(f"the record at offset {offset} is skipped already, so nothing is to be done")
    return UserError(
        f"the record at offset {offset} is not skipped: the state record of stream {stream} is at or after "
        "it, so a coordinator has read it. Nothing stalls at it any more. If a newer release has applied it, "
        "that release is the way on: upgrade all coordinators"
    )


async def _tell_next(settings: Settings, stream: str, record: ConsumerRecord) -> None:
    """Print the next step: the reset of a region, or the next record of this kind."""
    envelope = other_envelope(record.headers)
    if envelope.type is EventType.REGION_REGISTERED:
        click.echo(
            "The registration is refused. Correct its driver, and start it again. With Spark, and in "
            "Python, install this release for it"
        )
    elif envelope.type in PER_REGION and envelope.type is not EventType.REGION_HEARTBEAT:
        arguments = {"stream": stream} | ({"region": envelope.region} if envelope.region else {})
        click.echo(
            f"What it said of region {envelope.region or 'REGION'} is unknown. If its incarnation is live, "
            f"the region stalls: {fill(RESET, arguments)}"
        )
    try:
        async with open_log(settings, stream):
            return
    except Unreadable as found:
        click.echo(f"The next one is at offset {found.record.offset}:\n{describe(found.record)}")
        click.echo(
            f"To skip it, too: sluicegate stream skip --stream {stream} --offset {found.record.offset}"
        )


def describe(record: ConsumerRecord) -> str:
    """Return what a record says of itself, in lines."""
    told = {name: value for name, value in record.headers if name.startswith("ce_") and value is not None}
    lines = [f"  appended  {iso_time(record.timestamp)}"]
    lines += [f"  {name}  {_shown(value)}" for name, value in sorted(told.items())]
    return "\n".join([*lines, f"  digest  {digest_of(record.key, record.headers, record.value)}"])


def _shown(raw: bytes) -> str:
    text = raw[:100].decode(errors="replace")
    return "".join(each if each.isprintable() else "?" for each in text)
