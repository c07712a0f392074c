"""`sluicegate region reset`: set a region to its committed position, with a new incarnation."""

import asyncio
import copy
import time
import uuid
from typing import TYPE_CHECKING, Final

import click

from sluicegate.cli.alive import last_sign
from sluicegate.cli.completing import complete_folders
from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.noting import note_order
from sluicegate.cli.options import config_option, parse_timeout, region_option, require_stream, stream_option
from sluicegate.cli.ordered_by import by_option, current_order, reason_option
from sluicegate.cli.signing_keys import require_accepted_key
from sluicegate.cli.stream_log import STUCK, StreamLog, known_record, open_log, region_assignment
from sluicegate.coordinator.core.state import LogState, RegionPhase
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import Assignment, RegionRegistered
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.orders import order_header
from sluicegate.lakes.registry import install_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluicegate.writer_hooks.spark.reset import Ask, ResetDone, ResetOrder

_ENDED: Final = (RegionPhase.REMOVED, RegionPhase.LEFT)
_CLOCKS: Final = 2.0
"""Seconds by which two clocks that are kept right may differ."""
_LEAST_SILENCE: Final = 15.0
_MISSED: Final = 3
"""Heartbeats that a query must have missed to count as stopped."""


def _parse_silence(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    return None if value is None else parse_timeout(context, option, value)


@click.command()
@config_option
@stream_option
@by_option
@region_option("Name of the region.")
@click.option(
    "--checkpoint-location",
    "location",
    required=True,
    shell_complete=complete_folders,
    help="That of the region's query.",
)
@reason_option("For `sluicegate audit`; also noted beside the files that are moved away.", default="")
@click.option(
    "--silence",
    default=None,
    callback=_parse_silence,
    help="Time without an event of the query after which it counts as stopped. By default three times its "
    "heartbeat interval, and 15 s at least.",
)
def reset(
    settings: Settings, stream: str, region: str, location: str, reason: str, silence: float | None
) -> None:
    """Set a region to its committed position, with a new incarnation. Then start its query again.

    A region that was removed, or left out, begins the next assignment there.

    Uncommitted checkpoints of the region are discarded; the query reads their rows again from the source.
    Nothing is deleted: the removed parts of the checkpoint location move to its folder sluicegate/reset-ID.
    Stop the query first. If the command is interrupted, repeat it.

    An empty location is the operator's word that the source begins right after the committed position.
    """
    require_stream(settings, stream)
    for line in run_async(settings, _reset(settings, stream, region, location, reason, silence)):
        click.echo(line)


async def _reset(
    settings: Settings, stream: str, region: str, location: str, reason: str, silence: float | None
) -> list[str]:
    hook_error, reset_region = _hooks()
    await require_accepted_key(settings, stream)
    async with open_log(settings, stream) as log:
        order = _order(log.replica.state, stream, region, location, reason)
        if silence is None:
            heartbeat = (await known_record(settings, stream)).intervals.get(region, 0)
            silence = max(_LEAST_SILENCE, _MISSED * heartbeat / 1000)
        age = await last_sign(settings, log.source, stream, region, silence)
        _require_silence(region, age, silence)
        if order.ended:
            # Nothing is registered then, so no other record has the order.
            await note_order(settings, stream, f"region {region}")
        loop = asyncio.get_running_loop()

        def ask(incarnation: str, body: RegionRegistered) -> RegistrationAnswered:
            work = _probe if body.probe else _register
            asked = work(log, Envelope(*_identity(order, incarnation)), body)
            return asyncio.run_coroutine_threadsafe(asked, loop).result()

        try:
            done = await asyncio.to_thread(reset_region, order, ask)
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


def _identity(order: "ResetOrder", incarnation: str) -> tuple[str, EventType, str, str, str]:
    return uuid.uuid4().hex, EventType.REGION_REGISTERED, order.stream, order.region, incarnation


def _order(state: LogState, stream: str, region: str, location: str, reason: str) -> "ResetOrder":
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
        single_region=held.single_region if held is not None else None,
        reason=reason,
        ended=ended,
    )


async def _probe(log: StreamLog, envelope: Envelope, body: RegionRegistered) -> RegistrationAnswered:
    """Return the answer to a registration at the log's end; nothing is appended."""
    await log.read_to_end()
    record = LogRecord(log.replica.applied + 1, time.time_ns() // 1_000_000, envelope, body)
    return _with_reason(copy.deepcopy(log.replica).apply(record).answer, envelope.stream)


async def _register(log: StreamLog, envelope: Envelope, body: RegionRegistered) -> RegistrationAnswered:
    """Append a registration; return its answer, which follows from the log alone."""
    message = encode_event(envelope, body, time.time_ns() // 1_000_000)
    message.headers.append(order_header(current_order()))
    # No coordinator asks for the signature of a registration, but the audit shows it.
    offset = await log.append(log.sign(message))
    async with asyncio.timeout(STUCK):
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
