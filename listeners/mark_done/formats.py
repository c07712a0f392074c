"""Parsers of a partition's time from text, in the letters of Java's DateTimeFormatter that dates need."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

Parse = Callable[[str], datetime]
"""Return the time in a text; aware only if the text itself has a zone. Raises ValueError."""

FIELDS: Final = {
    "yyyy": ("year", r"\d{4}"),
    "uuuu": ("year", r"\d{4}"),
    "MM": ("month", r"\d{2}"),
    "M": ("month", r"\d{1,2}"),
    "dd": ("day", r"\d{2}"),
    "d": ("day", r"\d{1,2}"),
    "HH": ("hour", r"\d{2}"),
    "H": ("hour", r"\d{1,2}"),
    "mm": ("minute", r"\d{2}"),
    "m": ("minute", r"\d{1,2}"),
    "ss": ("second", r"\d{2}"),
    "s": ("second", r"\d{1,2}"),
}
"""By the letters of a format, the field of a time and its digits."""
LETTERS: Final = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>.)", re.DOTALL)
"""The parts of a format: quoted text, letters, any other character."""
_DEFAULT: Final = re.compile(
    r"(?P<year>\d{1,4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})(?:\.\d{1,9})?)?(?P<zone>Z)?",
    re.ASCII,
)


def default_parser(text: str) -> datetime:
    """Parse a date, or a date and a time. A `Z` at the end means UTC. Raises ValueError."""
    return _parse(_DEFAULT, text, "a date such as 2013-01-31, or a time such as 2013-01-31 05:00:00")


def parser(formatter: str) -> Parse:
    """Return the parser of a format such as `yyyyMMdd` or `yyyy-MM-dd HH:mm`.

    Text in single quotes stands for itself, as every other character but a letter does. Raises ValueError for
    letters without a meaning here, a field twice, and a format without a year.
    """
    found: list[str] = []
    fields: set[str] = set()
    for part in LETTERS.finditer(formatter):
        letters = part["letters"]
        if letters is None:
            found.append(re.escape(literal(part)))
            continue
        name, digits = field_of(letters, formatter)
        if name in fields:
            raise ValueError(f"the format {formatter!r} has the {name} twice")
        fields.add(name)
        found.append(f"(?P<{name}>{digits})")
    if "year" not in fields:
        raise ValueError(f"the format {formatter!r} has no year. Write it as yyyy")
    pattern = re.compile("".join(found), re.ASCII)
    return lambda text: _parse(pattern, text, f"a time of the format {formatter}")


def literal(part: re.Match[str]) -> str:
    """Return the text that a part of a format without letters stands for."""
    quoted: str | None = part["quoted"]
    return str(part["other"]) if quoted is None else quoted.replace("''", "'") or "'"


def field_of(letters: str, formatter: str) -> tuple[str, str]:
    """Return the field of a time and its digits. Raises ValueError for letters without a meaning."""
    if letters not in FIELDS:
        raise ValueError(
            f"the letters {letters!r} have no meaning in the format {formatter!r}. Use "
            f"{', '.join(FIELDS)}, and put other text in single quotes"
        )
    return FIELDS[letters]


def _parse(pattern: re.Pattern[str], text: str, expected: str) -> datetime:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not {expected}")
    values = {"month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0}
    values |= {name: int(digits) for name, digits in match.groupdict().items() if digits and name != "zone"}
    zone = UTC if match.groupdict().get("zone") else None
    try:
        return datetime(**values, tzinfo=zone)
    except ValueError as error:
        raise ValueError(f"{text!r} is no time of the calendar: {error}") from None
