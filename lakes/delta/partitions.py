"""Values of partition columns: their text in the log, and the folders of data files."""

import datetime
import decimal
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from sluicegate.lakes.delta.schema import Column

_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
_LONGEST_NAME: Final = 255
"""Bytes of the name of a folder, which most file systems allow."""
_LONGEST_FOLDER: Final = 768
"""Bytes of the path of a partition, so that object stores take the paths of its files."""
_DIGEST: Final = 32
"""Characters of a digest."""
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),\s*([0-9]+)\)")
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_PLAIN_DECIMAL: Final = re.compile(r"-?[0-9]{1,38}(?:\.[0-9]{1,38})?")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_LOCAL_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_BITS: Final[Mapping[str, int]] = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def can_partition(kind: str) -> bool:
    """Return True if values of a type have one text, which all readers parse alike."""
    return kind in _CHECKS or kind in _BITS or _DECIMAL.fullmatch(kind) is not None


def partition_text(kind: str, value: Any) -> str | None:
    """Return the text of a value, None for null. Delta has no empty text: it is null, too.

    Raises ValueError for a value without a text.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return _time_text(kind, value)
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    return str(value)


def _time_text(kind: str, value: datetime.datetime) -> str:
    if kind == "timestamp_ntz":
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    in_utc = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)
    return in_utc.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def is_partition_text(column: Column, text: str | None) -> bool:
    """Return True if a text is that of a value of the column, in the form of `partition_text`."""
    kind = column.kind
    if text is None:
        return column.nullable
    if not text or not isinstance(kind, str):
        return False
    if bits := _BITS.get(kind):
        return _WHOLE.fullmatch(text) is not None and -(1 << bits - 1) <= int(text) < 1 << bits - 1
    if match := _DECIMAL.fullmatch(kind):
        return _fits(text, int(match[1]), int(match[2]))
    check = _CHECKS.get(kind)
    return check is not None and check(text)


def partition_folder(columns: Sequence[Column], values: Mapping[str, str | None]) -> str:
    """Return the folder of a partition, relative to the table; empty for a table without partitions.

    `values` are texts by physical name. By the protocol, readers take values from the log alone, but polars
    takes them from the folder. So a value is named by a digest only where its own name would be too long.
    """
    pairs = [(_column_name(column.physical), values[column.physical]) for column in columns]
    folder = "/".join(_folder_name(name, text, _LONGEST_NAME) for name, text in pairs)
    if len(folder) > _LONGEST_FOLDER:
        folder = "/".join(_folder_name(name, text, len(name) + 1 + _DIGEST) for name, text in pairs)
    return folder


def _column_name(physical: str) -> str:
    """Return the name of a column as folders have it, with room for a digest of the value."""
    escaped = _escaped(physical)
    return escaped if len(escaped) + 1 + _DIGEST <= _LONGEST_NAME else _digest(physical)


def _folder_name(name: str, text: str | None, longest: int) -> str:
    if text is None:
        return f"{name}={_NULL_FOLDER}"
    value = _escaped(text)
    # The folder of null is not that of the same text.
    if len(name) + 1 + len(value) > longest or text == _NULL_FOLDER:
        value = _digest(text)
    return f"{name}={value}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


def _escaped(text: str) -> str:
    return quote(text, safe=" ")


def _fits(text: str, precision: int, scale: int) -> bool:
    if not _PLAIN_DECIMAL.fullmatch(text):
        return False
    whole, _, fraction = text.lstrip("-").partition(".")
    return len(fraction) == scale and len(whole.lstrip("0")) <= precision - scale


def _is_day(text: str) -> bool:
    if not _DAY.fullmatch(text):
        return False
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_moment(pattern: re.Pattern[str], text: str) -> bool:
    if not pattern.fullmatch(text):
        return False
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    "string": bool,
    "boolean": lambda text: text in ("true", "false"),
    "date": _is_day,
    "timestamp": lambda text: _is_moment(_TIME, text),
    "timestamp_ntz": lambda text: _is_moment(_LOCAL_TIME, text),
}
