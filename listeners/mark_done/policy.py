"""Decision that a partition is done: a pure fold of commits and of the time.

With the trigger `watermark`, a partition is done when the watermark of a cut has passed its end plus a delay.
With `processing-time`, it is done when the clock has passed its end, and its newest files, by an idle time.

A commit that gives files to a partition with a mark opens it again, and it is marked again by the same rule.
So nothing has to be remembered of a partition with a mark, and its mark may be forgotten: that loses no mark.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

# State of the marks of one stream, as JSON in the record of the listener.


class Period(NamedTuple):
    """Times of the rows of a partition, in milliseconds since the Unix epoch: from start, before end."""

    start: int
    end: int


Values = Mapping[str, str | None]
"""Values of a partition, as the files have them."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


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


REMEMBERED: Final = 256
"""Number of newest marks in the state. They number repeated marks, and show them to people."""
EXAMPLES: Final = 8
"""Number of examples of each problem in the state."""

Trigger = Literal["watermark", "processing-time"]
Reason = Literal["watermark", "idle", "drained"]
Resolve = Callable[[Values], Period | None]
"""Return the period of a partition; None: there is none, and idle time alone counts. Raises ValueError."""


class Terms(NamedTuple):
    """Settings of the decision."""

    trigger: Trigger
    delay: int
    """Milliseconds. By watermark: after the end of the partition. By processing time: the idle time."""
    settle: int = 0
    """Milliseconds without further files after which a late partition is marked again, by the clock."""
    hold: bool = True
    """By processing time: True if nothing is marked after a commit that left a region behind."""
    drained: bool = False
    """True if a drain marks everything that is open."""
    limit: int = 10_000
    """Most open partitions."""


class Mark(NamedTuple):
    """A partition is done, as of a decision."""

    partition: str
    values: Values
    period: Period | None
    decision: int
    """Newest one that gave it files. With the partition, it identifies the mark."""
    snapshot: int | None
    """Of the newest commit that was seen; it includes all files of the partition."""
    watermark: int | None
    time: int
    """Time at which it was due, in milliseconds since the Unix epoch."""
    reason: Reason
    late: bool
    """True if the partition got files after its period had passed: readers of the former mark read again."""
    number: int
    """1 for the first mark, as far as the state remembers."""

    @property
    def key(self) -> str:
        """Return the identity: the same after a crash, another one after further files."""
        return f"{self.partition}@{self.decision}"


class TooManyOpen(Exception):
    """More partitions are open than the settings allow. The text has the way out."""


class Decided(NamedTuple):
    """The next state, and the marks that lead to it."""

    progress: Progress
    marks: tuple[Mark, ...] = ()


def commit(progress: Progress, seen: Commit, resolve: Resolve, terms: Terms) -> Decided:
    """Fold one commit. A repetition has no effect. Raises TooManyOpen."""
    if seen.decision <= progress.decision:
        return Decided(progress)
    touched, undated = _touched(progress, seen, resolve, terms)
    unknown = progress.unknown
    if seen.partitions is None:
        unknown = (*unknown, seen.decision)[-EXAMPLES:]
    if len(touched) > terms.limit:
        raise TooManyOpen(
            f"{len(touched)} partitions are open, and max_open_partitions is {terms.limit}. Raise it, "
            "or correct the time of the partitions: open ones end after the watermark"
        )
    changed = progress.model_copy(
        update={
            "decision": seen.decision,
            "watermark": _highest(progress.watermark, seen.watermark),
            "partial": seen.partial,
            "snapshot": seen.snapshot,
            "open": touched,
            "undated": undated,
            "unknown": unknown,
        }
    )
    # By processing time, only the clock decides: a commit is no proof that the time has come.
    return elapse(changed, seen.time, terms) if terms.trigger == "watermark" else Decided(changed)


def drain(progress: Progress, now: int, terms: Terms) -> Decided:
    """Mark everything that is open, after a drain: all regions have ended, so nothing more is expected."""
    due = sorted(progress.open) if terms.drained else []
    return _close(progress, due, now, "drained")


