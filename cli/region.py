"""`sluicegate region` and `assignment`: end a region, set it back, or end the assignment that has it."""

import asyncio
import copy
import time
import uuid
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click
from aiokafka import ConsumerRecord

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import READ_SECONDS
from sluicegate.cli.main import Commands
from sluicegate.cli.options import (
    current_order,
    json_option,
    order_options,
    parse_timeout,
    region_option,
)
from sluicegate.cli.orders import (
    UNFINISHED,
    at_once,
    make_command,
    not_yet,
    note_order,
    order,
    require_accepted_key,
    show,
    timeout_option,
)
from sluicegate.cli.stream_log import FoldedLog, Step, known_record, open_log, region_assignment
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import LogState, RegionPhase
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.replay.log import StreamLog
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.codec import Flaw, read_attributes, read_body
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import Assignment, RegionHeartbeat, RegionRegistered, StreamCommand
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.lakes.registry import install_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluicegate.writer_hooks.spark.reset import Ask, ResetDone, ResetOrder


@click.group(cls=Commands)
def region() -> None:
    """End a region, or set it back to its committed position."""


# `sluicegate region remove`: end a region.


@region.command()
@order_options
@region_option("Name of the region.")
@click.option(
    "--discard", is_flag=True, help="Also discard its completed checkpoints that are not committed."
)
def remove(settings: Settings, stream: str, region: str, discard: bool) -> None:
    """Remove a region from its assignment: commits do not wait for it any more.

    The completed checkpoints of the region are still committed, unless --discard is given. A driver of the
    region that runs stops by itself. The region comes back only with the next assignment.
    """

    def make(state: LogState) -> StreamCommand:
        number = region_assignment(state, stream, region).number
        _require_open(stream, state, region, discard=discard)
        command = "discard" if discard else "remove"
        return make_command({"command": command, "region": region, "number": number})

    ordered = run_async(settings, order(settings, stream, make, at_once))
    click.echo(
        f"region {region} of stream {stream} is removed {ordered.place}; {_end(ordered.state, region)}"
    )


def _require_open(stream: str, state: LogState, region: str, *, discard: bool) -> None:
    """Refuse a region of which nothing is left to remove. Raises UserError."""
    held = state.regions.get(region)
    if held is not None and held.removed and held.has_ended and state.unresolved_of(region) is None:
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
    committed = held.has_ended and state.unresolved_of(region) is None
    pending = "" if committed else ", which is still to be committed"
    if held.final is not None and held.incarnation is not None:
        return f"it ends at checkpoint {held.final} of incarnation {held.incarnation.id}{pending}"
    if held.position is not None:
        at = held.position
        return f"it ends at checkpoint {at.checkpoint} of incarnation {at.incarnation}{pending}"
    return "nothing of it was committed"


# Time of the last event from the query of a region.

_SIGNS: Final = frozenset(
    {
        EventType.FILES_WRITTEN,
        EventType.CHECKPOINT_COMPLETED,
        EventType.CHECKPOINT_FAILED,
        EventType.REGION_HEARTBEAT,
    }
)


async def last_sign(log: StreamLog, stream: str, region: str, seconds: float) -> float | None:
    """Return the age in seconds of the last event from the region's query; None if it has closed the region.

    The age is negative if the clock of the brokers is ahead of this one. Events older than `seconds` are not
    read. Raises KafkaError, TimeoutError.
    """
    newest: int | None = None
    start = await log.first_since(round((time.time() - seconds) * 1000))
    async with aclosing(log.read(start, await log.end())) as batches:
        async for records in batches:
            for each in records:
                newest = _note(newest, each, stream, region)
    return None if newest is None else time.time() - newest / 1000


def _note(newest: int | None, record: ConsumerRecord, stream: str, region: str) -> int | None:
    """Return the append time of the newest sign, after this record."""
    envelope = read_attributes(record.headers)
    if isinstance(envelope, Flaw) or (envelope.stream, envelope.region) != (stream, region):
        return newest
    if envelope.type is EventType.REGION_CLOSED:
        return None
    if envelope.type not in _SIGNS:
        return newest
    if envelope.type is EventType.REGION_HEARTBEAT:
        body = read_body(envelope.type, record.value)
        if isinstance(body, RegionHeartbeat) and body.silent:
            return newest  # A coordinator sent it, because the query is silent.
    return int(record.timestamp)


# `sluicegate region reset`: set a region to its committed position, with a new incarnation.

_ENDED: Final = (RegionPhase.REMOVED, RegionPhase.LEFT)
_CLOCKS: Final = 2.0
"""Seconds by which two clocks that are kept right may differ."""
_LEAST_SILENCE: Final = 15.0
_MISSED: Final = 3
"""Heartbeats that a query must have missed to count as stopped."""


