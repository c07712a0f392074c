"""`sluicegate dead-letters`: inspect unusable messages, send them again, or drop them."""

import json
import re
from typing import Any, NamedTuple

import click

from sluicegate.cli.completing import complete_streams
from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.group import Commands
from sluicegate.cli.kafka import count_members, read_records
from sluicegate.cli.letter_text import as_json, in_full, in_short
from sluicegate.cli.noting import note_order
from sluicegate.cli.options import config_option, json_option
from sluicegate.cli.ordered_by import order_options
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.logs import Redactor
from sluicegate.coordinator.observe.messages import format_problem
from sluicegate.coordinator.replay.decisions import ReplayRefused
from sluicegate.coordinator.replay.letters import Letter, Sent, judge, mark, original, read_letters, send
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.models import NAME_PATTERN
from sluicegate.events.problems import Problem

offset_option = click.option(
    "--offset", required=True, type=click.IntRange(min=0), help="Of the letter, as `list` shows it."
)


@click.group("dead-letters", cls=Commands)
def dead_letters() -> None:
    """Show messages that could not be used, send them again, or drop them."""


@dead_letters.command("list")
@config_option
@click.option("--stream", shell_complete=complete_streams, help="Only letters that name this stream.")
@click.option("--all", "everything", is_flag=True, help="Also those that were dealt with.")
@json_option
def list_letters(settings: Settings, stream: str | None, everything: bool, as_json: bool) -> None:
    """List the dead letters that are not retried or dropped, the oldest first."""
    letters = run_async(settings, _read(settings, 0))
    shown = [
        letter
        for letter in letters
        if stream in (None, letter.stream) and (everything or letter.dealt is None)
    ]
    redactor = Redactor(settings.secrets())
    if as_json:
        # One line for each letter: indented JSON needs Python's own encoder, which is slow for thousands of
        # letters.
        lines = ",\n".join(json.dumps(_json(letter, redactor)) for letter in shown)
        click.echo(f'{{"letters": [\n{lines}\n]}}')
        return
    for letter in shown:
        click.echo(in_short(letter, redactor))
    if not shown:
        dealt = sum(letter.dealt is not None for letter in letters)
        click.echo("no dead letters" + (f" that are not dealt with ({dealt} are: --all)" if dealt else ""))


@dead_letters.command()
@config_option
@offset_option
@click.option("--full", is_flag=True, help="The whole body, however long.")
@json_option
def show(settings: Settings, offset: int, full: bool, as_json: bool) -> None:
    """Show a dead letter: its reason, its source, its headers and its body, as text."""
    letter = run_async(settings, _find(settings, offset))
    redactor = Redactor(settings.secrets())
    if as_json:
        click.echo(json.dumps(_json(letter, redactor, full=full), indent=2))
    else:
        click.echo(in_full(letter, redactor, whole=full))


@dead_letters.command()
@config_option
@offset_option
@order_options
@json_option
def retry(settings: Settings, offset: int, as_json: bool) -> None:
    """Append the message of a dead letter to the log again, with its own id, after its cause is removed.

    If the log already has the message, the copy has no effect. The command reports the effect by the rules of
    the log. Only the coordinators can check their settings for the stream, and the table for the files.
    """
    retried = run_async(settings, _retry(settings, offset))
    sent = retried.sent
    if as_json:
        values = {"stream": sent.stream, "partition": sent.partition, "offset": sent.offset}
        effect = {"counts": retried.counts, "no_effect": retried.ignored, "not_known": retried.unknown}
        click.echo(json.dumps({**values, **effect, "notes": retried.notes}, indent=2))
        return
    click.echo(
        f"sent again: partition {sent.partition}, offset {sent.offset} of "
        f"{settings.kafka.topic_names().events}"
    )
    if retried.counts:
        click.echo("it has an effect, by the rules of the log")
    elif retried.ignored is not None:
        click.echo(retried.ignored)
    for line in (*retried.unknown, *retried.notes):
        click.echo(line)


@dead_letters.command()
@config_option
@offset_option
@order_options
def drop(settings: Settings, offset: int) -> None:
    """Mark a dead letter as dropped. `list` hides it; it stays readable until it expires."""
    letter = run_async(settings, _drop(settings, offset))
    click.echo(f"letter {letter.offset} is dropped; `list --all` still shows it")


async def _read(settings: Settings, start: int) -> list[Letter]:
    try:
        return await read_letters(settings, start)
    except ReplayRefused as error:
        raise UserError(str(error)) from error


async def _find(settings: Settings, offset: int) -> Letter:
    # Marks and copies of a letter follow it in the topic, so reading from its offset finds them all.
    found = await _read(settings, offset)
    if found and found[0].offset == offset:
        return found[0]
    raise UserError(
        f"{settings.kafka.topic_names().dead_letters} has no letter at offset {offset}; see: "
        "sluicegate dead-letters list --all"
    )


async def _drop(settings: Settings, offset: int) -> Letter:
    letter = await _find(settings, offset)
    await _note(settings, letter)
    await mark(settings, letter, "dropped")
    return letter


async def _note(settings: Settings, letter: Letter) -> None:
    """Note the order in the log of the stream that a letter names, if it is a possible one."""
    if letter.stream is not None and re.fullmatch(NAME_PATTERN, letter.stream):
        await note_order(settings, letter.stream, f"letter {letter.offset}")


class _Retried(NamedTuple):
    """Effect of a message that was sent again."""

    sent: Sent
    counts: bool | None
    """True if it has an effect by the rules of the log; None if that cannot be determined."""
    ignored: str | None
    """Reason for no effect."""
    unknown: list[str]
    """Facts that this command cannot determine."""
    notes: list[str]


async def _retry(settings: Settings, offset: int) -> _Retried:
    letter = await _find(settings, offset)
    try:
        message = await original(settings, letter)
        await _note(settings, letter)
        sent = await send(settings, message)
    except ReplayRefused as error:
        raise UserError(f"letter {offset}: {error}") from error
    await mark(settings, letter, "retried")
    record = (await read_records(settings)).get(sent.stream)
    notes = await _notes(settings, sent, record)
    try:
        ignored = await judge(settings, sent)
    except ReplayRefused as error:
        return _Retried(sent, None, None, [f"its effect is not known from here: {error}"], notes)
    if ignored is not None:
        return _Retried(sent, False, format_problem(ignored, sent.stream), [], notes)
    return _Retried(sent, True, None, [_not_known(sent.stream, known=record is not None)], notes)


def _not_known(stream: str, *, known: bool) -> str:
    """Format the facts that only the coordinators can check."""
    has = "have" if known else "have (none has ever written a record of it)"
    return (
        f"not known from here: whether the settings of the coordinators still {has} stream {stream}, and "
        "whether its table accepts the files. If not, `sluicegate dead-letters list` shows it again, or "
        "`sluicegate status` the reason"
    )


async def _notes(settings: Settings, sent: Sent, record: StateRecord | Problem | None) -> list[str]:
    """Return a line for each obstacle that delays the effect of the message."""
    found: list[str] = []
    if isinstance(record, StateRecord):
        stops = [each.problem for each in record.conditions if each.kind in ("stall", "pause")]
        found += [format_problem(each, sent.stream) for each in stops]
    if await count_members(settings) == 0:
        found.append("no coordinator runs; one that is started reads the message")
    return found


def _json(letter: Letter, redactor: Redactor, *, full: bool = False) -> dict[str, Any]:
    return as_json(letter, redactor, whole=full)
