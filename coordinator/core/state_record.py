"""The state record: LogState and TableProgress as of one offset, with the notifications that are due."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal

import cramjam
from pydantic import Field, TypeAdapter, ValidationError, ValidationInfo, field_validator

from sluicegate.coordinator.core.state import Light, LogState
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.events.models import CutAbandoned, CutReverted
from sluicegate.events.notifications import (
    NOTIFICATION_BODIES,
    Committed,
    IncarnationsEnded,
    NotificationType,
    RegistrationAnswered,
    SavepointTaken,
    Stalled,
    StreamAdopted,
)
from sluicegate.events.problems import Cause, CauseCode, Code, Problem, malformed

# The release that wrote a record: one that cannot read it names the release that it needs.

RELEASE_HEADER: Final = "sluicegate-release"


def release_named(headers: Iterable[tuple[str, bytes | None]]) -> tuple[str, ...]:
    """Return the release that wrote a record; empty if the record does not name it."""
    named = dict(headers).get(RELEASE_HEADER)
    return (named.decode(errors="replace"),) if named else ()


RECORD_VERSION: Final = 1

NotificationBody = (
    RegistrationAnswered
    | Committed
    | CutAbandoned
    | CutReverted
    | SavepointTaken
    | IncarnationsEnded
    | Stalled
    | StreamAdopted
)


class Due(Light):
    """A notification that follows the record it is part of. A repetition after a crash has the same id."""

    id: str
    type: NotificationType
    region: str = ""
    incarnation: str = ""
    body: NotificationBody

    @field_validator("body", mode="before")
    @classmethod
    def _by_type(cls, value: object, info: ValidationInfo) -> object:
        kind = info.data.get("type")
        return NOTIFICATION_BODIES[kind].model_validate(value) if kind and isinstance(value, dict) else value


Kind = Literal["stall", "pause", "wait", "retry", "refusal"]


class Condition(Light):
    """Something that keeps a stream, or one region of it, from progress."""

    kind: Kind
    """stall: somebody must act. wait: something must arrive. retry: an effect fails and is tried again."""
    problem: Problem
    retry_in: int | None = None
    """Milliseconds until the next try, as of the record; None: nothing is tried."""


class Waiting(Light):
    """Everything of one region that is in no decision."""

    files: int
    rows: int
    since: int
    """Append time of the first event of the oldest checkpoint, in milliseconds."""


class StateRecord(Light):
    """The value of a stream's record in the compacted state topic."""

    version: int = RECORD_VERSION
    stream: str
    applied: int
    """Every record at or before this offset is in `state`; -1: none is."""
    applied_id: str | None = None
    """Id of the event at that offset: another one there means that the topic was created again."""
    commit_user: str | None = None
    adoption: str = ""
    """Id of the adoption that the record follows; empty: of none. The log before it is of another course."""
    low_water: int
    """The smallest offset that a recovery reads."""
    state: LogState
    table: TableProgress = TableProgress()
    due: Sequence[Due] = ()
    conditions: Sequence[Condition] = ()
    """For status; nothing is decided by them."""
    announced: Mapping[str, Problem] = {}
    """By scope (a region, or empty), the stall that was announced last."""
    stalls: int = 0
    """Number of stalls, and of ends of stalls, that were announced. Repetitions differ in it."""
    refused: Mapping[str, Problem] = {}
    """By region, the refusal of its newest registration; for status."""
    heard: Mapping[str, int] = {}
    """By region, the append time of the newest event of its driver, in milliseconds."""
    intervals: Mapping[str, int] = {}
    """By region, the milliseconds between its heartbeats."""
    waiting: Mapping[str, Waiting] = {}

    def is_of_course(self, newest: "StateRecord") -> bool:
        """True if a log that is read from this record leads to the newest one.

        An adoption writes its base record first. If it ends there, the stream continues without it.
        """
        return self.adoption == newest.adoption


# State records as JSON. A record of another version than this release writes is refused with a code.
#
# Large ones are compressed: a record has the source offsets of all regions, twice while a decision is
# pending.