@region.command()
@order_options
@region_option("Name of the region.")
@click.option("--checkpoint-location", "location", required=True, help="That of the region's query.")
@click.option(
    "--silence",
    default=None,
    callback=parse_timeout,
    help="Time without an event of the query after which it counts as stopped. By default three times its "
    "heartbeat interval, and 15 s at least.",
)
@click.option(
    "--files-moved",
    is_flag=True,
    help="The location is empty, its source reads files, and those whose rows are committed are not in its "
    "folder any more.",
)
def reset(
    settings: Settings, stream: str, region: str, location: str, silence: float | None, *, files_moved: bool
) -> None:
    """Set a region of a Spark query to its committed position. Then start the query again.

    A region that was removed, or left out, begins the next assignment there.

    A new incarnation begins there. Uncommitted checkpoints of the region are discarded; the query reads their
    rows again from the source. Nothing is deleted: the removed parts of the checkpoint location move to its
    folder sluicegate/reset-ID.
    Stop the query first. If the command is interrupted, repeat it.

    An empty location is the operator's word that the source begins right after the committed position. A
    source of files cannot: only the lost location has the names of the files that were read. Then move those
    files away first.
    """
    work = _reset(settings, stream, region, location, silence, files_moved=files_moved)
    for line in run_async(settings, work):
        click.echo(line)


async def _reset(
    settings: Settings, stream: str, region: str, location: str, silence: float | None, *, files_moved: bool
) -> list[str]:
    hook_error, reset_region = _hooks()
    await require_accepted_key(settings, stream)
    async with open_log(settings, stream) as log:
        order = _order(log.replica.state, stream, region, location)
        if silence is None:
            heartbeat = (await known_record(settings, stream)).intervals.get(region, 0)
            silence = max(_LEAST_SILENCE, _MISSED * heartbeat / 1000)
        age = await last_sign(log.log, stream, region, silence)
        _require_silence(region, age, silence)
        if order.ended:
            # Nothing is registered then, so no other record has the order.
            await note_order(settings, stream, f"region {region}")
        loop = asyncio.get_running_loop()

        def ask(incarnation: str, body: RegionRegistered) -> RegistrationAnswered:
            work = _probe if body.probe else _register
            id_, kind = uuid.uuid4().hex, EventType.REGION_REGISTERED
            asked = work(log, Envelope(id_, kind, order.stream, order.region, incarnation), body)
            return asyncio.run_coroutine_threadsafe(asked, loop).result()

        try:
            done = await asyncio.to_thread(reset_region, replace(order, files_moved=files_moved), ask)
        except hook_error as error:
            raise UserError(str(error)) from error
    return _report(order, done)


def _require_silence(region: str, age: float | None, silence: float) -> None:
    """Raise UserError if the query of a region may be alive; `age` of its last event, in seconds."""
    if age is not None and age < -_CLOCKS:
        raise UserError(
            f"region {region} cannot be reset: its last event in the log is {-age:.0f} s ahead of this "
            "machine's clock, so its age is not known. Correct the clock, or run the command on another "
            "machine"
        )
    if age is not None:
        raise UserError(
            f"region {region} cannot be reset: its query was alive {max(0.0, age):.0f} s ago, by its last "
            f"event in the log. Stop it, wait {silence:g} s, and repeat the command; --silence sets the time"
        )


def _order(state: LogState, stream: str, region: str, location: str) -> "ResetOrder":
    """Return the order for a region. Raises UserError if its position is not settled."""
    from sluicegate.writer_hooks.spark.reset import ResetOrder

    current, held = state.assignment, state.regions.get(region)
    if current is None or held is None or held.phase is not RegionPhase.LEFT:
        current = region_assignment(state, stream, region)
    ended = held is not None and held.phase in _ENDED
    if ended and held is not None and not held.has_ended:
        raise UserError(
            f"region {region} cannot be reset yet: it was removed, and its checkpoints up to {held.final} "
            f"are still to be committed. Repeat the command when `sluicegate status --stream {stream}` shows "
            "that; or first discard them: "
            f"sluicegate region remove --stream {stream} --region {region} --discard"
        )
    return ResetOrder(
        stream=stream,
        region=region,
        location=location,
        assignment=Assignment(number=current.number, regions=tuple(current.regions), after=current.after),
        reason=current_order().reason,
        ended=ended,
    )


