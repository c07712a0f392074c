"""Times of partitions, from their values: by a pattern, or by a transform of the table."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from sluicegate.lakes.capabilities import PartitionField
from sluicegate.listeners.intervals import DAY, HOUR, MONTH, YEAR, Interval, bounds
from sluicegate.listeners.mark_done.policy import Period

# Patterns, in the letters of Java's DateTimeFormatter that dates need.

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


# Times of partitions, from their values: by a pattern, or by a transform that has the time itself.

_TRANSFORMS: Final[Mapping[str, tuple[Interval, re.Pattern[str]]]] = {
    "year": (YEAR, re.compile(r"(\d{4})", re.ASCII)),
    "month": (MONTH, re.compile(r"(\d{4})-(\d{2})", re.ASCII)),
    "day": (DAY, re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)),
    "hour": (HOUR, re.compile(r"(\d{4})-(\d{2})-(\d{2})-(\d{2})", re.ASCII)),
}
_FIRST: Final = (1, 1, 1, 0)
"""Year, month, day and hour at which a longer part begins."""
_DEFAULT_NAMES: Final = ("__DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__")
"""Names of folders for null. Some writers give them as values."""


class Rule(NamedTuple):
    """The way from the values of a partition to its time."""

    pattern: str | None
    """Text with `$column` for a value; None: the only column, or the transform."""
    parse: Parse
    interval: Interval | None
    """Length of a partition; a transform has its own."""
    zone: tzinfo
    field: str | None = None
    """Field that has the time; None: the only one that can have it."""


def period_of(values: Mapping[str, str | None], fields: Mapping[str, PartitionField], rule: Rule) -> Period:
    """Return the period of a partition. Raises ValueError with the reason if it has none."""
    if rule.pattern is not None:
        return _dated(_filled(rule.pattern, values), rule)
    name = rule.field if rule.field is not None else _only(values, fields)
    value = _value(values, name)
    field = fields.get(name, PartitionField(name, "identity"))
    if field.kind == "opaque":
        raise ValueError(f"the partition field {name} has no time")
    if field.kind == "days":
        return Period(*bounds(_from_days(name, value), rule.interval or DAY, rule.zone))
    return _dated(value, rule) if field.kind == "identity" else _transformed(field, value, rule.zone)


def _only(values: Mapping[str, str | None], fields: Mapping[str, PartitionField]) -> str:
    """Return the field that has the time: the transform of a time, else the only column."""
    known = [fields.get(name, PartitionField(name, "identity")) for name in values]
    timed = [each.name for each in known if each.kind not in ("identity", "opaque")]
    found = timed or [each.name for each in known if each.kind == "identity"]
    if len(found) != 1:
        names = ", ".join(values) or "none"
        raise ValueError(f"the partition fields ({names}) leave open which one has the time")
    return found[0]


def _value(values: Mapping[str, str | None], name: str) -> str:
    if name not in values:
        raise ValueError(f"the partition has no field {name}")
    value = values[name]
    if value is None or value in _DEFAULT_NAMES:
        raise ValueError(f"the partition value {name} is null")
    return value


def _filled(pattern: str, values: Mapping[str, str | None]) -> str:
    return "".join(part if name is None else _value(values, name) for part, name in tokens(pattern, values))


def tokens(pattern: str, names: Mapping[str, object]) -> list[tuple[str, str | None]]:
    """Return the parts of a pattern: text, or the name of a column. The longest name that fits counts.

    Raises ValueError if no column follows a `$`.
    """
    found: list[tuple[str, str | None]] = []
    rest = pattern
    while "$" in rest:
        text, _, rest = rest.partition("$")
        found.append((text, None))
        fitting = [name for name in names if rest.startswith(name)]
        if not fitting:
            known = ", ".join(names) or "none"
            raise ValueError(
                f"the pattern {pattern!r} names a column that the partition lacks; it has {known}"
            )
        name = max(fitting, key=len)
        found.append((name, name))
        rest = rest[len(name) :]
    return [*found, (rest, None)]


def _from_days(name: str, text: str) -> datetime:
    try:
        return datetime(1970, 1, 1) + timedelta(days=int(text))
    except (ValueError, OverflowError):
        raise ValueError(f"the partition value {name} is {text!r}, which is no number of days") from None


def _dated(text: str, rule: Rule) -> Period:
    if rule.interval is None:
        raise ValueError("the length of a partition is not set")
    return Period(*bounds(rule.parse(text), rule.interval, rule.zone))


def _transformed(field: PartitionField, text: str, zone: tzinfo) -> Period:
    interval, shape = _TRANSFORMS[field.kind]
    match = shape.fullmatch(text)
    if match is None:
        raise ValueError(
            f"the partition value {field.name} is {text!r}, which is no {field.kind} of the years 1 to 9999"
        )
    numbers = [int(each) for each in match.groups()]
    year, month, day, hour = [*numbers, *_FIRST[len(numbers) :]]
    try:
        start = datetime(year, month, day, hour)
    except ValueError as error:
        raise ValueError(f"{text!r} is no {field.kind} of the calendar: {error}") from None
    return Period(*bounds(start, interval, UTC if field.zoned else zone))
