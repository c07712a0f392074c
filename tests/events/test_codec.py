"""Events survive the wire, and look there as the CloudEvents binding for Kafka says."""

import json
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, StringConstraints, ValidationError
from pydantic.fields import FieldInfo

from sluicegate.events import (
    BODIES,
    NO_CHECKPOINT,
    CheckpointCompleted,
    Envelope,
    Event,
    EventType,
    FileInfo,
    FilesWritten,
    Origin,
    Poison,
    RegionHeartbeat,
    encode,
    message_key,
    partition_of,
    read_body,
    read_envelope,
    read_event,
)

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,20}", fullmatch=True)
IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=64)
PER_REGION = {
    EventType.REGION_OPENED,
    EventType.FILES_WRITTEN,
    EventType.CHECKPOINT_COMPLETED,
    EventType.CHECKPOINT_FAILED,
    EventType.REGION_HEARTBEAT,
    EventType.REGION_CLOSED,
    EventType.LINEAGE_CARRIED,
}
PER_CHECKPOINT = {EventType.FILES_WRITTEN, EventType.CHECKPOINT_COMPLETED, EventType.CHECKPOINT_FAILED}
PER_WRITER = {EventType.FILES_WRITTEN}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type as the bodies use them, so that a new field or event is covered by itself."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return constrained(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(each) for each in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=4).map(tuple)
    if origin is dict:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=4)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return bodies_of(hint)
    return {
        type(None): st.none(),
        bool: st.booleans(),
        int: st.integers(-(2**63), 2**63 - 1),
        bytes: st.binary(max_size=50),
        str: st.text(max_size=30),
    }[hint]


