"""Messages survive the wire, and look there as the CloudEvents binding for Kafka says."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate.events.codec import Reading, read_attributes, read_body, read_files, read_record
from sluicegate.events.encoding import encode_event, encode_notification
from sluicegate.events.envelope import Envelope, EventType, LogRecord, key_of, with_counts
from sluicegate.events.files import HEADROOM, split_files
from sluicegate.events.models import CheckpointCompleted, FileInfo, Position, RegionHeartbeat
from sluicegate.events.notifications import NotificationType, read_notification
from tests.events.examples import BODIES, FILES, TIME, envelope_of, notification_of
from tests.events.strategies import events, notifications

MANY = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
SIGNATURE = ("sluicegate-group", b"g")


@pytest.mark.slow
@pytest.mark.parametrize("kind", EventType)
@MANY
@given(data=st.data())
def test_every_event_survives_the_wire(kind: EventType, data: st.DataObject) -> None:
    envelope, body = data.draw(events(kind))
    message = encode_event(envelope, body, TIME)
    held = None if kind is EventType.FILES_WRITTEN else body
    if isinstance(body, CheckpointCompleted) and body.files is not None:
        held = body.model_copy(update={"events": (envelope.id,), "files": None})
        assert read_files(envelope, message.value) == body.files
    read = Reading(LogRecord(7, 8, envelope, held), None)
    assert read_record(7, 8, tuple(message.headers), message.value) == read
    assert read_body(kind, message.value) == body
    if kind is EventType.FILES_WRITTEN:
        assert read_files(envelope, message.value) == body
    assert_conforming(message.headers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", NotificationType)
@MANY
@given(data=st.data())
def test_every_notification_survives_the_wire(kind: NotificationType, data: st.DataObject) -> None:
    notification = data.draw(notifications(kind))
    message = encode_notification(notification, TIME)
    assert read_notification(tuple(message.headers), message.value) == notification
    assert message.key == key_of(notification.stream, notification.region)
    assert_conforming(message.headers)


def assert_conforming(headers: list[tuple[str, bytes]]) -> None:
    """Check what CloudEvents asks of headers in binary mode."""
    names = [name for name, _ in headers]
    assert len(names) == len(set(names))
    assert {"ce_id", "ce_source", "ce_specversion", "ce_type", "ce_time", "content-type"} <= set(names)
    for name, value in headers:
        attribute = name.removeprefix("ce_")
        # CloudEvents allows a-z and 0-9 in attribute names, and asks for values that are not empty.
        assert name == "content-type" or (attribute.isalnum() and attribute == attribute.lower())
        assert value.decode()


@pytest.mark.parametrize("kind", EventType)
def test_what_a_newer_minor_version_adds_is_ignored(kind: EventType) -> None:
    envelope, body = envelope_of(kind), BODIES[kind]
    message = encode_event(envelope, body, TIME)
    longer = json.dumps({"a_new_field": {"deep": [1, None]}} | json.loads(message.value)).encode()
    headers = (*message.headers, ("ce_newattribute", b"\xff"), ("traceparent", b"00"), SIGNATURE)
    assert read_attributes(headers) == envelope
    assert read_body(kind, longer) == body


@pytest.mark.parametrize("kind", NotificationType)
def test_notifications_of_a_newer_minor_version_are_read(kind: NotificationType) -> None:
    message = encode_notification(notification_of(kind), TIME)
    longer = json.dumps({"a_new_field": 1} | json.loads(message.value)).encode()
    headers = (*message.headers, ("ce_newattribute", b"1"), SIGNATURE)
    assert read_notification(headers, longer) == notification_of(kind)


@pytest.mark.parametrize("kind", [EventType.CUT_DECIDED, EventType.REGION_HEARTBEAT])
def test_attributes_that_a_type_does_not_have_are_ignored(kind: EventType) -> None:
    headers = encode_event(envelope_of(kind), BODIES[kind], TIME).headers
    others = [("ce_writer", b"not a name"), ("ce_checkpoint", b"-3"), ("ce_files", b"9")]
    assert read_attributes((*headers, *others)) == envelope_of(kind)


@pytest.mark.parametrize("value", [None, b"", b"yesterday", b"\xff"])
def test_no_reader_depends_on_the_time(value: bytes | None) -> None:
    kind = EventType.CUT_DECIDED
    headers = encode_event(envelope_of(kind), BODIES[kind], TIME).headers
    changed = [(name, value if name == "ce_time" else held) for name, held in headers]
    assert read_attributes(changed) == envelope_of(kind)


def test_repeated_equal_headers_and_foreign_ones_are_harmless() -> None:
    kind = EventType.FILES_WRITTEN
    headers = encode_event(envelope_of(kind), BODIES[kind], TIME).headers
    foreign = [("trace", b"1"), ("trace", b"2"), ("trace", None)]
    assert read_attributes((*headers, *headers, *foreign)) == envelope_of(kind)


def test_attributes_are_read_without_the_body() -> None:
    kind = EventType.FILES_WRITTEN
    headers = encode_event(envelope_of(kind), BODIES[kind], TIME).headers
    for value in (None, b"\xff", b"{}"):
        assert read_record(1, 2, headers, value) == Reading(LogRecord(1, 2, envelope_of(kind), None), None)


HEARTBEAT = envelope_of(EventType.REGION_HEARTBEAT)


@pytest.mark.parametrize(
    ("envelope", "complaint"),
    [
        (HEARTBEAT._replace(id=""), "malformed-attribute ce_id"),
        (HEARTBEAT._replace(id="x" * 65), "malformed-attribute ce_id"),
        (HEARTBEAT._replace(stream="a/b"), "malformed-attribute ce_stream"),
        (HEARTBEAT._replace(stream="a\n"), "malformed-attribute ce_stream"),
        (HEARTBEAT._replace(stream="x" * 201), "malformed-attribute ce_stream"),
        (HEARTBEAT._replace(region=""), "malformed-attribute ce_region"),
        (HEARTBEAT._replace(incarnation=""), "malformed-attribute ce_incarnation"),
        (HEARTBEAT._replace(writer="part-3"), "would be read as"),
        (HEARTBEAT._replace(checkpoint=3), "would be read as"),
        (HEARTBEAT._replace(files=1), "would be read as"),
        (HEARTBEAT._replace(type=EventType.REGION_CLOSED), "cannot be a RegionHeartbeat"),
        (HEARTBEAT._replace(type=EventType.CHECKPOINT_FAILED), "malformed-attribute ce_checkpoint"),
        (HEARTBEAT._replace(type=EventType.CUT_DECIDED), "would be read as"),
    ],
)
def test_what_readers_would_refuse_is_not_encoded(envelope: Envelope, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_event(envelope, RegionHeartbeat(run="r"), TIME)


@pytest.mark.parametrize(
    "change", [{"id": ""}, {"stream": "a/b"}, {"region": "a b"}, {"body": RegionHeartbeat(run="r")}]
)
def test_a_notification_that_readers_would_refuse_is_not_encoded(change: dict[str, Any]) -> None:
    notification = notification_of(NotificationType.STALLED)._replace(**change)
    with pytest.raises(ValueError, match="cannot be"):
        encode_notification(notification, TIME)


def test_the_number_of_files_must_agree() -> None:
    envelope = envelope_of(EventType.FILES_WRITTEN)
    with pytest.raises(ValueError, match="has 3 files, and the body 2"):
        encode_event(envelope._replace(files=3), FILES, TIME)
    assert with_counts(envelope._replace(files=0, rows=0, bytes=0), FILES) == envelope


def test_numbers_survive_as_they_are() -> None:
    """Values that a double cannot hold, such as Iceberg's snapshot ids, are no doubles on the way."""
    body = CheckpointCompleted(
        events=("a",),
        predecessor=Position(incarnation="q", checkpoint=10**18 - 1, digest="d"),
        source_digest="d",
        watermark=-(2**63),
    )
    assert read_body(EventType.CHECKPOINT_COMPLETED, body.model_dump_json().encode()) == body


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (EventType.STREAM_POLICY, b"flights"),
        (EventType.REGION_HEARTBEAT, b"flights/EWR"),
        (EventType.FILES_WRITTEN, b"flights/EWR/7"),
    ],
)
def test_a_key_is_what_the_event_is_of(kind: EventType, key: bytes) -> None:
    assert encode_event(envelope_of(kind), BODIES[kind], TIME).key == key


def test_parts_of_an_event_are_events_with_their_own_counts() -> None:
    files = tuple(FileInfo(path=f"p{i}", size=i, rows=1, metadata=b"x" * 300) for i in range(40))
    limit = HEADROOM + 3_000
    parts = split_files(FILES.model_copy(update={"files": files}), limit)
    plain = envelope_of(EventType.FILES_WRITTEN)
    envelopes = [with_counts(plain._replace(id=f"e{i}"), part) for i, part in enumerate(parts)]
    messages = [encode_event(*each, TIME) for each in zip(envelopes, parts, strict=True)]
    assert len(messages) > 3
    assert sum(each.files for each in envelopes) == 40
    assert [read_files(*each) for each in zip(envelopes, (m.value for m in messages), strict=True)] == parts
