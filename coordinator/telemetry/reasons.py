"""Reasons why a stream does not progress, in the one order of the live page and of `sluicegate status`."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from sluicegate.coordinator.telemetry.message import Message, fill
from sluicegate.coordinator.telemetry.wording import duration, iso_time

RANKS: Final[Mapping[str, int]] = {
    "stall": 0,
    "refusal": 1,
    "silent": 2,
    "retry": 3,
    "letter": 4,
    "pause": 5,
    "wait": 6,
}
"""Kinds of reasons; the gravest has rank 0."""

SILENT: Final = Message(
    "Region {region} of stream {stream} is silent",
    "its last event is of {heard}, and a heartbeat is due every {interval}. Its query has ended, or its host "
    "does not reach Kafka[. It left checkpoint {checkpoint} unfinished: {events} published, no completion]",
    "Start its query again. To stop waiting for it: `sluicegate region remove --stream {stream} --region "
    "{region}`",
)
LETTERS: Final = Message(
    "Stream {stream} has {count} that could not be used",
    "the newest is at {source}. {reason}",
    "Look at it with `sluicegate dead-letters show --offset {offset}`. Correct the program that sent it. If "
    "the message can be used then, send it again with `sluicegate dead-letters retry --offset {offset}`; "
    "else give it up with `sluicegate dead-letters drop --offset {offset}`",
)


class Reason(NamedTuple):
    """One reason."""

    kind: str
    code: str
    message: str
    region: str | None = None
    """None: it concerns the whole stream."""
    since: int | None = None
    """Time of its beginning in Unix milliseconds; None: not known."""


class Unfinished(NamedTuple):
    """The newest checkpoint of a region whose files are published, and that nobody has completed."""

    checkpoint: int
    events: int


def in_order(reasons: Iterable[Reason]) -> list[Reason]:
    """Return the reasons, the gravest first; those of one kind keep their order."""
    return sorted(reasons, key=lambda each: RANKS.get(each.kind, RANKS["retry"]))


def silence(stream: str, region: str, heard: int, interval: int, left: Unfinished | None = None) -> Reason:
    """Return the reason of a region whose heartbeats are missing; times in Unix milliseconds.

    `left` is a checkpoint that its driver has not completed.
    """
    arguments = {
        "stream": stream,
        "region": region,
        "heard": iso_time(heard - heard % 1000) or f"{heard} ms",
        "interval": duration(interval / 1000),
    }
    if left is not None:
        events = f"{left.events} {'event' if left.events == 1 else 'events'}"
        arguments |= {"checkpoint": str(left.checkpoint), "events": events}
    return Reason("silent", "silent", _sentences(SILENT, arguments), region, heard)


def letters(stream: str, count: int, newest: Mapping[str, Any]) -> Reason:
    """Return the reason of dead letters that nobody has dealt with; `newest` has the facts of one."""
    arguments = {
        "stream": stream,
        "count": f"{count} {'message' if count == 1 else 'messages'}",
        "source": str(newest["source"]),
        "offset": str(newest["offset"]),
        # Its remedy is for its sender, and would be there twice.
        "reason": str(newest["reason"]).partition(". ")[0].rstrip("."),
    }
    return Reason("letter", str(newest["code"]), _sentences(LETTERS, arguments), since=newest["time"])


def _sentences(message: Message, arguments: Mapping[str, str]) -> str:
    what, why, remedy = (fill(part, arguments) for part in message)
    return f"{what}: {why}. {remedy}."