async def _probe(log: FoldedLog, envelope: Envelope, body: RegionRegistered) -> RegistrationAnswered:
    """Return the answer to a registration at the log's end; nothing is appended."""
    await log.read_to_end()
    record = LogRecord(log.replica.applied + 1, time.time_ns() // 1_000_000, envelope, body)
    return _with_reason(copy.deepcopy(log.replica).apply(record).answer, envelope.stream)


async def _register(log: FoldedLog, envelope: Envelope, body: RegionRegistered) -> RegistrationAnswered:
    """Append a registration; return its answer, which follows from the log alone."""
    offset = await log.append(envelope, body)
    async with asyncio.timeout(READ_SECONDS):
        async for step in log.follow():
            if step.record.offset >= offset:
                return _with_reason(step.applied.answer, envelope.stream)
    raise AssertionError("a log is followed without end")


def _with_reason(answer: RegistrationAnswered | None, stream: str) -> RegistrationAnswered:
    if answer is None:
        raise AssertionError("each registration has an answer")
    if answer.problem is None:
        return answer
    return answer.model_copy(update={"reason": format_problem(answer.problem, stream)})


def _report(order: "ResetOrder", done: "ResetDone") -> list[str]:
    at, region, location = done.position, order.region, order.location
    lines = [
        f"region {region} continues after checkpoint {at.checkpoint} of incarnation {at.incarnation}"
        if at is not None
        else f"region {region} begins again: nothing of it is committed"
    ]
    if done.moved:
        lines.append(f"{done.moved} later batches are in {done.backup}")
    if done.empty and at is not None:
        lines.append(
            f"{location} was empty: its source must begin right after the committed rows, at the source "
            f"offsets {done.source_offsets or 'that the source itself knows'}"
        )
    if order.ended:
        return [
            *lines,
            f"region {region} has ended: start its query with the next assignment. This ends the one in "
            "force, with all its regions, and shows what `assignment.after` has to be: "
            f"sluicegate assignment close --stream {order.stream} --wait",
        ]
    return [*lines, f"its new incarnation is {done.incarnation}; start the query again"]


def _hooks() -> "tuple[type[Exception], Callable[[ResetOrder, Ask], ResetDone]]":
    try:
        from sluicegate.writer_hooks.errors import HookError
        from sluicegate.writer_hooks.spark.reset import reset_region
    except ImportError as error:
        raise UserError(
            f"region reset needs a package that is not installed ({error.name}); install it with: "
            f"{install_line()}"
        ) from error
    return HookError, reset_region


# `sluicegate assignment`: end an assignment, so that the next one can begin.

_number_option = click.option(
    "--number", type=click.IntRange(min=0), help="Number of the assignment. Default: the one in force."
)


@click.group(cls=Commands)
def assignment() -> None:
    """End the assignment of regions to drivers, or take a new one back."""


@assignment.command()
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

    Completed checkpoints are still committed. Drivers of the assignment that run stop by themselves. With
    --wait, the command prints the decision id that the drivers of the next assignment name as `after`, and
    the source offsets where they begin. With Spark, that is the option assignment.after. Repeat the command
    to see both again.
    """

    def make(state: LogState) -> StreamCommand:
        return _command("close", stream, state, number)

    def final(_: Step, replica: Replica) -> bool | None:
        return _is_final(replica.state) or None

    waited = order(settings, stream, make, final if wait else at_once, timeout if wait else None)
    ordered = run_async(settings, waited)
    closed = f"assignment {ordered.command.number} of stream {stream}"
    if ordered.effect is None:
        text = not_yet(ordered, f"the final cut of {closed}", timeout)
        show(ordered, text, {}, as_json=as_json)
        context.exit(UNFINISHED)
    if _is_final(ordered.state):
        show(ordered, _final_text(closed, ordered.state), _final_values(ordered.state), as_json=as_json)
        return
    text = (
        f"{closed} is closed {ordered.place}. Its final cut is not committed yet. To wait for "
        f"it: sluicegate assignment close --stream {stream} --wait"
    )
    show(ordered, text, {}, as_json=as_json)


@assignment.command()
@order_options
@_number_option
def withdraw(settings: Settings, stream: str, number: int | None) -> None:
    """Withdraw an assignment that has decided no commit yet: the one before is in force again.

    The number of the withdrawn assignment is refused from then on. Give the next one a higher number.
    """

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
        f"assignment {ordered.command.number} of stream {stream} is withdrawn {ordered.place}; "
        + _in_force(stream, ordered.state)
    )


def _in_force(stream: str, state: LogState) -> str:
    """Say what is in force after a withdrawal, and what can be started."""
    now = state.assignment
    if now is None:
        return "none is in force"
    regions = [state.regions[name] for name in now.regions if name in state.regions]
    if not regions or not all(each.ends for each in regions):
        return f"assignment {now.number} is in force again: start its drivers again"
    following = max(now.number, state.withdrawn) + 1
    return (
        f"assignment {now.number} has ended before, so none of its drivers can start. Begin a new one: start "
        f"all drivers with assignment {following}, which follows the decision that `sluicegate status "
        f"--stream {stream}` names. With Spark, set the options `assignment` and `assignment.after`"
    )


def _command(command: str, stream: str, state: LogState, number: int | None) -> StreamCommand:
    """Make an order about the assignment in force. Raises UserError if that is not the given one."""
    if (current := state.assignment) is None:
        raise UserError(f"stream {stream} has no assignment yet. Start its driver first")
    if number is not None and number != current.number:
        raise UserError(
            f"assignment {number} of stream {stream} is not in force; that is assignment {current.number}"
        )
    return make_command({"command": command, "number": current.number})


def _is_final(state: LogState) -> bool:
    """True if every region has ended, and the log has the outcome of the newest decision."""
    return state.unresolved is None and not any(True for _ in state.active())


def _final_text(closed: str, state: LogState) -> str:
    lines = [
        f"{closed} has ended with decision {state.decided}",
        f"drivers of the next assignment name decision {state.decided} as `after`, and begin here. With "
        "Spark, that is the option assignment.after",
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
