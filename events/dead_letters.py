"""Dead letters on the wire: the original message with five headers appended.

The appended headers are always the last ones. Their position, not their name, identifies them, because a
header of the original message may have any name.
"""

import hashlib
from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

from sluicegate.events.problems import Code

LETTER_CODES: Final = (
    *(Code.NO_EVENT, Code.SPEC_VERSION, Code.SOURCE, Code.CONTENT_TYPE),
    *(Code.CONTRADICTION, Code.UNKNOWN_TYPE, Code.MALFORMED_ATTRIBUTE, Code.MISSING_ATTRIBUTE),
    *(
        Code.MALFORMED_BODY,
        Code.UNKNOWN_STREAM,
        Code.WRONG_PARTITION,
        Code.SIGNATURE,
        Code.UNDECODABLE,
        Code.NOT_LIVE,
    ),
)
"""Codes of the problems for which a message is put aside."""
ID_HEADER: Final = "sluicegate-id"
CODE_HEADER: Final = "sluicegate-code"
REASON_HEADER: Final = "sluicegate-reason"
SOURCE_HEADER: Final = "sluicegate-source"
TIME_HEADER: Final = "sluicegate-time"
"""Append time of the original message, in milliseconds. The letter's own record has the time when it was
sent."""
LETTER_HEADER: Final = "sluicegate-letter"
"""In a mark left by an operator: id of the letter that was handled."""
DEALT_HEADER: Final = "sluicegate-dealt-with"
"""In a mark left by an operator: action that handled the letter."""
TOO_LARGE: Final = b"too large for a dead letter; see where it stands"

_OURS: Final = (ID_HEADER, CODE_HEADER, REASON_HEADER, SOURCE_HEADER, TIME_HEADER)
_MARK: Final = (LETTER_HEADER, DEALT_HEADER, REASON_HEADER, SOURCE_HEADER)
_PER_HEADER: Final = 20
"""Upper bound, in bytes, of a header's overhead in addition to its name and value."""
_KEPT_HEADERS: Final = 16 << 10
"""Bytes of original headers that a letter keeps if its message is too large."""

Headers = tuple[tuple[str, bytes | None], ...]


class Place(NamedTuple):
    """Position of a message in Kafka, with its append time."""

    topic: str
    partition: int
    offset: int
    time: int
    """Append time in milliseconds. It distinguishes equal offsets of a topic that was deleted and created
    again."""


class Letter(NamedTuple):
    """A message that was put aside, with the reason."""

    place: Place
    code: str
    """Code of the problem, see `events.problems`."""
    reason: str
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def id(self) -> str:
        """Deterministic id: every copy of this letter has the same one, whichever coordinator sends it."""
        topic, partition, offset, time = self.place
        return hashlib.sha256(f"{topic}/{partition}/{offset}/{time}/{self.code}".encode()).hexdigest()[:32]

    @property
    def size(self) -> int:
        """Upper bound of the message size in bytes."""
        # 400 bytes cover the rest of the appended headers: names, framing, id, code, position and time.
        ours = len(self.reason.encode()) + len(self.place.topic) + 400
        return len(self.key or b"") + len(self.value or b"") + _size_of(self.headers) + ours

    def message(self) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        """Return key, value and headers, ready to be produced."""
        topic, partition, offset, time = self.place
        source = f"{topic}/{partition}/{offset}"
        told = (self.id, self.code, self.reason, source, str(time))
        ours = [(name, text.encode()) for name, text in zip(_OURS, told, strict=True)]
        # The client refuses a message that has neither key nor value.
        value = b"" if self.key is None and self.value is None else self.value
        return self.key, value, [*self.headers, *ours]

    def shortened(self) -> "Letter":
        """Return the letter without key and value, and with at most 16 KiB of headers.

        The original message stays in its topic, and the letter contains its position.
        """
        kept: list[tuple[str, bytes | None]] = []
        room = _KEPT_HEADERS
        for header in self.headers:
            if (size := _size_of((header,))) <= room:
                kept.append(header)
                room -= size
        return self._replace(key=None, value=TOO_LARGE, headers=tuple(kept))


class Mark(NamedTuple):
    """Record that an operator handled a letter."""

    letter: str
    how: str


def _size_of(headers: Headers) -> int:
    # Four bytes is the most that UTF-8 needs for one character.
    return sum(4 * len(name) + len(value or b"") + _PER_HEADER for name, value in headers)


def mark_headers(letter: str, how: str, place: Place) -> list[tuple[str, bytes]]:
    """Return the headers of a mark. A mark has no body."""
    told = (letter, how, f"{how} by the operator", f"{place.topic}/{place.partition}/{place.offset}")
    return [(name, text.encode()) for name, text in zip(_MARK, told, strict=True)]


def read_letter(record: ConsumerRecord) -> "tuple[str, Letter] | Mark | None":
    """Read a record of the dead-letter topic: a letter with its id, a mark, or None for anything else."""
    headers = tuple(record.headers)
    names = tuple(name for name, _ in headers[-len(_OURS) :])
    # A letter has at least five headers, so a record with exactly these four is a mark.
    if names == _MARK and len(headers) == len(_MARK):
        return Mark(_text(headers[0][1]), _text(headers[1][1]))
    if names != _OURS:
        return None
    id_, code, reason, source, time = (_text(value) for _, value in headers[-len(_OURS) :])
    topic, partition, offset = (*source.rsplit("/", 2), "", "")[:3]
    try:
        place = Place(topic, int(partition), int(offset), int(time))
    except ValueError:
        return None
    return id_, Letter(place, code, reason, record.key, record.value, headers[: -len(_OURS)])


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode(errors="replace")