def constrained(hint: Any, constraints: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if hint is int:
        bounds = [each for field in constraints if isinstance(field, FieldInfo) for each in field.metadata]
        low = max([each.ge for each in bounds if hasattr(each, "ge")], default=-(2**63))
        return st.integers(low, 2**63 - 1)
    if hint is str:
        wanted = next(each for each in constraints if isinstance(each, StringConstraints))
        if wanted.pattern:
            return NAMES
        if any(isinstance(each, AfterValidator) for each in constraints):
            return st.from_regex(r"[a-z=.]{3,9}(/[^/.]{1,5}){0,2}", fullmatch=True)
        return st.text(min_size=wanted.min_length or 0, max_size=min(wanted.max_length or 30, 30))
    return values_of(hint)


@st.composite
def bodies_of(draw: st.DrawFn, model: type[BaseModel]) -> Any:
    hints = get_type_hints(model, include_extras=True)
    values = {name: draw(values_of(hints[name])) for name in model.model_fields}
    try:
        return model(**values)
    except ValidationError:  # fields that do not go together
        return reject()


@st.composite
def events(draw: st.DrawFn, event_type: EventType) -> Event:
    body = draw(bodies_of(BODIES[event_type]))
    region = draw(NAMES) if event_type in PER_REGION or draw(st.booleans()) else ""
    lineage = draw(NAMES) if region else ""
    checkpoint = draw(st.integers(0, 10**18 - 1)) if event_type in PER_CHECKPOINT else NO_CHECKPOINT
    writer = draw(NAMES if event_type in PER_WRITER else st.just("") | NAMES)
    attempt = draw(IDS if event_type in PER_WRITER else st.just("") | IDS)
    files = len(body.files) if isinstance(body, FilesWritten) else 0
    event_id = draw(IDS)
    count = st.integers(0, 10**18 - 1)
    origin = draw(st.none() | st.builds(Origin, count, count))
    rows = draw(count) if event_type is EventType.FILES_WRITTEN else 0
    place = (draw(NAMES), region, lineage, checkpoint)
    return Event(Envelope(event_id, event_type, *place, writer, files, attempt, origin, rows), body)


@pytest.mark.parametrize("event_type", EventType)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_event_survives_the_wire(event_type: EventType, data: st.DataObject) -> None:
    event = data.draw(events(event_type))
    message = encode(event)
    assert read_envelope(tuple(message.headers)) == event.envelope
    assert read_event(tuple(message.headers), message.value) == event


@pytest.mark.parametrize("event_type", EventType)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_fields_of_a_newer_minor_version_are_ignored(event_type: EventType, data: st.DataObject) -> None:
    event = data.draw(events(event_type))
    message = encode(event)
    body = {"a_new_field": {"deep": [1, None]}} | json.loads(message.value)
    headers = (*message.headers, ("ce_newattribute", b"\xff"), ("traceparent", b"00-1-1-00"))
    assert read_event(headers, json.dumps(body).encode()) == event


def full_event() -> Event:
    envelope = Envelope("6f0c", EventType.FILES_WRITTEN, "flights", "EWR", "q1.0", 7, "part-3", 1, "a1")
    files = (FileInfo(path="m=1/a.parquet", size=10, rows=2, partition={"m": "1"}, metadata=b"\xfa\xfb\xff"),)
    body = FilesWritten(format="paimon", format_version=1, location="file:/t", schema_id=0, files=files)
    return Event(envelope, body)


def test_the_wire_format_is_golden() -> None:
    """What is on topics already must stay readable: change these lines only with a new major version."""
    message = encode(full_event(), time_ms=1_234_567_890_042)
    assert message.key == b"flights/EWR/7"
    assert message.headers == [
        ("ce_id", b"6f0c"),
        ("ce_type", b"sluicegate.files.written.v1"),
        ("ce_specversion", b"1.0"),
        ("ce_source", b"/sluicegate"),
        ("ce_time", b"2009-02-13T23:31:30.042Z"),
        ("content-type", b"application/json"),
        ("ce_stream", b"flights"),
        ("ce_region", b"EWR"),
        ("ce_lineage", b"q1.0"),
        ("ce_checkpoint", b"7"),
        ("ce_writer", b"part-3"),
        ("ce_attempt", b"a1"),
        ("ce_files", b"1"),
    ]
    assert json.loads(message.value) == {
        "format": "paimon",
        "format_version": 1,
        "location": "file:/t",
        "schema_id": 0,
        "files": [
            {
                "path": "m=1/a.parquet",
                "size": 10,
                "rows": 2,
                "partition": {"m": "1"},
                "min_event_time": None,
                "max_event_time": None,
                "metadata": "-vv_",
            }
        ],
    }


@pytest.mark.parametrize("event_type", EventType)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_headers_conform_to_cloudevents_binary_mode(event_type: EventType, data: st.DataObject) -> None:
    headers = encode(data.draw(events(event_type))).headers
    names = [name for name, _ in headers]
    assert len(names) == len(set(names))
    assert {"ce_id", "ce_source", "ce_specversion", "ce_type"} <= set(names)
    attributes = dict(headers)
    assert attributes["ce_specversion"] == b"1.0"
    assert attributes["content-type"] == b"application/json"
    for name, value in headers:
        if name != "content-type":
            prefix, _, attribute = name.partition("_")
            # CloudEvents allows a-z and 0-9 in attribute names, and asks for values that are not empty.
            assert prefix == "ce"
            assert attribute.isalnum()
            assert attribute == attribute.lower()
        assert value
        value.decode()


HEARTBEAT = Envelope("1", EventType.REGION_HEARTBEAT, "s", "r", "l")


@pytest.mark.parametrize(
    ("envelope", "complaint"),
    [
        (HEARTBEAT._replace(id=""), "ce_id"),
        (HEARTBEAT._replace(id="x" * 65), "ce_id"),
        (HEARTBEAT._replace(stream="a/b"), "ce_stream"),
        (HEARTBEAT._replace(stream="a\n"), "ce_stream"),
        (HEARTBEAT._replace(stream="x" * 201), "ce_stream"),
        (HEARTBEAT._replace(region=""), "ce_region"),
        (HEARTBEAT._replace(lineage=""), "ce_lineage"),
        (HEARTBEAT._replace(writer="part 3"), "ce_writer"),
        (HEARTBEAT._replace(checkpoint=-2), "ce_checkpoint"),
        (HEARTBEAT._replace(checkpoint=10**18), "ce_checkpoint"),
        (HEARTBEAT._replace(files=1), "would be read as"),
        (HEARTBEAT._replace(type=EventType.REGION_CLOSED), "cannot be a RegionHeartbeat"),
        (HEARTBEAT._replace(type=EventType.CHECKPOINT_FAILED), "ce_checkpoint"),
    ],
)
def test_what_readers_would_refuse_is_not_encoded(envelope: Envelope, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode(Event(envelope, RegionHeartbeat()))


def test_the_number_of_files_must_agree() -> None:
    envelope, body = full_event()
    with pytest.raises(ValueError, match="says 2 files, and the body lists 1"):
        encode(Event(envelope._replace(files=2), body))


def test_numbers_survive_as_they_are() -> None:
    """Values beyond 2**53, such as Iceberg's snapshot ids, are no floating-point numbers on the way."""
    body = CheckpointCompleted(events=("a",), predecessor=2**63 - 1, source_digest="d", watermark=-(2**63))
    read = read_body(EventType.CHECKPOINT_COMPLETED, body.model_dump_json().encode())
    assert read == body


@pytest.mark.parametrize(
    ("envelope", "key"),
    [
        (Envelope("1", EventType.STREAM_POLICY, "s"), b"s"),
        (Envelope("1", EventType.REGION_HEARTBEAT, "s", "r", "l"), b"s/r"),
        (Envelope("1", EventType.FILES_WRITTEN, "s", "r", "l", 0), b"s/r/0"),
    ],
)
def test_keys_are_golden(envelope: Envelope, key: bytes) -> None:
    assert message_key(envelope) == key


@pytest.mark.parametrize(
    ("stream", "of_1", "of_8", "of_12"),
    [("flights", 0, 2, 6), ("orders", 0, 6, 2), ("a", 0, 3, 3), ("stream-with.dots_1", 0, 7, 3)],
)
def test_partitions_are_golden(stream: str, of_1: int, of_8: int, of_12: int) -> None:
    """Another partition for a stream would stall it: these numbers never change."""
    assert [partition_of(stream, partitions) for partitions in (1, 8, 12)] == [of_1, of_8, of_12]


@given(NAMES, st.integers(1, 500))
def test_a_partition_is_one_of_the_topic(stream: str, partitions: int) -> None:
    assert 0 <= partition_of(stream, partitions) < partitions


def test_a_bad_body_is_poison_of_its_stream() -> None:
    message = encode(full_event())
    poison = read_event(message.headers, b'{"format": "paimon"')
    assert isinstance(poison, Poison)
    assert poison.stream == "flights"
    assert not poison.newer_version
    assert "files.written" in poison.reason
