"""Orders of an operator: events of the log, so every coordinator obeys them in the same order.

An order is appended only if it would have an effect as of the log's end. Its effect is known at its own
offset, because the command applies the log by the same rules as the coordinators.
"""

import asyncio
import copy
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

import click
from aiokafka.errors import KafkaError

from sluicegate.cli.coordinators import ask_coordinator
from sluicegate.cli.errors import UserError
from sluicegate.cli.kafka import count_members, read_own_records
from sluicegate.cli.options import current_order, parse_timeout
from sluicegate.cli.status import reasons
from sluicegate.cli.stream_log import FoldedLog, Step, open_log
from sluicegate.coordinator.core.replica import Replica
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.observe.view import view_of
from sluicegate.coordinator.replay.log import open_log as open_replay_log
from sluicegate.coordinator.replay.log import order_envelope
from sluicegate.coordinator.service.keys import GroupKeys, read_keys
from sluicegate.coordinator.settings.model import MemberKeys, Settings, own_keys
from sluicegate.coordinator.stream.other_groups import NEEDS_KEYS
from sluicegate.coordinator.tasks import ended_with
from sluicegate.events.envelope import LogRecord
from sluicegate.events.models import StreamCommand
from sluicegate.events.orders import make_note
from sluicegate.kafka.permissions import Client, format_grants, lacking
from sluicegate.kafka.topics import TopicRole
from sluicegate.state_store import StreamView

# Signing key of a command, compared with those of the coordinators before an order is written.
#
# An order with another key is a dead letter for the coordinators, but not for the command that reads it
# again.

PATIENCE: Final = 10.0
"""Seconds in which a group that changes settles."""
_AGAIN: Final = 0.5
"""Seconds between two looks."""


async def require_accepted_key(settings: Settings, stream: str) -> None:
    """Refuse an order that the coordinators would refuse for its signature. Raises UserError, KafkaError.

    The members of the group give their keys. If none runs, the newest state record of the stream has those of
    its coordinator.
    """
    told = await settled_keys(settings)
    known = () if told is None else told.known
    if not known:
        keys = (await read_own_records(settings, stream)).keys
        known = () if keys is None else (keys,)
    own = own_keys(settings.kafka)
    why = _refusal(own, [each for each in known if each.mode == "required"])
    if why is not None:
        raise UserError(f"the order is not written: {why}")


def _refusal(own: MemberKeys, strict: Sequence[MemberKeys]) -> str | None:
    """Return why members refuse an order of this command, or this command their decisions; None: nobody."""
    for each in strict:
        if own.signs_with is None:
            return NEEDS_KEYS
        if (flaw := _flaw(own.signs_with, each)) is not None:
            name, theirs = own.signs_with[0], ", ".join(dict.fromkeys(_signer(each) for each in strict))
            return (
                f"this command signs with the key {name}, {flaw} {each.place}, where it would be a dead "
                f"letter. They sign with {theirs}: list its file first in kafka.signing.key_files of this "
                "command"
            )
    for each in strict:
        if each.signs_with is not None and own.mode == "required" and _flaw(each.signs_with, own) is not None:
            return (
                f"the coordinators at {each.place} sign with the key {_signer(each)}, which it lacks, has "
                "retired, or has with another content, so it takes their decisions for forged. Add their "
                "file of that key to kafka.signing.key_files of this command"
            )
    return None


def _flaw(key: tuple[str, str], reader: MemberKeys) -> str | None:
    """Return why a reader refuses what is signed with a key, up to the name of the reader; None if not."""
    name, fingerprint = key
    if name not in reader.keys:
        return "which is unknown at"
    if reader.keys[name] != fingerprint:
        return "whose content is another one at"
    return "which is retired at" if name in reader.retired else None


def _signer(member: MemberKeys) -> str:
    return "no key" if member.signs_with is None else member.signs_with[0]


