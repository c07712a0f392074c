"""`sluicegate audit`: the orders of a stream, with their senders, reasons and effects."""

import json
import time
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final

import click

from sluicegate.cli.completing import complete_streams
from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import read_state_keys
from sluicegate.cli.options import config_option, json_option
from sluicegate.cli.progress import progress_line
from sluicegate.coordinator.observe.messages import format_problem, iso_time
from sluicegate.coordinator.replay.audit import Audit, Audited, read_orders
from sluicegate.coordinator.replay.decisions import ReplayRefused
from sluicegate.coordinator.settings.model import Settings, parse_seconds
from sluicegate.events.signing import State

NOTES: Final = (
    *("dead-letters drop", "dead-letters retry", "orphans delete", "region reset", "replay rebuild"),
    *("replay repair", "stream adopt", "stream forget", "stream recover"),
)
"""Commands whose work is outside of the log: their note has no content, so their name is only a claim."""
COMMANDS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "remove": ("region remove", ("region remove",)),
    "discard": ("region remove --discard", ("region remove",)),
    "close": ("assignment close", ("assignment close",)),
    "skip": ("stream skip", ("stream skip",)),
    "withdraw": ("assignment withdraw", ("assignment withdraw",)),
    "revert": ("commit revert", ("commit revert",)),
    "savepoint": ("stream savepoint", ("stream savepoint",)),
    "drain": ("stream drain", ("stream drain",)),
    "cancel": ("stream cancel", ("stream cancel",)),
    "pause": ("stream pause", ("stream pause", "replay repair")),
    "resume": ("stream resume", ("stream resume", "replay repair")),
}
"""Name of each order of the log, and the commands that write it."""
_SIGNATURES: Final[dict[State, str]] = {
    "valid": "signed",
    "invalid": "THE SIGNATURE IS WRONG",
    "retired": "signed with a key that was retired before: the sender is only a claim",
    "copied": "signed, and appended much earlier or later: a copy, or the clock of the sender is wrong",
    "unsigned": "not signed: the sender is only a claim",
    "unchecked": "signed, but this command cannot check it: the sender is only a claim",
}


