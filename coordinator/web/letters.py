"""The newest dead letters, made from the messages of their topic."""

from typing import Final

from aiokafka import ConsumerRecord

from sluicegate.coordinator.web.model import DeadLetter
from sluicegate.events.dead_letters import Mark, read_letter

KEPT: Final = 50
LONGEST: Final = 2_000
"""Characters of a reason that are kept."""


class Letters:
    """The newest dead letters, each once."""

    def __init__(self) -> None:
        self._found: dict[str, DeadLetter] = {}

    def add(self, record: ConsumerRecord) -> DeadLetter | None:
        """Take a message in; return the letter that is new or was dealt with, or None."""
        read = read_letter(record)
        if isinstance(read, Mark):
            known = self._found.get(read.letter)
            if known is None:
                return None
            self._found[read.letter] = known.model_copy(update={"dealt": read.how})
            return self._found[read.letter]
        # Each coordinator that meets the message may send a copy.
        if read is None or read[0] in self._found:
            return None
        id_, content = read
        named = dict(content.headers).get("ce_stream")
        place = content.place
        self._found[id_] = DeadLetter(
            id=id_,
            offset=record.offset,
            time=record.timestamp,
            stream=named.decode(errors="replace") if named is not None else None,
            code=content.code,
            reason=content.reason[:LONGEST],
            source=f"{place.topic}, partition {place.partition}, offset {place.offset}",
        )
        if len(self._found) > KEPT:
            del self._found[next(iter(self._found))]
        return self._found[id_]

    def all(self) -> tuple[DeadLetter, ...]:
        """Return the letters, the oldest first."""
        return tuple(self._found.values())
