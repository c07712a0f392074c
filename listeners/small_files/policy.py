"""Count of small files by partition: a pure fold of commits and of the time that makes hints.

A partition gets a hint when commits have given it enough small files, and when it got some and then none for
a time. The hint ends its count, and the next small file begins another one. The state has a limit: the
partition that has waited longest leaves first, with its hint.
"""

import json
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from sluicegate.listeners.port import State

FEWEST: Final = 2
"""Small files that a hint has at least: one file alone cannot be compacted."""
LONGEST: Final = 1 << 20
"""Characters of the values of all partitions that are counted. A record in Kafka has a limit."""
EXAMPLES: Final = 8
"""Number of commits with unknown sizes that the state remembers."""

Reason = Literal["files", "quiet", "room"]


class Terms(NamedTuple):
    """Settings of the decision."""

    smaller_than: int
    """Bytes, a power of two."""
    files: int
    quiet: int
    """Milliseconds without small files; 0: time causes no hint."""
    partitions: int
    """Most partitions that are counted."""


class Part(NamedTuple):
    """Small files that a commit gave to one partition."""

    values: Mapping[str, str | None]
    files: int
    bytes: int


class Seen(NamedTuple):
    """The facts of one commit that hints depend on."""

    decision: int
    time: int
    """Time of its notification, in milliseconds since the Unix epoch."""
    snapshot: int | None
    parts: tuple[Part, ...] | None
    """Those with small files; None: unknown."""


class Counted(BaseModel):
    """Small files of a partition since its last hint."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    files: int
    bytes: int
    since: int
    """First decision that gave it small files."""
    decision: int
    """Newest one."""
    last: int
    """Time of that commit, in milliseconds since the Unix epoch."""


class Counts(State):
    """State of the hints of one stream."""

    decision: int = 0
    """Newest decision that was seen."""
    snapshot: int | None = None
    partitions: dict[str, Counted] = Field(default_factory=dict)
    """By the values as JSON; the one with the newest small files is the last."""
    unknown: tuple[int, ...] = ()
    """The newest decisions whose sizes are unknown, so their files are not counted."""


class Hint(NamedTuple):
    """A partition has small files."""

    values: Mapping[str, str | None]
    smaller_than: int
    files: int
    bytes: int
    since: int
    decision: int
    snapshot: int | None
    """Of the newest commit that was seen; it has all these files."""
    reason: Reason

    @property
    def key(self) -> str:
        """Return the identity: the same after a crash, another one after further files."""
        return f"{json.dumps(self.values)}@{self.since}-{self.decision}<{self.smaller_than}"


class Decided(NamedTuple):
    """The next state, and the hints that lead to it."""

    counts: Counts
    hints: tuple[Hint, ...] = ()


def commit(counts: Counts, seen: Seen, terms: Terms) -> Decided:
    """Fold one commit. A repetition has no effect."""
    if seen.decision <= counts.decision:
        return Decided(counts)
    partitions = dict(counts.partitions)
    for part in seen.parts or ():
        text = json.dumps(part.values)
        before = partitions.pop(text, None)
        partitions[text] = Counted(
            files=part.files + (before.files if before is not None else 0),
            bytes=part.bytes + (before.bytes if before is not None else 0),
            since=before.since if before is not None else seen.decision,
            decision=seen.decision,
            last=seen.time,
        )
    unknown = counts.unknown if seen.parts is not None else (*counts.unknown, seen.decision)[-EXAMPLES:]
    update = {
        "decision": seen.decision,
        "snapshot": seen.snapshot,
        "partitions": partitions,
        "unknown": unknown,
    }
    enough = [text for text, each in partitions.items() if each.files >= terms.files]
    counted = _close(counts.model_copy(update=update), enough, "files", terms)
    left = _close(counted.counts, _without_room(counted.counts, terms), "room", terms)
    return Decided(left.counts, (*counted.hints, *left.hints))


def elapse(counts: Counts, now: int, terms: Terms) -> Decided:
    """Make the hints for which the time has come."""
    if not terms.quiet:
        return Decided(counts)
    return _close(counts, [text for text, at in _times(counts, terms) if now >= at], "quiet", terms)


def wake(counts: Counts, terms: Terms) -> int | None:
    """Return the next time at which a partition gets a hint by the clock; None if there is none."""
    return min((at for _, at in _times(counts, terms)), default=None) if terms.quiet else None


def _times(counts: Counts, terms: Terms) -> list[tuple[str, int]]:
    """Return the partitions that have enough files for a hint, with the time at which they are quiet."""
    return [
        (text, each.last + terms.quiet) for text, each in counts.partitions.items() if each.files >= FEWEST
    ]


def _without_room(counts: Counts, terms: Terms) -> list[str]:
    """Return the partitions that the state has no room for: those that have waited longest."""
    room, left = terms.partitions, LONGEST
    kept = 0
    for text in reversed(counts.partitions):
        left -= len(text)
        if kept == room or left < 0:
            break
        kept += 1
    return list(counts.partitions)[: len(counts.partitions) - kept]


def _close(counts: Counts, chosen: list[str], reason: Reason, terms: Terms) -> Decided:
    """End the counts of partitions, and make their hints. One file alone has none."""
    if not chosen:
        return Decided(counts)
    left = dict(counts.partitions)
    closed = [(text, left.pop(text)) for text in chosen]
    hints = tuple(
        Hint(
            values=json.loads(text),
            smaller_than=terms.smaller_than,
            files=each.files,
            bytes=each.bytes,
            since=each.since,
            decision=each.decision,
            snapshot=counts.snapshot,
            reason=reason,
        )
        for text, each in closed
        if each.files >= FEWEST
    )
    return Decided(counts.model_copy(update={"partitions": left}), hints)