_RECORD: Final = TypeAdapter(StateRecord)
_LARGE: Final = 64 << 10
"""Bytes of a record that is compressed. Smaller ones fit into any topic, and people can read them."""
_MOST: Final = 32 << 20
"""Bytes of a record before its compression. A few bytes of zstd can stand for gigabytes, so none is read that
is larger, and none is written."""
_ZSTD: Final = bytes.fromhex("28b52ffd")
"""First bytes of what zstd has compressed (RFC 8878, section 3.1.1). JSON does not begin with them."""


class _Versioned(Light):
    version: Annotated[int, Field(ge=RECORD_VERSION, le=2**63 - 1, strict=True)]


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
            return Problem(code=Code.STATE_RECORD_NEWER, number=version)
        record = _RECORD.validate_json(value, strict=True)
    except ValidationError as error:
        return malformed(Code.STATE_RECORD_MALFORMED, error)
    if record.stream != stream:
        return Problem(code=Code.STATE_RECORD_MALFORMED, names=("stream",))
    return record


# Retention: the records of a partition that may be deleted, and the record that a stream recovers from.
#
# Before records are deleted, each stream of the partition gets a *base record*: a copy of its state record
# under a key of its own. A zombie may replace the newest record by an older one, whose low-water mark was
# deleted. The base record is still there then.

_SEPARATOR = "/"
"""No name of a stream contains it."""


def base_key(stream: str, start: int) -> str:
    """Return the key of a stream's base record for a log that begins at this offset."""
    return f"{stream}{_SEPARATOR}{start}"


def read_key(key: str) -> tuple[str, int | None] | None:
    """Return the stream of a state record's key, and the offset of a base record; None for other keys."""
    stream, separator, start = key.partition(_SEPARATOR)
    if not separator:
        return stream, None
    return (stream, int(start)) if start.isascii() and start.isdigit() else None


def listener_key(stream: str, listener: str, owner: str) -> str:
    """Return the key of a listener's record. No name of a stream is empty, so it is no key of a stream."""
    return _SEPARATOR.join(("", "listener", stream, listener, owner))


def read_listener_key(key: str) -> tuple[str, str] | None:
    """Return the stream and the name of the listener of a record's key; None for other keys."""
    parts = key.split(_SEPARATOR)
    return (parts[2], parts[3]) if parts[:2] == ["", "listener"] and len(parts) == 5 else None


def deletion_start(needed: Iterable[int], kept_from: int, begin: int) -> int | None:
    """Return the offset before which records may be deleted; None if there are none.

    `needed` are the low-water marks of everybody, `kept_from` is the first offset in the replay window, and
    `begin` is the first offset of the log.
    """
    start = min([kept_from, *needed])
    return start if start > begin else None


def recovery_record(
    newest: StateRecord | None, bases: Mapping[int, StateRecord], begin: int
) -> StateRecord | None:
    """Return the record from which a stream recovers, in a log that begins at `begin`.

    None: no coordinator has written a record of the stream. Without a usable one it is one from which the log
    does not continue, so the caller sees that the stream has a past.
    """
    if newest is not None and newest.low_water >= begin:
        return newest
    # A zombie may have written an older record under the key.
    usable = [start for start, base in bases.items() if base.low_water >= max(start, begin)]
    if usable:
        return bases[max(usable)]
    return newest or max(bases.values(), key=lambda base: base.low_water, default=None)


def base_record(newest: StateRecord, bases: Mapping[int, StateRecord], start: int) -> StateRecord:
    """Return the record to keep as the base of a log that will begin at `start`.

    It is the former base while the log still has everything after its low-water mark. So a replay, and the
    search for orphans, see the events of a whole replay window, and not only those after the newest record.
    """
    former = bases[max(bases)] if bases else newest
    same = (former.commit_user, former.table.identity) == (newest.commit_user, newest.table.identity)
    return former if same and former.is_of_course(newest) and former.low_water >= start else newest


def is_endangered(low_water: int, half_expired: int) -> bool:
    """True if a stream needs records that have passed half of the topic's retention.

    `half_expired` is the first offset that has not.
    """
    return low_water < half_expired
