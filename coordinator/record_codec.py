"""State records as JSON. A record of another version than this release writes is refused with a code."""

from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from sluicegate.coordinator.core.log_state import Light
from sluicegate.coordinator.core.state_record import RECORD_VERSION, StateRecord
from sluicegate.events.problems import Code, Problem, malformed

_RECORD: Final = TypeAdapter(StateRecord)


class _Versioned(Light):
    version: Annotated[int, Field(ge=0, le=2**63 - 1, strict=True)]


def encode_record(record: StateRecord) -> bytes:
    """Return the value of a stream's record in the compacted topic."""
    return _RECORD.dump_json(record)


def decode_record(stream: str, value: bytes) -> StateRecord | Problem:
    """Read the record of a stream. It is a problem if another release wrote it, or if it is malformed."""
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
