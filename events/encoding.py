"""Writing of events and notifications. It has no clock: the caller gives the time.

The partition of a message comes from its stream alone (`partition_of`), and its key from `key_of`.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pydantic import TypeAdapter

from sluicegate.events.codec import (
    EVENT_SHAPES,
    Flaw,
    read_addressed,
    read_attributes,
    read_body,
    read_completion,
)
from sluicegate.events.envelope import (
    BODIES,
    CONTENT_TYPE,
    FILES_WRITTEN,
    PROBE,
    SOURCE,
    SPEC_VERSION,
    UNCOUNTED,
    Envelope,
    EventType,
    Header,
    RawHeader,
    key_of,
    wire_type,
)
from sluicegate.events.models import Body, CheckpointCompleted, FilesWritten
from sluicegate.events.notifications import (
    NOTIFICATION_BODIES,
    NOTIFICATION_TYPES,
    Notification,
    NotificationType,
)
from sluicegate.events.problems import Cause, CauseCode, Problem

# Trace context of messages: the extension "distributed tracing" of CloudEvents, with W3C's `traceparent`.
#
# Nothing is decided by it. A malformed one counts as absent.

TRACEPARENT: Final = "ce_traceparent"
"""Header with the context of the message."""
TRACELINKS: Final = "ce_tracelinks"
"""Header with the contexts that a commit includes, separated by commas, if there are several."""
MOST_LINKS: Final = 32
"""Contexts that a message names at most."""
_SHAPE: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[ -~]*)?"
)
_LENGTH: Final = 55
"""Characters of version 00; later versions may append more."""
_LONGEST: Final = 512


def parse_traceparent(raw: bytes | str | None) -> str | None:
    """Return the context as version 00 has it; None if the value is absent or malformed."""
    if isinstance(raw, str):
        raw = raw.encode(errors="replace")
    if raw is None or len(raw) > _LONGEST or not (match := _SHAPE.fullmatch(raw)):
        return None
    if raw.startswith(b"00-") and match[1] is not None:
        return None
    return "00" + raw[2:_LENGTH].decode()


def traceparent_of(headers: Iterable[RawHeader]) -> str | None:
    """Return the context of a message; None if it has none, or a malformed one."""
    return parse_traceparent(next((value for name, value in headers if name == TRACEPARENT), None))


def trace_headers(own: str | None, parents: Sequence[str]) -> list[Header]:
    """Return the headers of a message that has these parents; `own` is its context, if it has one.

    Without a context of its own, the message has that of its only parent.
    """
    links = list(dict.fromkeys(parents))[:MOST_LINKS]
    context = own or (links[0] if len(links) == 1 else None)
    headers = [(TRACEPARENT, context.encode())] if context else []
    return [*headers, *([(TRACELINKS, ",".join(links).encode())] if len(links) > 1 else [])]


_WRITERS: Final[Mapping[type[Body], TypeAdapter[Body]]] = {
    model: TypeAdapter(model) for model in {*BODIES.values(), *NOTIFICATION_BODIES.values()}
}
"""By body. An adapter writes the bytes of the JSON directly, and a model only a string to be encoded."""


class Message(NamedTuple):
    """An encoded event, ready to be produced."""

    key: bytes
    value: bytes
    headers: list[Header]

    @property
    def stream(self) -> str:
        """Stream of the event, whose partition the message belongs to."""
        return next(value for name, value in self.headers if name == "ce_stream").decode()


class Unencodable(ValueError):
    """The body of an event breaks a limit of its type, so no reader would take the event."""

    def __init__(self, kind: EventType, problem: Problem) -> None:
        names = (f"sluicegate.{kind}", *problem.names)
        self.cause = Cause(code=CauseCode.EVENT_OVER_LIMIT, names=names)
        super().__init__(f"this {kind} is outside of its limits: {' '.join(problem.names)} {problem.detail}")


def encode_event(envelope: Envelope, body: Body, time_ms: int) -> Message:
    """Encode an event of the log; `time_ms` is for `ce_time`, in milliseconds since the Unix epoch.

    Raises ValueError if a reader would refuse the event, or read another one.
    """
    of_stream = ("ce_stream", envelope.stream.encode())
    headers = [*_context(envelope.id, wire_type(envelope.type), time_ms), of_stream, *_attributes(envelope)]
    read = read_attributes(headers)
    if isinstance(read, Flaw):
        problem = read.problem
        raise ValueError(  # noqa: TRY004
            f"this {envelope.type} cannot be encoded: {problem.code} {' '.join(problem.names)}"
        )
    if read != envelope:
        raise ValueError(f"{envelope} cannot be encoded: it would be read as {read}")
    files = body.files if isinstance(body, CheckpointCompleted) else body
    if isinstance(files, FilesWritten) and envelope.files not in (len(files.files), UNCOUNTED):
        raise ValueError(f"the envelope has {envelope.files} files, and the body {len(files.files)}")
    value = _json(body, envelope.type, BODIES[envelope.type])
    if envelope.type is not FILES_WRITTEN:
        # A copy of a body is not validated. Its readers would refuse the event, and its sender repeat it.
        is_completion = isinstance(body, CheckpointCompleted)
        found = read_completion(envelope, value) if is_completion else read_body(envelope.type, value)
        if isinstance(found, Problem):
            raise Unencodable(envelope.type, found)
    return Message(key_of(envelope.stream, envelope.region, envelope.checkpoint), value, headers)


def encode_notification(notification: Notification, time_ms: int) -> Message:
    """Encode a message of the commits topic.

    Raises ValueError if a reader would refuse it, or read another one.
    """
    event, kind, stream, region, incarnation, body = notification
    headers = [*_context(event, wire_type(kind), time_ms), ("ce_stream", stream.encode())]
    for name, value in (("ce_region", region), ("ce_incarnation", incarnation)):
        if value:
            headers.append((name, value.encode()))
    model = NOTIFICATION_BODIES[kind]
    encoded = _json(body, kind, model)
    read = read_addressed(headers, NOTIFICATION_TYPES)
    # A body that breaks its own model raises ValidationError, which is a ValueError.
    found = model.model_validate_json(encoded, strict=True)
    if read != (kind, event, stream, region, incarnation) or found != body:
        raise ValueError(f"{notification} cannot be encoded: it would be read as {read}, {found}")
    return Message(key_of(stream, region), encoded, headers)


def probe_headers(event: str, time_ms: int) -> list[Header]:
    """Return the headers of a message that proves the right to write, and that belongs to no stream."""
    return _context(event, PROBE, time_ms)


def _context(event: str, kind: bytes, time_ms: int) -> list[Header]:
    """Return the headers that every message has."""
    return [
        ("ce_id", event.encode()),
        ("ce_type", kind),
        ("ce_specversion", SPEC_VERSION),
        ("ce_source", SOURCE),
        ("ce_time", _timestamp(time_ms)),
        ("content-type", CONTENT_TYPE),
    ]


def _attributes(envelope: Envelope) -> list[Header]:
    """Return the headers of the attributes that the event's type has."""
    shape = EVENT_SHAPES[wire_type(envelope.type)]
    headers: list[Header] = []
    if shape.region:
        headers += [
            ("ce_region", envelope.region.encode()),
            ("ce_incarnation", envelope.incarnation.encode()),
        ]
    if shape.checkpoint:
        headers.append(("ce_checkpoint", b"%d" % envelope.checkpoint))
    if shape.writer or envelope.writer:
        headers += [("ce_writer", envelope.writer.encode()), ("ce_attempt", envelope.attempt.encode())]
        if envelope.files != UNCOUNTED:
            headers.append(("ce_files", b"%d" % envelope.files))
        counts = (("ce_rows", envelope.rows), ("ce_bytes", envelope.bytes))
        headers += [(name, b"%d" % count) for name, count in counts if count]
        if envelope.table:
            headers.append(("ce_table", envelope.table.encode()))
    return headers


def _json(body: Body, kind: EventType | NotificationType, model: type[Body]) -> bytes:
    if type(body) is not model:
        raise ValueError(f"the body of a {kind} cannot be a {type(body).__name__}")
    return _WRITERS[model].dump_json(body)


def _timestamp(time_ms: int) -> bytes:
    """Return a time as RFC 3339 has it."""
    seconds, millis = divmod(time_ms, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{millis:03d}Z".encode()