async def settled_keys(settings: Settings) -> GroupKeys | None:
    """Return the facts of the members; None if they cannot be read, or the group does not settle."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            told = await read_keys(settings.kafka.client_options(), settings.kafka.group_id)
        except (KafkaError, TimeoutError, OSError):
            return None
        if told is not None or time.monotonic() > deadline:
            return told
        await asyncio.sleep(_AGAIN)


# Notes in the log: orders that work on a table, on state records or on dead letters.


async def require_permissions(settings: Settings, client: Client, only: TopicRole | None = None) -> None:
    """Refuse an order before its note if its work would be refused afterwards; `only`: those on one topic.

    Raises UserError, KafkaError.
    """
    kafka = settings.kafka
    where = kafka.topic_prefix, kafka.group_id
    found = await lacking(kafka.client_options(), client, *where)
    if found := [each for each in found if only in (None, each.topic)]:
        raise UserError(
            f"nothing is written: this client lacks permissions. Grant it {format_grants(found, *where)}"
        )


async def note_order(settings: Settings, stream: str, about: str = "") -> None:
    """Append a note of the command that runs, before its work. Raises KafkaError, UserError."""
    await require_accepted_key(settings, stream)
    async with open_replay_log(settings, stream) as log:
        await log.append(order_envelope(stream), make_note(), current_order(about))


UNFINISHED: Final = 1
"""Exit status if an order has not had its effect yet, or not the requested one."""

_TELL: Final = 3.0
"""Seconds between two looks for the reasons of a wait."""
_REPEAT: Final = 60.0
"""Seconds after which a reason is printed again if only its numbers have changed."""
_NUMBER: Final = re.compile(r"\d+(\.\d+)?( s| min| h| days)?\b")
"""A number, and its unit of time if it is a duration."""

T = TypeVar("T")


timeout_option = click.option(
    "--timeout",
    default="5m",
    show_default=True,
    callback=parse_timeout,
    help="How long to wait for the effect. The order stays in force after it.",
)


@dataclass(frozen=True, slots=True)
class Ordered(Generic[T]):
    """An order in the log, with its effect."""

    command: StreamCommand
    topic: str
    partition: int
    offset: int
    state: LogState
    """State of the stream as of the last record that was read, at or after the order."""
    effect: T | None
    """None if the awaited effect did not come in time."""
    waits_for: str = ""
    """Reason for the delay, if there is no effect."""

    @property
    def place(self) -> str:
        """Place of the order in the log, in brackets."""
        return f"(partition {self.partition}, offset {self.offset} of {self.topic})"


Await = Callable[[Step, Replica], T | None]
"""Return the effect if it is in this record, else None. The first record is that of the order."""


def at_once(_: Step, __: Replica) -> bool:
    """Await nothing but the order itself."""
    return True


async def order(
    settings: Settings,
    stream: str,
    make: Callable[[LogState], StreamCommand],
    awaited: Await[T],
    patience: float | None = None,
) -> Ordered[T]:
    """Append the order that `make` returns for the present state, and await its effect.

    Raises KafkaError, TimeoutError, and UserError if the order has no effect.
    """
    await require_accepted_key(settings, stream)
    async with open_log(settings, stream) as log:
        command = make(log.replica.state)
        envelope = order_envelope(stream)
        now = time.time_ns() // 1_000_000
        _require_effect(log.replica, LogRecord(log.replica.applied + 1, now, envelope, command))
        offset = await log.append(envelope, command)
        effect, reason = None, ""
        noted = await note_nobody(settings)
        async with ended_with(tell_reasons(settings, stream, noted)):
            try:
                effect = await asyncio.wait_for(_follow(log, offset, awaited), patience)
            except TimeoutError:
                reason = await reason_of_wait(settings, stream)
        return Ordered(command, log.topic, log.partition, offset, log.replica.state, effect, reason)


def _require_effect(replica: Replica, record: LogRecord) -> None:
    """Refuse an order that would have no effect after everything that was read. Raises UserError."""
    ignored = copy.deepcopy(replica).apply(record).ignored
    if ignored is not None:
        raise UserError(f"this order has no effect: {format_problem(ignored, record.envelope.stream)}")


async def _follow(log: FoldedLog, offset: int, awaited: Await[T]) -> T:
    """Read on from the order until its effect. Raises UserError if the order has none."""
    async for step in log.follow():
        if step.record.offset == offset and step.applied.ignored is not None:
            # Another record came between the check and the order.
            reason = format_problem(step.applied.ignored, step.record.envelope.stream)
            raise UserError(f"the order at offset {offset} has no effect: {reason}")
        if step.record.offset >= offset and (found := awaited(step, log.replica)) is not None:
            return found
    raise AssertionError("a log is followed without end")


async def note_nobody(settings: Settings) -> str:
    """Print when the order takes effect if no coordinator runs. Return the reason, else an empty text."""
    with suppress(KafkaError, OSError):
        if await count_members(settings) == 0:
            reason = _nobody(settings)
            click.echo(f"note: {reason}. The order is in the log, and takes effect when one runs", err=True)
            return reason
    return ""


async def tell_reasons(settings: Settings, stream: str, told: str = "") -> None:
    """Print why the stream waits, for as long as it does, whenever that changes from `told`.

    Durations grow all the time, so a reason that differs in numbers alone is printed once in _REPEAT.
    """
    at = time.monotonic()
    while True:
        await asyncio.sleep(_TELL)
        with suppress(KafkaError, UserError, OSError):
            reason, now = await reason_of_wait(settings, stream), time.monotonic()
            if _NUMBER.sub("", reason) != _NUMBER.sub("", told) or (reason != told and now - at > _REPEAT):
                click.echo(f"waiting: {reason}", err=True)
                told, at = reason, now


def _nobody(settings: Settings) -> str:
    group = settings.kafka.group_id
    return f"no coordinator runs: the group {group} has no members. Start one: sluicegate run"


async def reason_of_wait(settings: Settings, stream: str) -> str:
    """Return why a stream waits, as `sluicegate status` shows it, or that nothing there explains it."""
    found = await condition_of_wait(settings, stream)
    return found or f"no condition of the stream explains it. See: sluicegate status --stream {stream}"


async def condition_of_wait(settings: Settings, stream: str) -> str | None:
    """Return why a stream waits, as `sluicegate status` shows it; None: there is no such condition."""
    if await count_members(settings) == 0:
        return _nobody(settings)
    live = (await ask_coordinator(settings)).get(stream)
    if live is not None:
        return " ".join(reasons(StreamView.model_validate(live))) or None
    held = await read_own_records(settings, stream)
    if not isinstance(held.record, StateRecord):
        return None
    return " ".join(reasons(view_of(held.record, settings.streams.get(stream), held.time))) or None


# --- for the commands -----------------------------------------------------------------------------


def make_command(values: Mapping[str, Any]) -> StreamCommand:
    """Make an order of values that a user typed. Raises UserError."""
    try:
        return StreamCommand.model_validate(values)
    except ValueError as error:
        named = ", ".join(f"{name} {value!r}" for name, value in values.items() if name != "command")
        raise UserError(
            f"{named} cannot be ordered: names have letters, digits, `_`, `.` and `-`, at most 200, and "
            "begin with none of the last two; decisions count from 1, and assignments from 0"
        ) from error


def timestamped(prefix: str) -> str:
    """Make a name of the prefix and the current time in UTC."""
    return f"{prefix}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


def not_yet(ordered: Ordered[Any], order_name: str, timeout: float) -> str:
    """Format the message for an order whose effect did not come in time."""
    return (
        f"{order_name} has had no effect after {timeout:g} s {ordered.place}. The order stays "
        f"in force. It waits, because: {ordered.waits_for}"
    )


def show(ordered: Ordered[Any], text: str, values: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the effect of an order, or the reason for the delay."""
    if not as_json:
        click.echo(text, err=ordered.effect is None)
        return
    shown: dict[str, Any] = {
        "order": ordered.command.model_dump(mode="json", exclude_defaults=True),
        "partition": ordered.partition,
        "offset": ordered.offset,
        "effective": ordered.effect is not None,
    }
    if ordered.effect is None:
        shown["waits_for"] = ordered.waits_for
    click.echo(json.dumps({**shown, **values}, indent=2))
