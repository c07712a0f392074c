"""State of the marks of one stream, as JSON in the record of the listener."""

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict


class Period(NamedTuple):
    """Times of the rows of a partition, in milliseconds since the Unix epoch: from start, before end."""

    start: int
    end: int


Values = Mapping[str, str | None]
"""Values of a partition, as the files have them."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class Commit(_Part):
    """The facts of one commit that marks depend on."""

    decision: int
    time: int
    """Time of its notification, in milliseconds since the Unix epoch."""
    watermark: int | None
    """That of the cut: the minimum over the active regions, so a region that fell back holds it back."""
    partial: bool
    """True if an active region stayed at its position."""
    snapshot: int | None = None
    partitions: tuple[dict[str, str | None], ...] | None
    """Those that got files; None: unknown."""
    drained: bool = False
    """True: no commit, but the end of a drain. Nothing more is expected."""


class Open(_Part):
    """A partition that got files, and has no mark for them yet."""

    values: dict[str, str | None]
    period: Period | None
    """None: it has no time, and marks depend on idle time alone."""
    decision: int
    """Newest one that gave it files."""
    since: int
    """Time of the first commit after its last mark."""
    last: int
    """Time of the newest commit that gave it files."""
    late: bool = False
    """True: files came after its period had passed, so a former mark is out of date."""


class Marked(_Part):
    """The newest mark of a partition."""

    decision: int
    """Newest one whose files the mark includes."""
    time: int
    """Time at which it was due: that of the commit, or of the clock."""
    count: int
    """Number of marks since the partition was remembered."""


class Undated(_Part):
    """Partitions that can have no mark, since they have no time."""

    count: int = 0
    """Number of commits and partitions of this kind, repetitions included."""
    examples: dict[str, str] = {}
    """By partition, the reason; a few of the newest."""


class Progress(_Part):
    """State of the marks of one stream."""

    decision: int = 0
    """Newest decision that was seen."""
    watermark: int | None = None
    partial: bool = False
    """True if the newest commit left a region at its position."""
    snapshot: int | None = None
    open: dict[str, Open] = {}
    """By partition (`name_of`)."""
    done: dict[str, Marked] = {}
    """By partition, the newest marks; the oldest are forgotten first."""
    undated: Undated = Undated()
    unknown: tuple[int, ...] = ()
    """The newest decisions whose partitions are unknown, so their marks may be missing."""


def name_of(values: Values) -> str:
    """Return a partition as people and Hive write it, `dt=2013-01-01/hour=05`; empty without partitions.

    Each partition has one name: the characters that separate are escaped, and a null is without `=`.
    """
    return "/".join(
        _escaped(name) if value is None else f"{_escaped(name)}={_escaped(value)}"
        for name, value in values.items()
    )


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F").replace("=", "%3D")
