"""Record of one listener in the compacted topic: its state, and its place in the feed.

Each owner of a stream writes under a key of its own, and a reader takes the furthest record of all keys. So a
former owner that still runs cannot move a listener back: it can only write under its own key.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

import cramjam
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sluicegate.events.models import Count

_LARGE: Final = 64 << 10
"""Bytes of a record that is compressed."""
_MOST: Final = 32 << 20
"""Bytes of a record before its compression."""
_ZSTD: Final = bytes.fromhex("28b52ffd")
"""First bytes of what zstd has compressed. JSON does not begin with them."""


class ListenerRecord(BaseModel):
    """State of a listener after all actions up to its place in the feed are done."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    version: Literal[1] = 1
    stream: str
    listener: str
    type: str
    owner: str
    """Random id of the assignment that wrote it."""
    partition: Count
    """Partition of the commits topic."""
    offset: Count
    """Next offset to read there."""
    topic: str = ""
    """Id of the topic that the offset is of: one that was made again has another. Empty: not known."""
    decision: Count | None = None
    """Newest decision with a handled outcome; None: no outcome yet, and any one may be the first."""
    seen: tuple[str, ...] = ()
    """Ids of the handled notifications of that decision."""
    step: Annotated[int, Field(ge=0)] = 0
    """Number of records before this one, of all owners."""
    state: dict[str, Any] = {}
    refused: str | None = None
    """Reason of an action that can never take effect; None: there is none."""
    fingerprint: str = ""
    """Digest of the settings with which it was refused. Other settings let the listener try again."""
    handled_at: int | None = None
    """Time of the newest handled outcome, in milliseconds since the Unix epoch."""

    @property
    def rank(self) -> tuple[int, int, int]:
        """Return the place of this record among those of several owners: the highest counts."""
        return (-1 if self.decision is None else self.decision, self.step, self.offset)


def encode(record: ListenerRecord) -> bytes:
    """Return the value of a record."""
    text = record.model_dump_json().encode()
    return text if len(text) <= _LARGE else bytes(cramjam.zstd.compress(text))


def decode(value: bytes) -> ListenerRecord | None:
    """Return the record of a value; None if this release cannot read it."""
    try:
        if value.startswith(_ZSTD):
            room = bytearray(_MOST)
            value = bytes(room[: cramjam.zstd.decompress_into(value, room)])
        return ListenerRecord.model_validate_json(value)
    except (ValidationError, cramjam.DecompressionError):
        return None


def furthest(records: Iterable[ListenerRecord]) -> ListenerRecord | None:
    """Return the record to continue from; None if there is none."""
    return max(records, key=lambda each: each.rank, default=None)
