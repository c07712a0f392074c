"""Completion of a checkpoint by a plain Python driver: the events that count, and the place in the source."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sluicegate.events.models import CheckpointCompleted, Position
from sluicegate.writer_hooks.errors import BadOption, NotOurs
from sluicegate.writer_hooks.result import WriterResult

LONGEST_OFFSETS: Final = 65_536
"""Characters of the source offsets that a completion may carry."""


def completion(
    checkpoint: tuple[str, int],
    results: Sequence[WriterResult],
    *,
    predecessor: Position | None,
    source_offsets: str,
    watermark: int | None,
    listeners: Mapping[str, str],
) -> CheckpointCompleted:
    """Return the body of a completion of a checkpoint, given as (incarnation, number).

    Without a watermark, the highest event time of the rows counts. Raises NotOurs for results of another
    checkpoint, or two of one writer.
    """
    incarnation, number = checkpoint
    for result in results:
        attempt = result.attempt
        if (attempt.incarnation, attempt.checkpoint) != checkpoint:
            raise NotOurs(
                f"checkpoint {number} of {incarnation} was given a result of checkpoint "
                f"{attempt.checkpoint} of {attempt.incarnation}; give the results of its own writers"
            )
    names = sorted(result.attempt.writer for result in results)
    if len({*names}) < len(names):
        raise NotOurs(
            f"checkpoint {number} was given two results of one writer ({', '.join(names)}); give one of "
            "each, or the rows count twice"
        )
    times = [each.written.max_event_time for each in results if each.written.max_event_time is not None]
    return CheckpointCompleted.model_validate(
        {
            "events": tuple(event for result in results for event in result.written.events),
            "predecessor": predecessor,
            "source_digest": _digest(number, results, source_offsets),
            "watermark": watermark if watermark is not None else max(times, default=None),
            "listeners": dict(listeners),
            "source_offsets": source_offsets,
        }
    )


def _digest(number: int, results: Sequence[WriterResult], source_offsets: str) -> str:
    """Return a digest of everything that a repetition of the completion has to have in common with it.

    A checkpoint that is completed twice with other files stalls its region, and is not taken as a replay.
    """
    events = [event for result in results for event in result.written.events]
    return hashlib.sha256(json.dumps([number, events, source_offsets]).encode()).hexdigest()


def offsets_text(source_offsets: Any) -> str:
    """Return source offsets in canonical JSON. Raises BadOption if they do not come back from it as they are.

    A restart compares with what it gets back: a key 0 that comes back as "0" is not found, and its rows are
    read again.
    """
    if source_offsets is None:
        raise BadOption(
            "source_offsets must not be None: it is the place in your source after this checkpoint, and the "
            "only thing that a restart continues from. Give JSON data, such as {} for a source without one"
        )
    try:
        if (change := _changed(source_offsets, "source_offsets")) is not None:
            raise BadOption(f"source_offsets must be JSON data that come back unchanged: {change}")
        text = json.dumps(source_offsets, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadOption(f"source_offsets must be JSON data: {error}") from error
    if len(text) > LONGEST_OFFSETS:
        raise BadOption(
            f"source_offsets have {len(text)} characters as JSON, and {LONGEST_OFFSETS} are the most. Keep "
            "the place in the source elsewhere, and give its name"
        )
    return text


def _changed(value: Any, place: str) -> str | None:
    """Return the first part of a value that JSON changes, with the way out; None if it changes nothing."""
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                return f"the key {key!r} of {place} would come back as text. Use texts as keys"
            if (change := _changed(each, f"{place}[{key!r}]")) is not None:
                return change
        return None
    if isinstance(value, list):
        changes = (_changed(each, f"{place}[{number}]") for number, each in enumerate(value))
        return next((change for change in changes if change is not None), None)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place} is {value}, which JSON does not have. Give a number, or a text"
    if value is None or isinstance(value, str | int | float):
        return None
    way = "a list" if isinstance(value, tuple | set | frozenset) else "a text, a number, a list or a dict"
    return f"{place} is of the type {type(value).__name__}, which JSON does not have. Give {way}"


def parsed_offsets(text: str | None) -> Any:
    """Return published source offsets; text of another kind of driver that is no JSON stays text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
