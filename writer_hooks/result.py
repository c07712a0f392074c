"""Result of one writer attempt. A driver completes a checkpoint with the results of its writers."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from sluicegate.events.models import FilesWritten
from sluicegate.writer_hooks.attempt import Written
from sluicegate.writer_hooks.errors import BadOption
from sluicegate.writer_hooks.region import Attempt, Event, Region, file_event

_SHOWN: Final = 200
"""Characters of a malformed text that an error shows."""


@dataclass(frozen=True, slots=True)
class WriterResult:
    """Result of a writer. The files count after the driver has completed the checkpoint with it."""

    attempt: Attempt
    written: Written
    held: tuple[str, ...] = field(default=(), repr=False)
    """Bodies of the events, as JSON, that the driver publishes; empty if the writer has published them."""

    def held_events(self, region: Region) -> list[Event]:
        """Return the events that the driver publishes, with the ids that the completion names."""
        found = []
        for event_id, text in zip(self.written.events if self.held else (), self.held, strict=True):
            envelope, body = file_event(region, self.attempt, FilesWritten.model_validate_json(text))
            found.append(Event(envelope._replace(id=event_id), body))
        return found

    def to_json(self) -> str:
        """Return the result as JSON, for the driver."""
        return json.dumps(
            {"attempt": asdict(self.attempt), "written": asdict(self.written), "held": self.held}
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the result of `to_json`. Raises BadOption."""
        found = read_json(text, {"attempt": dict, "written": dict, "held": list})
        try:
            written = {**found["written"], "events": tuple(found["written"]["events"])}
            return cls(Attempt(**found["attempt"]), Written(**written), tuple(found["held"]))
        except (KeyError, TypeError) as error:
            raise BadOption(f"this is no result of a writer ({error}): {text[:_SHOWN]}") from error


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
