"""Result of one writer attempt. A driver completes a checkpoint with the results of its writers."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from sluicegate.events.codec import Flaw, read_attributes, read_files
from sluicegate.events.encoding import Message
from sluicegate.events.envelope import FILES_WRITTEN, key_of
from sluicegate.events.models import FilesWritten
from sluicegate.writer_hooks.attempt import Written
from sluicegate.writer_hooks.errors import BadOption
from sluicegate.writer_hooks.region import Attempt

_SHOWN: Final = 200
"""Characters of a malformed text that an error shows."""


@dataclass(frozen=True, slots=True)
class WriterResult:
    """Result of a writer. The files count after the driver has completed the checkpoint with it."""

    attempt: Attempt
    written: Written
    held: tuple[Message, ...] = field(default=(), repr=False)
    """The events, for the driver to publish; empty if the writer has published them."""

    def to_json(self) -> str:
        """Return the result as JSON, for the driver."""
        held = [
            {"headers": {name: value.decode() for name, value in headers}, "body": value.decode()}
            for _, value, headers in self.held
        ]
        return json.dumps({"attempt": asdict(self.attempt), "written": asdict(self.written), "held": held})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the result of `to_json`. Raises BadOption."""
        found = read_json(text, {"attempt": dict, "written": dict, "held": list})
        try:
            attempt = Attempt(**found["attempt"])
            written = Written(**{**found["written"], "events": tuple(found["written"]["events"])})
            ids = written.events if found["held"] else ()
            pairs = zip(ids, found["held"], strict=True)
            held = tuple(_message(attempt, event, each) for event, each in pairs)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadOption(f"this is no result of a writer ({error}): {text[:_SHOWN]}") from error
        return cls(attempt, written, held)


def _message(attempt: Attempt, name: str, found: Mapping[str, Any]) -> Message:
    """Return the event of an attempt with this id. Raises ValueError unless it is that."""
    headers = [(name, value.encode()) for name, value in found["headers"].items()]
    body = found["body"].encode()
    event = read_attributes(headers)
    if isinstance(event, Flaw) or event.type is not FILES_WRITTEN:
        raise ValueError("an event is none of files")
    if not isinstance(read_files(event, body), FilesWritten):
        raise ValueError("the body of an event is malformed")  # noqa: TRY004
    place = (event.id, event.incarnation, event.checkpoint, event.writer, event.attempt)
    if place != (name, attempt.incarnation, attempt.checkpoint, attempt.writer, attempt.id):
        raise ValueError("an event is one of another attempt")
    return Message(key_of(event.stream, event.region, event.checkpoint), body, headers)


def read_json(text: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return a JSON object that has fields of these types. Raises BadOption."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOption(f"this is no JSON ({error}): {text[:_SHOWN]}") from error
    given = found if isinstance(found, dict) else {}
    wrong = [name for name, kind in kinds.items() if not isinstance(given.get(name), kind)]
    if wrong:
        raise BadOption(f"this JSON lacks {', '.join(wrong)}, or has another type there: {text[:_SHOWN]}")
    return given
