"""Reading of messages of version 4: CloudEvents 1.0 in Kafka's binary content mode.

Nothing here raises because of a message. One that cannot be used gives a `Flaw`, which is data. `ce_time` is
for people who look at events: no reader decides anything by it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from pydantic import ValidationError

from sluicegate.events.attributes import (
    CONTENT_TYPE,
    EVENT_SHAPES,
    MAJOR_VERSION,
    NOTIFICATION_TYPES,
    SPEC_VERSION,
    RawHeader,
    is_source,
    major_version,
    read_id,
    read_name,
    read_number,
)
from sluicegate.events.envelope import BODIES, NO_CHECKPOINT, Envelope, EventType, LogRecord
from sluicegate.events.models import Body, FilesWritten
from sluicegate.events.notifications import NOTIFICATION_BODIES, NotificationType
from sluicegate.events.problems import Code, Problem, malformed

_Attributes = Mapping[str, bytes | None]
_Value = TypeVar("_Value")
_Kind = TypeVar("_Kind")

_OLDER: Final = frozenset({"ce_lineage", "ce_firstoffset", "ce_firsttime"})
"""Attributes that only releases with protocol version 3 write."""
_SHOWN: Final = 100
"""Bytes of a value that a flaw shows; a dead letter has a limit."""
_LISTED: Final = 5
"""Attributes that a flaw names at most."""


class Flaw(NamedTuple):
    """A message that cannot be used."""

    problem: Problem
    stream: str | None
    """The stream that the message names, if that can be read."""

    @property
    def stalls(self) -> bool:
        """True if only a newer release can read it, and its stream waits; else it is a dead letter."""
        return self.problem.code is Code.RECORD_UNREADABLE and self.stream is not None


class Reading(NamedTuple):
    """A message of the log: its record, or its flaw, or both if only the body is malformed."""

    record: LogRecord | None
    flaw: Flaw | None


class Notification(NamedTuple):
    """A message of the commits topic."""

    id: str
    """Derived from what it announces: a repetition has the same."""
    type: NotificationType
    stream: str
    region: str
    """Empty if it concerns the whole stream."""
    incarnation: str
    body: Body


class _Unusable(Exception):
    """The first problem of a message."""

    def __init__(self, code: Code, *names: str, shown: bytes = b"", number: int | None = None) -> None:
        # A header may have any name, also a very long one.
        listed = tuple(_shown(name.encode(errors="replace")) for name in names[:_LISTED])
        self.problem = Problem(code=code, names=listed, number=number, detail=_shown(shown))


def _shown(raw: bytes) -> str:
    return raw[:_SHOWN].decode(errors="replace")


# --- messages -------------------------------------------------------------------------------------


def read_record(offset: int, time: int, headers: Sequence[RawHeader], value: bytes | None) -> Reading:
    """Read a record of the log as the core takes it. The body of a `files.written` is not looked at.

    `time` is its append time in milliseconds since the Unix epoch.
    """
    envelope = read_attributes(headers)
    if isinstance(envelope, Flaw):
        if envelope.problem.code is Code.RECORD_UNREADABLE:
            located = envelope.problem.model_copy(update={"number": offset})
            return Reading(None, envelope._replace(problem=located))
        return Reading(None, envelope)
    if envelope.type is EventType.FILES_WRITTEN:
        return Reading(LogRecord(offset, time, envelope, None), None)
    body = read_body(envelope.type, value)
    if isinstance(body, Problem):
        return Reading(
            LogRecord(offset, time, envelope, None, body.detail or str(body.code)),
            Flaw(body, envelope.stream),
        )
    return Reading(LogRecord(offset, time, envelope, body), None)


def read_attributes(headers: Sequence[RawHeader]) -> Envelope | Flaw:
    """Read the attributes of an event. Those that its type does not have are ignored.

    A header without a value is as good as absent.
    """
    attributes = dict(headers)
    try:
        shape = _kind(headers, attributes, EVENT_SHAPES)
        event = _read(attributes, "ce_id", read_id)
        stream = _read(attributes, "ce_stream", read_name)
        region = incarnation = writer = attempt = ""
        checkpoint, files, rows, size = NO_CHECKPOINT, 0, 0, 0
        if shape.region:
            region = _read(attributes, "ce_region", read_name)
            incarnation = _read(attributes, "ce_incarnation", read_name)
        if shape.checkpoint:
            checkpoint = _read(attributes, "ce_checkpoint", read_number)
        if shape.writer:
            writer = _read(attributes, "ce_writer", read_name)
            attempt = _read(attributes, "ce_attempt", read_id)
            files = _read(attributes, "ce_files", read_number)
            rows = _read(attributes, "ce_rows", read_number, 0)
            size = _read(attributes, "ce_bytes", read_number, 0)
    except _Unusable as found:
        return Flaw(found.problem, _stream(headers))
    # `_make` takes half the time of the constructor.
    place = (stream, region, incarnation, checkpoint)
    return Envelope._make((event, shape.type, *place, writer, attempt, files, rows, size))


def read_notification(headers: Sequence[RawHeader], value: bytes | None) -> Notification | Flaw:
    """Read a message of the commits topic."""
    attributes = dict(headers)
    try:
        kind = _kind(headers, attributes, NOTIFICATION_TYPES)
        event = _read(attributes, "ce_id", read_id)
        stream = _read(attributes, "ce_stream", read_name)
        region = _read(attributes, "ce_region", read_name, "")
        incarnation = _read(attributes, "ce_incarnation", read_name, "")
    except _Unusable as found:
        return Flaw(found.problem, _stream(headers))
    body = _parse(NOTIFICATION_BODIES[kind], value)
    if isinstance(body, Problem):
        return Flaw(body, stream)
    return Notification(event, kind, stream, region, incarnation, body)


# --- bodies ---------------------------------------------------------------------------------------


def read_body(event_type: EventType, value: bytes | None) -> Body | Problem:
    """Read a body of the given type."""
    return _parse(BODIES[event_type], value)


def read_files(envelope: Envelope, value: bytes | None) -> FilesWritten | Problem:
    """Read the body of a `files.written`; its offset is enough to fetch and read it again.

    It must have as many files as its attributes announce, and no path twice.
    """
    body = _parse(FilesWritten, value)
    if isinstance(body, Problem):
        return body
    if len(body.files) != envelope.files:
        found = f"{len(body.files)} files, and the attribute ce_files is {envelope.files}"
        return Problem(code=Code.MALFORMED_BODY, names=("files",), detail=found)
    seen: set[str] = set()
    for index, file in enumerate(body.files):
        if file.path in seen:
            repeated = f"the path {file.path[:_SHOWN]} is listed twice"
            return Problem(code=Code.MALFORMED_BODY, names=(f"files.{index}.path",), detail=repeated)
        seen.add(file.path)
    return body


_Parsed = TypeVar("_Parsed", bound=Body)


def _parse(model: type[_Parsed], value: bytes | None) -> _Parsed | Problem:
    try:
        # Strict, so that exactly what the published JSON Schema permits is accepted.
        return model.model_validate_json(value or b"", strict=True)
    except ValidationError as error:
        return malformed(Code.MALFORMED_BODY, error)


# --- attributes -----------------------------------------------------------------------------------


def _read(
    attributes: _Attributes, name: str, read: Callable[[bytes], _Value], absent: _Value | None = None
) -> _Value:
    """Read one attribute; without `absent` it is needed."""
    raw = attributes.get(name)
    if raw is None:
        if absent is None:
            raise _Unusable(Code.MISSING_ATTRIBUTE, name)
        return absent
    try:
        return read(raw)
    except ValueError:
        raise _Unusable(Code.MALFORMED_ATTRIBUTE, name, shown=raw) from None


def _kind(headers: Sequence[RawHeader], attributes: _Attributes, kinds: Mapping[bytes, _Kind]) -> _Kind:
    """Check what every message has, and return what its type stands for.

    A message of another major version may have other attributes, so the version is checked first.
    """
    doubled = _contradictions(headers) if len(attributes) < len(headers) else ()
    if "ce_type" in doubled:
        raise _Unusable(Code.CONTRADICTION, *doubled)
    raw = attributes.get("ce_type")
    if raw is None:
        raise _Unusable(Code.NO_EVENT, "ce_type")
    kind = kinds.get(raw)
    major = MAJOR_VERSION if kind is not None else major_version(raw)
    if major is not None and major > MAJOR_VERSION:
        raise _Unusable(Code.RECORD_UNREADABLE, shown=raw)
    if major is not None and (major < MAJOR_VERSION or not _OLDER.isdisjoint(attributes)):
        raise _Unusable(Code.OLDER_RELEASE, shown=raw, number=major)
    if doubled:
        raise _Unusable(Code.CONTRADICTION, *doubled)
    _check_context(attributes)
    if kind is None:
        raise _Unusable(Code.UNKNOWN_TYPE, "ce_type", shown=raw)
    return kind


def _check_context(attributes: _Attributes) -> None:
    """Check the attributes that have the same values in every message."""
    version, source = attributes.get("ce_specversion"), attributes.get("ce_source")
    if version != SPEC_VERSION:
        raise _Unusable(Code.SPEC_VERSION, "ce_specversion", shown=version or b"")
    if not is_source(source):
        raise _Unusable(Code.SOURCE, "ce_source", shown=source or b"")
    content = attributes.get("content-type")
    if content != CONTENT_TYPE:
        raise _Unusable(Code.CONTENT_TYPE, "content-type", shown=content or b"")


def _contradictions(headers: Sequence[RawHeader]) -> tuple[str, ...]:
    """Return the attributes with two values: two readers of one message must not read different ones."""
    seen: dict[str, bytes | None] = {}
    found: dict[str, None] = {}
    for name, value in headers:
        ours = name.startswith("ce_") or name == "content-type"
        if ours and seen.setdefault(name, value) != value:
            found[name] = None
    return tuple(found)


def _stream(headers: Sequence[RawHeader]) -> str | None:
    """Return the stream that a flawed message names; None if it names none, or two."""
    values = {value for name, value in headers if name == "ce_stream"}
    raw = values.pop() if len(values) == 1 else None
    try:
        return read_name(raw) if raw is not None else None
    except ValueError:
        return None
