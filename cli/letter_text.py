"""Formats of dead letters: text that is safe for a terminal and has no secrets."""

import re
from typing import Any, Final

from sluicegate.coordinator.observe.logs import HIDDEN, Redactor
from sluicegate.coordinator.observe.messages import iso_time
from sluicegate.coordinator.replay.letters import Letter

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


def as_json(letter: Letter, redactor: Redactor, *, whole: bool) -> dict[str, Any]:
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
