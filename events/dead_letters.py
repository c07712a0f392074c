"""Dead letters on the wire: the message as it came, then five headers of ours, always the last ones.

The place of our headers tells them from those of the message, which may have any name.
"""

import hashlib
from enum import StrEnum
from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

ID_HEADER: Final = "sluicegate-id"
CODE_HEADER: Final = "sluicegate-code"
REASON_HEADER: Final = "sluicegate-reason"
SOURCE_HEADER: Final = "sluicegate-source"
TIME_HEADER: Final = "sluicegate-time"
"""When the message was appended, in milliseconds; the letter's own record has the time when it was sent."""
LETTER_HEADER: Final = "sluicegate-letter"
"""Of a mark that an operator leaves: the id of the letter that has been dealt with."""
DEALT_HEADER: Final = "sluicegate-dealt-with"
"""Of such a mark: how."""
TOO_LARGE: Final = b"too large for a dead letter; see where it stands"

_OURS: Final = (ID_HEADER, CODE_HEADER, REASON_HEADER, SOURCE_HEADER, TIME_HEADER)
_MARK: Final = (LETTER_HEADER, DEALT_HEADER, REASON_HEADER, SOURCE_HEADER)
_PER_HEADER: Final = 20
"""Bytes that a header takes at most, beside its name and value."""
_KEPT_HEADERS: Final = 16 << 10
"""Bytes of the headers that are kept of a message that is too large."""

Headers = tuple[tuple[str, bytes | None], ...]


class LetterCode(StrEnum):
    """The reason code of a letter; those of `Flaw` come beside them."""

    UNDECODABLE = "undecodable"
    UNKNOWN_STREAM = "unknown-stream"
    WRONG_PARTITION = "wrong-partition"
    MALFORMED_BODY = "malformed-body"
    LINEAGE_NOT_LIVE = "lineage-not-live"


class Place(NamedTuple):
    """Where a message stands, and since when."""

    topic: str
    partition: int
    offset: int
    time: int
    """Its append time; an offset of a topic that was made again has another one."""


class Letter(NamedTuple):
    """A message that was put aside, and why."""

    place: Place
    code: str
    reason: str
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def id(self) -> str:
        """The same for every copy of this letter, whoever sends it."""
        topic, partition, offset, time = self.place
        return hashlib.sha256(f"{topic}/{partition}/{offset}/{time}/{self.code}".encode()).hexdigest()[:32]

    @property
    def size(self) -> int:
        """The bytes that its message takes, or a little more."""
        ours = len(self.reason.encode()) + len(self.place.topic) + 400
        return len(self.key or b"") + len(self.value or b"") + _size_of(self.headers) + ours

    def message(self) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        """Key, value and headers, ready to be produced."""
        topic, partition, offset, time = self.place
        source = f"{topic}/{partition}/{offset}"
        told = (self.id, self.code, self.reason, source, str(time))
        ours = [(name, text.encode()) for name, text in zip(_OURS, told, strict=True)]
        # The client refuses a message that has neither key nor value.
        value = b"" if self.key is None and self.value is None else self.value
        return self.key, value, [*self.headers, *ours]

    def shortened(self) -> "Letter":
        """The letter without what makes it too large; the message stays where it stands."""
        kept: list[tuple[str, bytes | None]] = []
        for header in self.headers:
            if _size_of((*kept, header)) <= _KEPT_HEADERS:
                kept.append(header)
        return self._replace(key=None, value=TOO_LARGE, headers=tuple(kept))


class Mark(NamedTuple):
    """A letter was dealt with."""

    letter: str
    how: str


def _size_of(headers: Headers) -> int:
    return sum(4 * len(name) + len(value or b"") + _PER_HEADER for name, value in headers)


def mark_headers(letter: str, how: str, place: Place) -> list[tuple[str, bytes]]:
    """The headers of a mark; it has no body."""
    told = (letter, how, f"{how} by the operator", f"{place.topic}/{place.partition}/{place.offset}")
    return [(name, text.encode()) for name, text in zip(_MARK, told, strict=True)]


def read_letter(record: ConsumerRecord) -> "tuple[str, Letter] | Mark | None":
    """Read a record of the dead letters' topic: a letter and its id, a mark, or None for anything else."""
    headers = tuple(record.headers)
    names = tuple(name for name, _ in headers[-len(_OURS) :])
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
