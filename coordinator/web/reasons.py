"""Reasons of the streams on the page: conditions, silent regions, and dead letters that nobody dealt with."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sluicegate.coordinator.telemetry import reasons
from sluicegate.coordinator.telemetry.overview import is_read, silent_regions
from sluicegate.coordinator.telemetry.reasons import Unfinished, in_order
from sluicegate.coordinator.web.model import DeadLetter, Reason
from sluicegate.coordinator.web.outages import Silence
from sluicegate.state_store import StreamView

if TYPE_CHECKING:
    from sluicegate.coordinator.core.machine import StreamMachine

WAITS_FOR_KAFKA: Final = (
    "Stream {stream} waits for Kafka, which does not answer its coordinator. Nothing is to be done here: it "
    "continues by itself when Kafka answers. The top of the page has the address and the way out."
)


def silences_of(stream: str, machine: "StreamMachine", as_of: int) -> dict[str, reasons.Reason]:
    """Return the reasons of the silent regions of an own stream, by region."""
    if not is_read(machine.conditions()):
        return {}
    heard, intervals = machine.activity.heard, machine.activity.intervals
    return {
        name: reasons.silence(stream, name, heard[name], intervals[name], _left(machine, name))
        for name in silent_regions(machine.replica.state, heard, intervals, as_of)
    }


def waits_for_kafka(stream: str, away: Silence) -> reasons.Reason:
    """Return the reason of a stream whose coordinator does not reach Kafka."""
    return reasons.Reason("retry", "kafka-away", WAITS_FOR_KAFKA.format(stream=stream), since=away.since)


def reasons_of(
    view: StreamView, more: Iterable[reasons.Reason], letters: Sequence[DeadLetter]
) -> tuple[Reason, ...]:
    """Return why a stream does not progress, the gravest first.

    `more` are reasons in addition to the conditions of its view; `letters` are its open dead letters.
    """
    found = in_order([*more, *_conditions(view), *_letters(view.stream, letters)])
    return tuple(Reason.model_validate(each._asdict()) for each in found)


def open_letters(letters: Iterable[DeadLetter]) -> dict[str, list[DeadLetter]]:
    """Return the letters that nobody has dealt with, by the stream that they name."""
    found: dict[str, list[DeadLetter]] = {}
    for each in letters:
        if each.stream is not None and each.dealt is None:
            found.setdefault(each.stream, []).append(each)
    return found


def _conditions(view: StreamView) -> Iterator[reasons.Reason]:
    for each in view.conditions:
        yield reasons.Reason(each.kind, each.code, each.message, each.region)


def _letters(stream: str, letters: Sequence[DeadLetter]) -> Iterator[reasons.Reason]:
    if letters:
        newest = max(letters, key=lambda each: each.offset)
        yield reasons.letters(stream, len(letters), newest.model_dump())


def _left(machine: "StreamMachine", region: str) -> Unfinished | None:
    """Return the newest checkpoint of a region with files and without a completion; None if there is none."""
    pending = machine.replica.log.pending.get(region)
    left = [each for each in pending.checkpoints.items() if each[1].body is None] if pending else []
    if not left:
        return None
    number, checkpoint = max(left, key=lambda each: each[0])
    return Unfinished(number, len(checkpoint.parts))
