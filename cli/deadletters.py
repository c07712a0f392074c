"""`sluicegate dead-letters`: inspect unusable messages, send them again, or drop them."""

import json
import re
from typing import Any, Final, NamedTuple

import click

from sluicegate.cli.errors import UserError, run_async
from sluicegate.cli.kafka import count_members, read_own_records
from sluicegate.cli.main import Commands
from sluicegate.cli.options import config_option, json_option, print_result, sender_options
from sluicegate.cli.orders import note_order
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.observe.logs import HIDDEN, Redactor
from sluicegate.coordinator.observe.messages import format_problem, iso_time
from sluicegate.coordinator.replay.decisions import ReplayRefused
from sluicegate.coordinator.replay.letters import Letter, Sent, judge, mark, original, read_letters, send
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.models import NAME_PATTERN
from sluicegate.events.problems import Problem

# Formats of dead letters: text that is safe for a terminal and has no secrets.

MOST_CHARACTERS: Final = 10_000

_HIDE: Final = r"secret|passw|token|credential|signature|authori[sz]ation|api.?key|private.?key"
_SECRET_NAME: Final = re.compile(_HIDE, re.IGNORECASE)
_SECRET_FIELD: Final = re.compile(rf'("[^"\\]*(?:{_HIDE})[^"\\]*"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def in_short(letter: Letter, redactor: Redactor) -> str:
    """Format a letter as one line of the list."""
    copies = f", {letter.copies} times" if letter.copies > 1 else ""
    dealt = f"  ({letter.dealt})" if letter.dealt else ""
    stream = letter.stream or "(no stream named)"
    reason = _text(letter.content.reason, redactor).replace("\n", " ")
    place = letter.content.place
    at = f"{place.topic}/{place.partition}/{place.offset}"
    return (
        f"{letter.offset:>6}  {iso_time(letter.time)}  {_text(stream, redactor)}  from {at}{copies}{dealt}: "
        f"[{_text(letter.content.code, redactor)}] {reason}"
    )


def in_full(letter: Letter, redactor: Redactor, *, whole: bool) -> str:
    """Format a letter as text of several lines."""
    content = letter.content
    value = content.value or b""
    lines = [
        f"letter {letter.offset}, put aside {iso_time(letter.time)}"
        + (f", {letter.copies} times" if letter.copies > 1 else "")
        + (f", {letter.dealt}" if letter.dealt else ""),
        f"reason:  {_text(content.reason, redactor)}",
        f"code:    {_text(content.code, redactor)}",
        f"id:      {_text(letter.id, redactor)}",
        f"read in: {_text(letter.source, redactor)}, appended {iso_time(content.place.time)}",
        f"key:     {'none' if content.key is None else _text(_decoded(content.key), redactor)}",
        "headers:" if content.headers else "headers: none",
    ]
    lines += [f"  {name}: {value}" for name, value in _headers(letter, redactor)]
    body, cut = _body(letter, redactor, whole=whole)
    lines.append(f"body ({len(value):,} bytes):")
    lines.append(body + (f"\n... and {cut:,} characters more; --full shows all" if cut else ""))
    return "\n".join(lines)


def letter_values(letter: Letter, redactor: Redactor, *, whole: bool = False) -> dict[str, Any]:
    """Return a letter as JSON values."""
    body, cut = _body(letter, redactor, whole=whole)
    content = letter.content
    return {
        "id": _text(letter.id, redactor),
        "offset": letter.offset,
        "time": letter.time,
        "stream": None if letter.stream is None else _text(letter.stream, redactor),
        "code": _text(content.code, redactor),
        "reason": _text(content.reason, redactor),
        "source": {
            "topic": content.place.topic,
            "partition": content.place.partition,
            "offset": content.place.offset,
            "time": content.place.time,
        },
        "copies": letter.copies,
        "dealt_with": letter.dealt,
        "key": None if content.key is None else _text(_decoded(content.key), redactor),
        "headers": dict(_headers(letter, redactor)),
        "body": body,
        "body_bytes": len(content.value or b""),
        "body_cut": cut,
    }


def _headers(letter: Letter, redactor: Redactor) -> list[tuple[str, str]]:
    return [
        (
            _text(name, redactor),
            HIDDEN if _SECRET_NAME.search(name) else _text(_decoded(value or b""), redactor),
        )
        for name, value in letter.content.headers
    ]


def _body(letter: Letter, redactor: Redactor, *, whole: bool) -> tuple[str, int]:
    """Return the body as text, and the number of characters that are cut off."""
    text = _text(_SECRET_FIELD.sub(rf'\1"{HIDDEN}"', _decoded(letter.content.value or b"")), redactor)
    cut = 0 if whole else max(0, len(text) - MOST_CHARACTERS)
    return text[: len(text) - cut], cut


def _decoded(content: bytes) -> str:
    return content.decode(errors="backslashreplace")


def _text(text: str, redactor: Redactor) -> str:
    """Remove secrets and escape terminal control characters."""
    shown = redactor.text(text)
    if shown.isascii() and shown.isprintable():
        # Control characters include bidirectional overrides, which can disguise text.
        return shown
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", shown)


offset_option = click.option(
    "--offset", required=True, type=click.IntRange(min=0), help="Of the letter, as `list` shows it."
)


@click.group("dead-letters", cls=Commands)
def dead_letters() -> None:
    """Show messages that could not be used, send them again, or drop them."""


@dead_letters.command("list")
@config_option
@click.option("--stream", help="Only letters that name this stream.")
@click.option("--all", "everything", is_flag=True, help="Also those that were dealt with.")
@json_option
def list_letters(settings: Settings, stream: str | None, everything: bool, as_json: bool) -> None:
    """List the dead letters that are not retried or dropped, the oldest first."""
    letters = run_async(settings, read_letters(settings, 0))
    shown = [
        letter
        for letter in letters
        if stream in (None, letter.stream) and (everything or letter.dealt is None)
    ]
    redactor = Redactor(settings.secrets())
    if as_json:
        # One line for each letter: indented JSON needs Python's own encoder, which is slow for thousands of
        # letters.
        lines = ",\n".join(json.dumps(letter_values(letter, redactor)) for letter in shown)
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
    values = letter_values(letter, redactor, whole=full)
    print_result(values, [in_full(letter, redactor, whole=full)], as_json=as_json)


@dead_letters.command()
@config_option
@offset_option
@sender_options
@json_option
def retry(settings: Settings, offset: int, as_json: bool) -> None:
    """Append the message of a dead letter to the log again, with its own id, after its cause is removed.

    If the log already has the message, the copy has no effect. The command reports the effect by the rules of
    the log. Only the coordinators can check their settings for the stream, and the table for the files.
    """
    retried = run_async(settings, _retry(settings, offset))
    sent = retried.sent
    values = {
        "stream": sent.stream,
        "partition": sent.partition,
        "offset": sent.offset,
        "counts": retried.counts,
        "no_effect": retried.ignored,
        "not_known": retried.unknown,
        "notes": retried.notes,
    }
    topic = settings.kafka.topic_names().events
    effect = "it has an effect, by the rules of the log" if retried.counts else retried.ignored
    lines = [
        f"sent again: partition {sent.partition}, offset {sent.offset} of {topic}",
        *([effect] if effect else []),
        *retried.unknown,
        *retried.notes,
    ]
    print_result(values, lines, as_json=as_json)


@dead_letters.command()
@config_option
@offset_option
@sender_options
def drop(settings: Settings, offset: int) -> None:
    """Mark a dead letter as dropped. `list` hides it; it stays readable until it expires."""
    letter = run_async(settings, _drop(settings, offset))
    click.echo(f"letter {letter.offset} is dropped; `list --all` still shows it")


async def _find(settings: Settings, offset: int) -> Letter:
    # Marks and copies of a letter follow it in the topic, so reading from its offset finds them all.
    found = await read_letters(settings, offset)
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
    record = (await read_own_records(settings, sent.stream)).record
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
