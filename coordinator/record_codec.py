"""State records as JSON. A record of another version than this release writes is refused with a code.

Large ones are compressed: a record has the source offsets of all regions, twice while a decision is pending.
"""

from typing import Annotated, Final

import cramjam
from pydantic import Field, TypeAdapter, ValidationError

from sluicegate.coordinator.core.log_state import Light
from sluicegate.coordinator.core.state_record import RECORD_VERSION, StateRecord
from sluicegate.events.problems import Code, Problem, malformed

_RECORD: Final = TypeAdapter(StateRecord)
_LARGE: Final = 64 << 10
"""Bytes of a record that is compressed. Smaller ones fit into any topic, and people can read them."""
_MOST: Final = 64 << 20
"""Bytes that are read of a compressed record. A few bytes of zstd can stand for gigabytes."""
_ZSTD: Final = bytes.fromhex("28b52ffd")
"""First bytes of what zstd has compressed (RFC 8878, section 3.1.1). JSON does not begin with them."""


class _Versioned(Light):
    version: Annotated[int, Field(ge=0, le=2**63 - 1, strict=True)]


def encode_record(record: StateRecord) -> bytes:
    """Return the value of a stream's record in the compacted topic."""
    text = _RECORD.dump_json(record)
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
