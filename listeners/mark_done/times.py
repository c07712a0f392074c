"""Times of partitions, from their values: by a pattern, or by a transform that has the time itself."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from sluicegate.lakes.partition_layout import PartitionField
from sluicegate.listeners.intervals import DAY, HOUR, MONTH, YEAR, Interval, bounds
from sluicegate.listeners.mark_done.formats import Parse
from sluicegate.listeners.mark_done.progress import Period

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