def _since(_: click.Context, __: click.Parameter, value: str | None) -> int:
    """Parse a duration before now, or a time; return milliseconds since the Unix epoch, 0 for no limit."""
    if value is None:
        return 0
    try:
        return max(1, time.time_ns() // 1_000_000 - round(1000 * parse_seconds(value)))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is neither a duration such as 7d nor a time such as 2026-11-21T16:00:00Z"
        ) from error
    return max(1, round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


@click.command()
@config_option
@click.option("--stream", required=True, shell_complete=complete_streams, help="Name of the stream.")
@click.option(
    "--since",
    callback=_since,
    metavar="TIME",
    help="Only orders since then: a duration such as 7d, or a time.",
)
@click.option(
    "--last",
    default=100,
    show_default=True,
    type=click.IntRange(min=1, max=100_000),
    help="How many orders to show, the newest ones.",
)
@json_option
def audit(settings: Settings, stream: str, since: int, last: int, as_json: bool) -> None:
    """Show the orders of a stream, the oldest first: time, sender, order, reason and effect.

    They are read from the events topic, which keeps them for `replay_window`. The order is what the record
    does. Name, host and reason of the sender are only claims without a valid signature. An order that its own
    command has refused is not in the log.
    """
    owner = settings.streams[stream].owner if stream in settings.streams else ""
    with progress_line(wanted=not as_json) as line:
        found = run_async(settings, _read(settings, stream, last, since, line.show))
    if as_json:
        values = {
            "stream": stream,
            "owner": owner or None,
            "older": found.older,
            "orders": [_values(each, stream, owner) for each in found.orders],
            "effects_unknown": found.unknown or None,
        }
        click.echo(json.dumps(values, indent=2))
        return
    if found.older:
        all_of_them = len(found.orders) + found.older
        click.echo(f"{found.older} older orders are not shown. To see them: --last {all_of_them}", err=True)
    for each in found.orders:
        click.echo(_printable(_line(each, stream, owner)))
    if not found.orders:
        click.echo(f"the log has no order of stream {stream}" + (" since then" if since else ""))
    if found.unknown:
        click.echo(_printable(f"the effects are not known: {found.unknown}"), err=True)


async def _read(settings: Settings, stream: str, last: int, since: int, show: Any) -> Audit:
    try:
        found = await read_orders(settings, stream, last, since, show)
    except ReplayRefused as error:
        raise UserError(str(error)) from error
    if not found.orders and stream not in settings.streams and not await read_state_keys(settings, stream):
        known = ", ".join(sorted(settings.streams)) or "none"
        raise UserError(
            f"no stream {stream} is known: the settings and the topics have none of this name, and the "
            f"log has no order of it{' since then' if since else ''}. Correct the name; the "
            f"settings have: {known}"
        )
    return found


def _what(audited: Audited) -> str:
    """Format the order by its body, with its arguments. A claim of another order is named as such."""
    order, command = audited.order, audited.command
    claimed = "" if order is None else order.order
    if command is None or audited.is_note:
        arguments = [f"region {audited.region}"] if audited.region else []
    else:
        given = command.model_dump(mode="json", exclude_defaults=True, exclude={"command", "head"})
        arguments = [f"{key} {value}" for key, value in given.items()]
        if command.head is not None:
            arguments.append(f"head {command.head.snapshot}:{command.head.identity}")
    if order is not None and order.about:
        arguments.append(order.about)
    name, written_by = _written(audited, claimed)
    shown = f"{name} ({', '.join(arguments)})" if arguments else name
    return shown if claimed in {"", *written_by} else f'{shown}, CLAIMED AS "{claimed}",'


def _written(audited: Audited, claimed: str) -> tuple[str, Collection[str]]:
    """Return the name of the order, and the commands that write such a record."""
    if audited.is_note:
        return claimed if claimed in NOTES else "a note", NOTES
    if audited.command is not None:
        return COMMANDS[audited.command.command]
    return ("region reset", ("region reset",)) if audited.registers else ("an order", ())


def _sender(audited: Audited) -> str:
    if audited.order is not None:
        return f"by {audited.order.by} on {audited.order.host}"
    return "by a sender whose claim is malformed" if audited.malformed else "by an unnamed sender"


def _effect(audited: Audited, stream: str) -> str:
    match audited.effect:
        case "accepted":
            after = f"decision {audited.decision}" if audited.decision else "no decision"
            return f"accepted after {after}{_outcome(audited)}"
        case "refused" if audited.problem is not None:
            return f"refused: {format_problem(audited.problem, stream)}"
        case "noted":
            return "given; its work is outside of the log"
    return "effect not known"


def _outcome(audited: Audited) -> str:
    match audited.outcome:
        case "reached":
            return f", reached with decision {audited.outcome_decision}"
        case "cancelled":
            return ", cancelled later"
        case "reverted":
            return f", decision {audited.outcome_decision} is reverted"
        case "committed":
            return f", decision {audited.outcome_decision} was in the table after all"
    return ""


def _by_owner(audited: Audited, owner: str) -> bool | None:
    """True if the sender claims to be the owner; None if either is not named."""
    return None if not owner or audited.order is None else audited.order.by == owner


def _line(audited: Audited, stream: str, owner: str) -> str:
    order = audited.order
    other = f" (the owner is {owner})" if _by_owner(audited, owner) is False else ""
    reason = f' "{order.reason}"' if order is not None and order.reason else ""
    sender = f"{_sender(audited)}{other}"
    signed = _SIGNATURES[audited.signature]
    if audited.copy_of is not None:
        signed += (
            f"; A COPY of the order at offset {audited.copy_of}, with the same id: anybody can append one"
        )
    return (
        f"{iso_time(audited.time)}  offset {audited.offset}  {_what(audited)} {sender}{reason}: "
        f"{_effect(audited, stream).rstrip('.')}; {signed}"
    )


def _printable(text: str) -> str:
    """Escape characters that could disguise a line, in texts that come from outside."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)


def _values(audited: Audited, stream: str, owner: str) -> dict[str, Any]:
    problem = audited.problem
    command = audited.command
    return {
        "time": audited.time,
        "offset": audited.offset,
        "claim": None if audited.order is None else audited.order.model_dump(mode="json"),
        "claim_malformed": audited.malformed,
        "by_owner": _by_owner(audited, owner),
        "signature": audited.signature,
        "copy_of": audited.copy_of,
        "command": None
        if command is None or audited.is_note
        else command.model_dump(mode="json", exclude_defaults=True),
        "region": audited.region or None,
        "effect": audited.effect,
        "code": None if problem is None else problem.code.value,
        "refusal": None if problem is None else format_problem(problem, stream),
        "decision": audited.decision,
        "outcome": audited.outcome,
        "outcome_decision": audited.outcome_decision,
    }
