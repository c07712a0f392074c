"""Encode events for the log. This module is apart from the codec because the codec uses no clock."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from sluicegate.events.codec import CONTENT_TYPE, SOURCE, SPEC_VERSION, Header, read_envelope, wire_type
from sluicegate.events.envelope import BODIES, NO_CHECKPOINT, Event, EventType, Origin, Poison
from sluicegate.events.models import FilesWritten
from sluicegate.events.partitioning import message_key


class Message(NamedTuple):
    """An encoded event, ready to be produced."""

    key: bytes
    value: bytes
    headers: list[Header]


def encode(event: Event, time_ms: int | None = None) -> Message:
    """Encode an event. The caller chooses topic and partition (see `partition_of`).

    `time_ms` is the value of `ce_time` in milliseconds since the Unix epoch; None: the current time. Raises
    ValueError if a reader would refuse the event or decode a different one.
    """
    envelope, body = event
    headers: list[Header] = [
        ("ce_id", envelope.id.encode()),
        ("ce_type", wire_type(envelope.type)),
        ("ce_specversion", SPEC_VERSION),
        ("ce_source", SOURCE),
        ("ce_time", _timestamp(time.time_ns() // 1_000_000 if time_ms is None else time_ms)),
        ("content-type", CONTENT_TYPE),
        ("ce_stream", envelope.stream.encode()),
    ]
    if envelope.region:
        headers.append(("ce_region", envelope.region.encode()))
    if envelope.lineage:
        headers.append(("ce_lineage", envelope.lineage.encode()))
    if envelope.checkpoint != NO_CHECKPOINT:
        headers.append(("ce_checkpoint", b"%d" % envelope.checkpoint))
    if envelope.writer:
        headers.append(("ce_writer", envelope.writer.encode()))
    if envelope.attempt:
        headers.append(("ce_attempt", envelope.attempt.encode()))
    if envelope.type is EventType.FILES_WRITTEN:
        headers.append(("ce_files", b"%d" % envelope.files))
    if envelope.rows:
        headers.append(("ce_rows", b"%d" % envelope.rows))
    if envelope.origin is not None:
        headers += origin_headers(envelope.origin)
    # Decode the result before it is sent: an event that readers refuse would become a dead letter.
    _check_readable(event, headers)
    return Message(message_key(envelope), body.model_dump_json().encode(), headers)


def _timestamp(time_ms: int) -> bytes:
    """Format a time as RFC 3339, in UTC."""
    seconds, millis = divmod(time_ms, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{millis:03d}Z".encode()


def origin_headers(origin: Origin) -> list[Header]:
    """Return the headers that mark a message as the copy of an earlier one."""
    return [("ce_firstoffset", b"%d" % origin.offset), ("ce_firsttime", b"%d" % origin.time)]


def _check_readable(event: Event, headers: Sequence[Header]) -> None:
    envelope, body = event
    read = read_envelope(headers)
    if isinstance(read, Poison):
        raise ValueError(f"this {envelope.type} cannot be encoded: {read.reason}")  # noqa: TRY004
    if read != envelope:
        raise ValueError(f"{envelope} cannot be encoded: it would be read as {read}")
    if type(body) is not BODIES[envelope.type]:
        raise ValueError(f"the body of a {envelope.type} cannot be a {type(body).__name__}")
    if isinstance(body, FilesWritten) and len(body.files) != envelope.files:
        raise ValueError(f"the envelope says {envelope.files} files, and the body lists {len(body.files)}")
