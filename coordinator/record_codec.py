"""State records as JSON. A record of another version than this release writes is refused with a code.

Large ones are compressed: a record has the source offsets of all regions, twice while a decision is pending.
"""

from typing import Annotated, Final

import cramjam
from pydantic import Field, TypeAdapter, ValidationError

from sluicegate.coordinator.core.state import Light
from sluicegate.coordinator.core.state_record import RECORD_VERSION, StateRecord
from sluicegate.events.causes import Cause, CauseCode
from sluicegate.events.problems import Code, Problem, malformed

_RECORD: Final = TypeAdapter(StateRecord)
_LARGE: Final = 64 << 10
"""Bytes of a record that is compressed. Smaller ones fit into any topic, and people can read them."""
_MOST: Final = 32 << 20
"""Bytes of a record before its compression. A few bytes of zstd can stand for gigabytes, so none is read that
is larger, and none is written."""
_ZSTD: Final = bytes.fromhex("28b52ffd")
"""First bytes of what zstd has compressed (RFC 8878, section 3.1.1). JSON does not begin with them."""


class _Versioned(Light):
    version: Annotated[int, Field(ge=0, le=2**63 - 1, strict=True)]


class RecordTooLarge(ValueError):
    """A state record could not be read again."""

    def __init__(self, size: int) -> None:
        self.cause = Cause(code=CauseCode.RECORD_TOO_LARGE, number=size, other=_MOST)
        super().__init__(f"a state record of {size} bytes; at most {_MOST} are read")


def encode_record(record: StateRecord) -> bytes:
    """Return the value of a stream's record in the compacted topic. Raises RecordTooLarge."""
    text = _RECORD.dump_json(record)
    if len(text) > _MOST:
        raise RecordTooLarge(len(text))
    return text if len(text) <= _LARGE else bytes(cramjam.zstd.compress(text))


def decode_record(stream: str, value: bytes) -> StateRecord | Problem:
    """Read the record of a stream. It is a problem if another release wrote it, or if it is malformed."""
    if value.startswith(_ZSTD):
        try:
            room = bytearray(_MOST)
            value = bytes(room[: cramjam.zstd.decompress_into(value, room)])
        except cramjam.DecompressionError as error:
            return Problem(code=Code.STATE_RECORD_MALFORMED, detail=str(error))
    try:
        # Another version may have any other fields.
        version = _Versioned.model_validate_json(value).version
        if version != RECORD_VERSION:
            older = version < RECORD_VERSION
            return Problem(code=Code.STATE_RECORD_OLDER if older else Code.STATE_RECORD_NEWER, number=version)
        record = _RECORD.validate_json(value, strict=True)
    except ValidationError as error:
        return malformed(Code.STATE_RECORD_MALFORMED, error)
    if record.stream != stream:
        return Problem(code=Code.STATE_RECORD_MALFORMED, names=("stream",))
    return record
