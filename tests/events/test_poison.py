"""Whatever stands on the topic, reading it gives an event or the reason why not, and never an exception."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluicegate.events import (
    BODIES,
    BadBody,
    Envelope,
    Event,
    EventType,
    FileInfo,
    FilesWritten,
    Flaw,
    Poison,
    encode,
    read_body,
    read_envelope,
    read_event,
)

HUGE = [b"%d" % 10**18, b"%d" % 10**30, b"9" * 10_000]
ESCAPES = ["", "/a", "..", "../a", "a/..", "a/../b", "a\n/../b", "s3://b/a", "file:a", "C:a"]
RawHeaders = tuple[tuple[str, bytes | None], ...]

BODY = FilesWritten(
    format="paimon",
    format_version=1,
    location="file:/t",
    schema_id=0,
    files=(FileInfo(path="a.parquet", size=10, rows=2, metadata=b"x"),),
)
EVENT = Event(Envelope("6f0c", EventType.FILES_WRITTEN, "flights", "EWR", "q1.0", 7, "part-3", 1, "a1"), BODY)
MESSAGE = encode(EVENT)


def changed(**values: bytes | None) -> RawHeaders:
    """The headers of a good event with these attributes in place of its own."""
    return tuple((name, values.get(name.removeprefix("ce_"), value)) for name, value in MESSAGE.headers)


def without(*attributes: str) -> RawHeaders:
    return tuple(header for header in MESSAGE.headers if header[0].removeprefix("ce_") not in attributes)


def poison(headers: RawHeaders) -> Poison:
    read = read_envelope(headers)
    assert isinstance(read, Poison), read
    return read


@pytest.mark.parametrize("version", [b"2", b"10", b"999999999"])
@pytest.mark.parametrize("name", [b"files.written", b"region.not_invented_yet"])
def test_a_newer_major_version_is_told_apart(name: bytes, version: bytes) -> None:
    read = poison(changed(type=b"sluicegate." + name + b".v" + version))
    assert read.newer_version
    assert read.stream == "flights"
    assert "upgrade" in read.reason


def test_a_newer_major_version_may_have_other_attributes() -> None:
    """It stalls its stream, whatever else this release does not understand about it."""
    headers = (("ce_type", b"sluicegate.files.written.v2"), ("ce_stream", b"flights"))
    assert poison(headers) == poison(changed(type=b"sluicegate.files.written.v2"))


@pytest.mark.parametrize(
    "event_type",
    [
        b"",
        b"sluicegate.files.written",
        b"sluicegate.files.written.v0",
        b"sluicegate.files.written.v1\n",
        b"sluicegate.files.written.v2\n",
        b"sluicegate.files.written.v-2",
        b"sluicegate.files.written.v\xd9\xa2",
        b"sluicegate.files.unwritten.v1",
        b"com.example.v2",
        b"\xff\xfe",
        b"x" * 100_000,
    ],
)
def test_unknown_types_are_poison(event_type: bytes) -> None:
    read = poison(changed(type=event_type))
    assert not read.newer_version
    assert read.reason.startswith("unknown event type")
    assert len(read.reason) < 1000


@pytest.mark.parametrize("attribute", ["stream", "region", "lineage", "writer"])
@pytest.mark.parametrize("value", [b"", b"a/b", b"a\n", b"\xff", b"-a", b"x" * 201, "ä".encode(), b"a b"])
def test_malformed_names_are_poison(attribute: str, value: bytes) -> None:
    assert f"ce_{attribute}" in poison(changed(**{attribute: value})).reason


@pytest.mark.parametrize("attribute", ["checkpoint", "files"])
@pytest.mark.parametrize(
    "value",
    [b"", b"-1", b"+1", b" 1", b"1\n", b"1_0", b"1.0", b"1e3", b"0x1", b"\xd9\xa1", b"\xff", *HUGE],
)
def test_malformed_numbers_are_poison(attribute: str, value: bytes) -> None:
    assert f"ce_{attribute}" in poison(changed(**{attribute: value})).reason


def test_the_largest_number_is_read() -> None:
    read = read_envelope(changed(checkpoint=b"9" * 18))
    assert read == EVENT.envelope._replace(checkpoint=10**18 - 1)


@pytest.mark.parametrize("attribute", ["id", "attempt"])
@pytest.mark.parametrize("value", [b"", b"\xff", b"x" * 65])
def test_malformed_ids_are_poison(attribute: str, value: bytes) -> None:
    assert f"ce_{attribute}" in poison(changed(**{attribute: value})).reason


@pytest.mark.parametrize("value", [None, b"", b"yesterday", b"\xff"])
def test_no_reader_depends_on_the_time(value: bytes | None) -> None:
    assert read_envelope(changed(time=value)) == EVENT.envelope


@pytest.mark.parametrize(
    "attribute", ["id", "type", "stream", "region", "lineage", "checkpoint", "writer", "attempt"]
)
def test_missing_attributes_are_named(attribute: str) -> None:
    read = poison(without(attribute))
    assert f"ce_{attribute}" in read.reason
    assert read.stream == (None if attribute == "stream" else "flights")
    assert poison(changed(**{attribute: None})) == read


@pytest.mark.parametrize("value", [None, b"", b"0.3", b"1.0 ", b"1", b"2.0", b"\xff"])
def test_another_spec_version_is_poison(value: bytes | None) -> None:
    read = poison(changed(specversion=value))
    assert (read.flaw, read.stream) == (Flaw.SPEC_VERSION, "flights")
    assert poison(without("specversion")).flaw is Flaw.SPEC_VERSION


@pytest.mark.parametrize("value", [None, b"", b"\xff"])
def test_a_source_is_needed(value: bytes | None) -> None:
    assert poison(changed(source=value)).flaw is Flaw.SOURCE
    assert poison(without("source")).flaw is Flaw.SOURCE


def test_any_source_will_do() -> None:
    assert read_envelope(changed(source=b"/another/producer")) == EVENT.envelope


@pytest.mark.parametrize("value", [None, b"", b"text/plain", b"application/cloudevents+json", b"\xff"])
def test_another_content_type_is_poison(value: bytes | None) -> None:
    headers = tuple((name, value if name == "content-type" else held) for name, held in MESSAGE.headers)
    assert poison(headers).flaw is Flaw.CONTENT_TYPE
    missing = tuple(header for header in MESSAGE.headers if header[0] != "content-type")
    assert poison(missing).flaw is Flaw.CONTENT_TYPE


def test_two_content_types_are_a_contradiction() -> None:
    assert poison((("content-type", b"text/plain"), *MESSAGE.headers)).flaw is Flaw.CONTRADICTION


def test_optional_attributes_may_be_absent_or_without_value() -> None:
    expected = EVENT.envelope._replace(files=0)
    assert read_envelope(without("files", "time")) == expected
    assert read_envelope(changed(files=None, time=None)) == expected


def test_no_headers_at_all_are_poison() -> None:
    assert "ce_type" in poison(()).reason


ATTRIBUTES = [header for header in MESSAGE.headers if header[0].startswith("ce_")]


@pytest.mark.parametrize(("name", "value"), ATTRIBUTES, ids=[name for name, _ in ATTRIBUTES])
def test_contradictory_attributes_are_poison(name: str, value: bytes) -> None:
    for headers in ((*MESSAGE.headers, (name, value + b"1")), ((name, None), *MESSAGE.headers)):
        assert name in poison(headers).reason


def test_repeated_equal_headers_and_foreign_ones_are_harmless() -> None:
    headers = (*MESSAGE.headers, *MESSAGE.headers, ("trace", b"1"), ("trace", b"2"), ("trace", None))
    assert read_envelope(headers) == EVENT.envelope


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"format": "paimon"',
        b"\xff\xfe",
        b"\x00",
        b"[" * 100_000,
        b'{"files":' * 100_000,
        b"1" * 100_000,
        b"NaN",
    ],
)
@pytest.mark.parametrize("event_type", [each for each in EventType if each is not EventType.REGION_HEARTBEAT])
def test_broken_json_is_a_bad_body(event_type: EventType, body: bytes | None) -> None:
    with pytest.raises(BadBody, match=str(event_type)):
        read_body(event_type, body)


@pytest.mark.parametrize(
    "change",
    [
        {"schema_id": "0"},
        {"schema_id": 0.5},
        {"schema_id": True},
        {"schema_id": -1},
        {"schema_id": None},
        {"format": "a/b"},
        {"format": "paimon\n"},
        {"files": {}},
        {"files": [{"path": "a", "size": 1, "rows": 1, "metadata": "not base64!"}]},
        {"files": [{"path": "a", "size": 1, "rows": 1, "partition": {"m": 1}}]},
        *({"files": [{"path": path, "size": 1, "rows": 1}]} for path in ESCAPES),
        {"files": [{"path": "a", "size": 2**63, "rows": 1}]},
        {"files": [{"path": "a", "size": 1, "rows": 1, "min_event_time": -(10**30)}]},
        {"files": [{"size": 1, "rows": 1}]},
    ],
)
def test_bodies_beside_their_schema_are_refused(change: dict[str, Any]) -> None:
    body = json.loads(MESSAGE.value) | change
    with pytest.raises(BadBody, match="malformed at"):
        read_body(EventType.FILES_WRITTEN, json.dumps(body).encode())


@pytest.mark.parametrize("path", ["a", "m=1/a.b", "..a", "a..", "a/..b/c..", "dt=1:2/a", "./a", "1:2"])
def test_paths_below_the_location_are_read(path: str) -> None:
    body = json.loads(MESSAGE.value) | {"files": [{"path": path, "size": 1, "rows": 1}]}
    read = read_body(EventType.FILES_WRITTEN, json.dumps(body).encode())
    assert isinstance(read, FilesWritten)
    assert read.files[0].path == path


def test_the_reason_stays_short() -> None:
    """It goes into a dead letter, whose size has a limit."""
    body = {"decision": 1, "completions": "x", "cut": {"x" * 100_000: {"lineage": "l", "checkpoint": -1}}}
    read = read_event((*changed(type=b"sluicegate.cut.decided.v1"),), json.dumps(body).encode())
    assert isinstance(read, Poison)
    assert len(read.reason) < 1000


NUMBERS = [b"0", b"-1", b"1_0", b"1" * 31, b"%d" % 10**30, b"9" * 5000]
NAMES = st.sampled_from([name for name, _ in MESSAGE.headers] + ["ce_", "ce_files ", "", "traceparent"])
GOOD_VALUES = st.sampled_from([value for _, value in MESSAGE.headers])
VALUES = st.none() | st.binary(max_size=80) | GOOD_VALUES | st.sampled_from(NUMBERS)
TYPES = st.sampled_from([f"sluicegate.{each}.v1".encode() for each in EventType])


@st.composite
def damaged_headers(draw: st.DrawFn) -> RawHeaders:
    """Good headers, some of them dropped, replaced, doubled or in another order."""
    headers: list[tuple[str, bytes | None]] = [
        header for header in MESSAGE.headers if draw(st.integers(0, 9)) > 0
    ]
    if draw(st.booleans()):
        headers.append(("ce_type", draw(TYPES)))
    headers += draw(st.lists(st.tuples(NAMES, VALUES), max_size=3))
    if draw(st.booleans()):
        draw(st.randoms(use_true_random=False)).shuffle(headers)
    return tuple(headers)


@settings(max_examples=500)
@given(headers=damaged_headers(), value=st.none() | st.binary(max_size=50) | st.just(MESSAGE.value))
@example(headers=changed(checkpoint=None), value=None)
def test_reading_never_raises(headers: RawHeaders, value: bytes | None) -> None:
    envelope = read_envelope(headers)
    event = read_event(headers, value)
    if isinstance(envelope, Poison):
        assert event == envelope
        assert envelope.reason
        return
    assert isinstance(event, Poison | Event)
    assert 0 < len(envelope.id) <= 64
    assert envelope.stream
    assert -1 <= envelope.checkpoint < 10**18
    assert envelope.files >= 0
    if isinstance(event, Event) and envelope == EVENT.envelope:
        assert event == EVENT


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(sorted({field for body in BODIES.values() for field in body.model_fields}))


@settings(max_examples=300)
@given(st.sampled_from(EventType), st.dictionaries(FIELDS, JSON_VALUES), st.booleans())
def test_bodies_of_any_json_are_read_or_bad(
    event_type: EventType, values: dict[str, Any], on_top_of_a_good_one: bool
) -> None:
    good = json.loads(MESSAGE.value) if on_top_of_a_good_one else {}
    try:
        read_body(event_type, json.dumps(good | values).encode())
    except BadBody as error:
        assert str(error)  # noqa: PT017