def wake(progress: Progress, terms: Terms) -> int | None:
    """Return the next time at which a partition may be due by the clock alone; None if there is none."""
    if terms.trigger == "watermark":
        times = [
            each.last + terms.settle + 1
            for each in progress.open.values()
            if each.late and _passed(progress.watermark, each, terms)
        ]
    elif terms.hold and progress.partial:
        times = []
    else:
        times = [_idle_from(each) + terms.delay + 1 for each in progress.open.values()]
    return min(times, default=None)


def _touched(
    progress: Progress, seen: Commit, resolve: Resolve, terms: Terms
) -> tuple[dict[str, Open], Undated]:
    """Return the open partitions with those of a commit, and those that have no time."""
    found = dict(progress.open)
    undated = progress.undated
    for values in seen.partitions or ():
        name = name_of(values)
        before = found.get(name)
        try:
            period = before.period if before is not None else resolve(values)
        except ValueError as error:
            # It never blocks the others.
            undated = _with_example(undated, name, str(error))
            continue
        found[name] = Open(
            values=dict(values),
            period=period,
            decision=seen.decision,
            since=before.since if before is not None else seen.time,
            last=seen.time,
            late=before.late if before is not None else _is_late(progress, name, period, terms),
        )
    return found, undated


def _with_example(undated: Undated, name: str, reason: str) -> Undated:
    others = [(key, value) for key, value in undated.examples.items() if key != name]
    return Undated(count=undated.count + 1, examples=dict([*others, (name, reason)][-EXAMPLES:]))


def _is_late(progress: Progress, name: str, period: Period | None, terms: Terms) -> bool:
    """True if a partition that opens has a mark already, or could have had one."""
    if name in progress.done:
        return True
    watermark = progress.watermark
    by_watermark = terms.trigger == "watermark" and watermark is not None
    return (
        by_watermark and period is not None and watermark is not None and watermark > period.end + terms.delay
    )


def elapse(progress: Progress, now: int, terms: Terms) -> Decided:
    """Mark the partitions for which the time has come."""
    reason: Reason = "watermark" if terms.trigger == "watermark" else "idle"
    due = [name for name, each in progress.open.items() if _is_due(progress, each, now, terms)]
    return _close(progress, due, now, reason)


def _is_due(progress: Progress, each: Open, now: int, terms: Terms) -> bool:
    if terms.trigger == "watermark":
        settled = not each.late or terms.settle == 0 or now > each.last + terms.settle
        return settled and _passed(progress.watermark, each, terms)
    held = terms.hold and progress.partial
    return not held and now > _idle_from(each) + terms.delay


def _passed(watermark: int | None, each: Open, terms: Terms) -> bool:
    # Strictly, as in Paimon and Flink: engines differ about rows of exactly the watermark.
    return watermark is not None and each.period is not None and watermark > each.period.end + terms.delay


def _idle_from(each: Open) -> int:
    return each.last if each.period is None else max(each.last, each.period.end)


def _close(progress: Progress, due: list[str], now: int, reason: Reason) -> Decided:
    if not due:
        return Decided(progress)
    ordered = sorted(due, key=lambda name: (_end(progress.open[name]), name))
    done = dict(progress.done)
    marks: list[Mark] = []
    for name in ordered:
        each = progress.open[name]
        before = done.pop(name, None)
        number = before.count + 1 if before is not None else 1
        done[name] = Marked(decision=each.decision, time=now, count=number)
        marks.append(
            Mark(
                partition=name,
                values=each.values,
                period=each.period,
                decision=each.decision,
                snapshot=progress.snapshot,
                watermark=progress.watermark,
                time=now,
                reason=reason,
                late=each.late,
                number=number,
            )
        )
    left = {name: each for name, each in progress.open.items() if name not in set(due)}
    kept = dict(list(done.items())[-REMEMBERED:])
    return Decided(progress.model_copy(update={"open": left, "done": kept}), tuple(marks))


def _end(each: Open) -> int:
    return each.period.end if each.period is not None else each.last


def _highest(before: int | None, now: int | None) -> int | None:
    known = [each for each in (before, now) if each is not None]
    return max(known, default=None)
