"""Sentences for problems: the only place that turns a code with its arguments into a text for people.

Each message has three parts: the event, the reason, and the next step with a command that exists. Nothing in
the protocol depends on a sentence, so a text may change at any time.
"""

import re
from collections.abc import Mapping
from itertools import islice
from typing import Final

from sluicegate.coordinator.telemetry import (
    event_messages,
    refusal_messages,
    region_messages,
    stream_messages,
)
from sluicegate.coordinator.telemetry.cause_messages import format_cause
from sluicegate.coordinator.telemetry.message import Message, fill
from sluicegate.coordinator.telemetry.wording import iso_time
from sluicegate.events.causes import CauseCode
from sluicegate.events.problems import Code, Problem

MESSAGES: Final[Mapping[Code, Message]] = {
    **refusal_messages.MESSAGES,
    **region_messages.MESSAGES,
    **stream_messages.MESSAGES,
    **event_messages.MESSAGES,
}

_LISTED: Final = 8
"""Names that a sentence lists; a count stands for the others."""
_SHORT: Final = 8
_LONG: Final = 12
"""Characters; longer incarnation ids are shortened."""
_OF_TIMES: Final = (Code.WATERMARK_IGNORED, Code.WATERMARK_IN_SECONDS)
"""Codes whose first name is a time in Unix milliseconds."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


def format_problem(problem: Problem, stream: str) -> str:
    """Return a problem of a stream as sentences: what happened, why, and what to do."""
    message, arguments = MESSAGES[problem.code], _arguments(problem, stream)
    what, why, remedy = (fill(part, arguments) for part in message)
    return f"{what}: {why}. {remedy}."


def _why(problem: Problem, stream: str) -> str:
    """Return the sentence of the cause; without one, the text from outside."""
    cause, detail = problem.cause, problem.detail.rstrip(". ")
    if cause is None:
        return detail
    if cause.code is CauseCode.EVENT_UNUSABLE and cause.problem is not None and cause.problem in {*Code}:
        code = Code(cause.problem)
        found = Problem(code=code, region=cause.region, names=cause.names, detail=detail)
        return format_problem(found, stream).rstrip(". ")
    return format_cause(cause, detail)


def _as_time(millis: str) -> str:
    """Return Unix milliseconds as a time; as they are if no date has them."""
    return (iso_time(int(millis)) if _NUMBER.fullmatch(millis) else None) or millis


def short_id(incarnation: str) -> str:
    """Return the first characters of a long incarnation id."""
    return incarnation if len(incarnation) <= _LONG else f"{incarnation[:_SHORT]}…"


def listed(names: tuple[str, ...]) -> str:
    """Return names as a list for people; a count stands for those after the first ones."""
    more = len(names) - _LISTED
    shown = ", ".join(islice(names, _LISTED))
    return f"{shown} and {more} more" if more > 0 else shown


def _arguments(problem: Problem, stream: str) -> dict[str, str]:
    """Return the values of the placeholders; those without a value are absent."""
    names = problem.names
    if problem.code in _OF_TIMES and names:
        names = (_as_time(names[0]), *names[1:])
    values = {
        "stream": stream,
        "region": problem.region,
        "incarnation": short_id(problem.incarnation) if problem.incarnation else None,
        "checkpoint": problem.checkpoint,
        "other": problem.other,
        "number": problem.number,
        "next": problem.number + 1 if problem.number is not None else None,
        "event": problem.event,
        "names": listed(names),
        "first": names[0] if names else None,
        "second": names[1] if len(names) > 1 else None,
        "rest": listed(names[1:]),
        "detail": _why(problem, stream),
    }
    return {name: str(value) for name, value in values.items() if value not in (None, "")}
