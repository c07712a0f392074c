"""Every message that cannot be used gives its flaw: a code with arguments, and never an exception."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.events.codec import Flaw, read_attributes, read_body, read_files, read_record
from sluicegate.events.encoding import encode_event, encode_notification
from sluicegate.events.envelope import UNCOUNTED, EventType, LogRecord, RawHeader
from sluicegate.events.models import FilesWritten
from sluicegate.events.notifications import NotificationType, read_notification
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from sluicegate.events.signing import Signatures
from tests.events.examples import BODIES, TIME, envelope_of, notification_of

RawHeaders = tuple[RawHeader, ...]
KIND = EventType.FILES_WRITTEN
ENVELOPE = envelope_of(KIND)
MESSAGE = encode_event(ENVELOPE, BODIES[KIND], TIME)
NOTIFICATION = encode_notification(notification_of(NotificationType.COMMITTED), TIME)
HUGE = [b"%d" % 10**18, b"%d" % 10**30, b"9" * 10_000]
BROKEN = [
    b"",
    b"null",
    b"[]",
    b"{",
    b"\xff\xfe",
    b"\x00",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"9" * 100_000,
    b"NaN",
]


def changed(**values: bytes | None) -> RawHeaders:
    """Return the headers of a good event with these attributes in place of its own."""
    return tuple((name, values.get(name.removeprefix("ce_"), value)) for name, value in MESSAGE.headers)


def without(*names: str) -> RawHeaders:
    return tuple(header for header in MESSAGE.headers if header[0] not in names)


def flaw(headers: RawHeaders) -> Flaw:
    found = read_attributes(headers)
    assert isinstance(found, Flaw), found
    return found


def code(headers: RawHeaders) -> Code:
    return flaw(headers).problem.code


# --- versions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [b"3", b"10", b"999999999"])
@pytest.mark.parametrize("name", [b"files.written", b"region.registered"])
def test_a_newer_major_version_stalls_its_stream(name: bytes, version: bytes) -> None:
    headers = changed(type=b"sluicegate." + name + b".v" + version)
    reading = read_record(17, 0, headers, b"anything")
    assert reading.record is None
    assert reading.flaw is not None
    assert reading.flaw.stalls
    assert reading.flaw.stream == "flights"
    assert reading.flaw.problem == Problem(
        code=Code.RECORD_UNREADABLE, number=17, detail=f"sluicegate.{name.decode()}.v{version.decode()}"
    )


@pytest.mark.parametrize("stream", [None, b"a b", b"\xff"])
def test_a_newer_version_without_a_stream_can_stall_none(stream: bytes | None) -> None:
    found = flaw(changed(type=b"sluicegate.files.written.v3", stream=stream))
    assert (found.problem.code, found.stream, found.stalls) == (Code.UNKNOWN_TYPE, None, False)
    assert (found.problem.names, found.problem.detail) == (("ce_type",), "sluicegate.files.written.v3")


@pytest.mark.parametrize("version", [b"", b".v2", b".v3"])
def test_a_probe_is_read_over(version: bytes) -> None:
    headers = (("ce_type", b"sluicegate.probe" + version), ("ce_stream", b"flights"))
    assert read_record(17, 0, headers, b"") == (None, None)
    assert Signatures("t", "required", {"k": b"k" * 32}).read(17, 0, headers, None) == (None, None)


# --- attributes of every message ------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"sluicegate.files.written",
        b"sluicegate.files.written.v0",
        b"sluicegate.files.written.v02",
        b"sluicegate.files.written.v5\n",
        b"sluicegate.files.written.v3\n",
        b"sluicegate.files.written.v-2",
        b"sluicegate.files.written.v\xd9\xa2",
        b"sluicegate.files.unwritten.v5",
        b"sluicegate.commit.visible.v5",
        b"sluicegate.commit.visible.v3",
        b"sluicegate.region.not_invented_yet.v3",
        b"sluicegate.nonsense.v3",
        b"nonsense.v3",
        b"sluicegate.nonsense.v999999999",
        b"com.example.v3",
        b"\xff\xfe",
        b"x" * 100_000,
    ],
)
def test_unknown_types(raw: bytes) -> None:
    found = flaw(changed(type=raw))
    assert (found.problem.code, found.problem.names) == (Code.UNKNOWN_TYPE, ("ce_type",))
    assert not found.stalls
    assert len(found.problem.model_dump_json()) < 1_000


def test_a_message_without_a_type_is_no_event() -> None:
    for headers in ((), changed(type=None), without("ce_type"), (("other", b"1"), ("other", b"2"))):
        assert flaw(headers).problem == Problem(code=Code.NO_EVENT, names=("ce_type",))


BAD_SOURCES = (b"a b", b"a\n", b"<a>", "ä".encode(), b"x" * 1_001)
BAD_KINDS = (b"text/plain", b"application/cloudevents+json")


@pytest.mark.parametrize(
    ("name", "found", "values"),
    [
        ("ce_specversion", Code.SPEC_VERSION, (b"0.3", b"1.0 ", b"1", b"2.0")),
        ("ce_source", Code.SOURCE, BAD_SOURCES),
        ("content-type", Code.CONTENT_TYPE, BAD_KINDS),
    ],
)
def test_a_wrong_attribute_of_cloudevents(name: str, found: Code, values: tuple[bytes, ...]) -> None:
    assert code(without(name)) is found
    for value in (None, b"", b"\xff", *values):
        headers = tuple((each, value if each == name else held) for each, held in MESSAGE.headers)
        assert code(headers) is found, value


@pytest.mark.parametrize("value", [b"/another/producer", b"https://a.example/?b=c#d", b"urn:x:1%20"])
def test_any_uri_reference_is_a_source(value: bytes) -> None:
    assert read_attributes(changed(source=value)) == ENVELOPE


# Twice the same attributes: a reader that takes the first value must not differ from one that takes the last.
@pytest.mark.parametrize(("name", "value"), list(MESSAGE.headers))
@pytest.mark.parametrize("other", [None, b"", b"\xff", b"1"])
def test_a_contradiction(name: str, value: bytes, other: bytes | None) -> None:
    for headers in ((*MESSAGE.headers, (name, other)), ((name, other), *MESSAGE.headers)):
        found = flaw(headers)
        assert (found.problem.code, found.problem.names) == (Code.CONTRADICTION, (name,))
        assert found.stream == (None if name == "ce_stream" else "flights")


def test_a_flaw_stays_short() -> None:
    """It goes into a dead letter, whose size has a limit."""
    many = tuple((f"ce_{'x' * 5_000}{i}", b"%d" % j) for i in range(50) for j in range(2))
    for headers in ((*MESSAGE.headers, *many), changed(region=b"x" * 100_000), changed(type=b"y" * 10**6)):
        assert len(flaw(headers).problem.model_dump_json()) < 2_000
    body = {"decision": 1, "digest": "x", "cut": {"x" * 100_000: {"checkpoint": -1}}}
    found = read_body(EventType.CUT_DECIDED, json.dumps(body).encode())
    assert isinstance(found, Problem)
    assert len(found.model_dump_json()) < 2_000


# --- attributes of a type -------------------------------------------------------------------------


NAMES = (b"", b"a/b", b"a\n", b"\xff", b"-a", b"x" * 201, "ä".encode(), b"a b")
NUMBERS = (
    b"",
    b"-1",
    b"+1",
    b" 1",
    b"1\n",
    b"1_0",
    b"1.0",
    b"1e3",
    b"0x1",
    b"01",
    b"\xd9\xa1",
    b"\xff",
    *HUGE,
)
IDS = (b"", b"\xff", b"x" * 65)


@pytest.mark.parametrize(
    ("attribute", "values"),
    [
        *((name, NAMES) for name in ("stream", "region", "incarnation", "writer")),
        *((name, NUMBERS) for name in ("checkpoint", "files", "rows", "bytes")),
        *((name, IDS) for name in ("id", "attempt")),
    ],
)
def test_a_malformed_attribute(attribute: str, values: tuple[bytes, ...]) -> None:
    for value in values:
        found = flaw(changed(**{attribute: value})).problem
        assert (found.code, found.names) == (Code.MALFORMED_ATTRIBUTE, (f"ce_{attribute}",))
        assert found.detail == value[:100].decode(errors="replace")


def test_the_largest_number_is_read() -> None:
    assert read_attributes(changed(checkpoint=b"9" * 18)) == ENVELOPE._replace(checkpoint=10**18 - 1)


@pytest.mark.parametrize(
    "attribute", ["id", "stream", "region", "incarnation", "checkpoint", "writer", "attempt"]
)
def test_a_missing_attribute(attribute: str) -> None:
    name = f"ce_{attribute}"
    stream = None if attribute == "stream" else "flights"
    expected = Flaw(Problem(code=Code.MISSING_ATTRIBUTE, names=(name,)), stream)
    assert flaw(without(name)) == expected
    assert flaw(changed(**{attribute: None})) == expected


def test_the_number_of_files_may_be_absent() -> None:
    """It is unknown then, and never 0: who reads the body counts."""
    headers = without("ce_files", "ce_rows", "ce_bytes")
    uncounted = ENVELOPE._replace(files=UNCOUNTED, rows=0, bytes=0)
    assert read_attributes(headers) == uncounted
    assert read_files(uncounted, MESSAGE.value) == BODIES[EventType.FILES_WRITTEN]
    assert read_record(1, 2, headers, MESSAGE.value).record == LogRecord(1, 2, ENVELOPE, None)
    unreadable = read_record(1, 2, headers, b"{}").record
    assert unreadable is not None
    assert unreadable.envelope == uncounted._replace(files=0)


def test_rows_and_bytes_may_be_absent() -> None:
    assert read_attributes(without("ce_rows", "ce_bytes", "ce_time")) == ENVELOPE._replace(rows=0, bytes=0)


@pytest.mark.parametrize(("attribute", "value"), [("ce_id", b""), ("ce_stream", b"a b"), ("ce_region", b"/")])
def test_malformed_attributes_of_notifications(attribute: str, value: bytes) -> None:
    headers = [header for header in NOTIFICATION.headers if header[0] != attribute]
    found = read_notification([*headers, (attribute, value)], NOTIFICATION.value)
    assert isinstance(found, Flaw)
    assert (found.problem.code, found.problem.names) == (Code.MALFORMED_ATTRIBUTE, (attribute,))


# --- bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, *BROKEN], ids=range(len(BROKEN) + 1))
def test_broken_json(value: bytes | None) -> None:
    for kind in EventType:
        found = read_body(kind, value)
        assert isinstance(found, Problem), kind
        assert found.code is Code.MALFORMED_BODY
    for outcome in NotificationType:
        headers = encode_notification(notification_of(outcome), TIME).headers
        read = read_notification(headers, value)
        assert isinstance(read, Flaw), outcome
        assert (read.problem.code, read.stream) == (Code.MALFORMED_BODY, "flights")


def test_a_malformed_body_is_a_record_without_body_and_a_flaw() -> None:
    """The core has to know that there is a completion, also one that nobody can read."""
    kind = EventType.CHECKPOINT_COMPLETED
    message = encode_event(envelope_of(kind), BODIES[kind], TIME)
    record, found = read_record(3, 4, message.headers, b"{}")
    assert record is not None
    assert record[:4] == (3, 4, envelope_of(kind), None)
    assert record.unreadable
    assert found is not None
    assert found == Flaw(
        Problem(code=Code.MALFORMED_BODY, names=("predecessor",), detail="Field required"), "flights"
    )
    assert not found.stalls


@pytest.mark.parametrize(
    ("kind", "change", "place"),
    [
        (EventType.FILES_WRITTEN, {"schema_id": "0"}, "schema_id"),
        (EventType.FILES_WRITTEN, {"schema_id": True}, "schema_id"),
        (EventType.FILES_WRITTEN, {"schema_id": 0.5}, "schema_id"),
        (EventType.FILES_WRITTEN, {"schema_id": 2**63}, "schema_id"),
        (EventType.FILES_WRITTEN, {"format": "paimon\n"}, "format"),
        (EventType.FILES_WRITTEN, {"files": {}}, "files"),
        (EventType.FILES_WRITTEN, {"files": [{"size": 1, "rows": 1}]}, "files.0.path"),
        (EventType.FILES_WRITTEN, {"files": [{"path": "../a", "size": 1, "rows": 1}]}, "files.0.path"),
        (EventType.FILES_WRITTEN, {"files": [{"path": "a", "size": 1, "rows": 2**40 + 1}]}, "files.0.rows"),
        (EventType.CUT_DECIDED, {"decision": 0}, "decision"),
        (EventType.CUT_DECIDED, {"decision": 2**62 + 1}, "decision"),
        (EventType.CUT_DECIDED, {"head": {"id": 2**63, "identity": "a"}}, "head.id"),
        (EventType.CUT_DECIDED, {"head": {"id": 10**30, "identity": "a"}}, "head.id"),
        (EventType.CUT_ABANDONED, {"attempt": 2**63}, "attempt"),
        (EventType.CUT_ABANDONED, {"kind": "late"}, "kind"),
        (EventType.STREAM_POLICY, {"max_consecutive_fallbacks": 2**63}, "max_consecutive_fallbacks"),
        (EventType.STREAM_POLICY, {"max_failure_ratio": 1.1}, "max_failure_ratio"),
        (EventType.STREAM_COMMAND, {"command": "accept"}, "command"),
        (EventType.REGION_REGISTERED, {"assignment": {"number": 0, "regions": []}}, "assignment.regions"),
        (EventType.REGION_HEARTBEAT, {"run": None}, "run"),
    ],
)
def test_bodies_that_differ_from_their_schema(kind: EventType, change: dict[str, Any], place: str) -> None:
    good = json.loads(encode_event(envelope_of(kind), BODIES[kind], TIME).value)
    found = read_body(kind, json.dumps(good | change).encode())
    assert isinstance(found, Problem)
    assert (found.code, found.names) == (Code.MALFORMED_BODY, (place,))
    assert found.detail


@pytest.mark.parametrize(
    ("spelling", "number"),
    [("4.0", 4), ("40e-1", 4), ("4E0", 4), ("-0.0", 0), ("9007199254740993.0", 2**53 + 1), ("1e3", 1000)],
)
def test_each_spelling_of_a_whole_number_is_read_exactly(spelling: str, number: int) -> None:
    good = json.loads(MESSAGE.value) | {"schema_id": 0}
    value = json.dumps(good).replace('"schema_id": 0', f'"schema_id": {spelling}').encode()
    found = read_body(EventType.FILES_WRITTEN, value)
    assert isinstance(found, FilesWritten)
    assert found.schema_id == number


@pytest.mark.parametrize("spelling", ["4.5", "1e400000000", "-2.0", "9223372036854775808.0", "1e-400000000"])
def test_other_numbers_are_malformed(spelling: str) -> None:
    value = json.dumps(json.loads(MESSAGE.value) | {"schema_id": 0}).replace(
        '"schema_id": 0', f'"schema_id": {spelling}'
    )
    found = read_body(EventType.FILES_WRITTEN, value.encode())
    assert isinstance(found, Problem)
    assert (found.code, found.names) == (Code.MALFORMED_BODY, ("schema_id",))


def _lists_a_key_twice(text: str) -> bool:
    found = list[bool]()
    json.loads(text, object_pairs_hook=lambda pairs: found.append(len(dict(pairs)) < len(pairs)))
    return any(found)


@given(
    separators=st.sampled_from([(",", ":"), (", ", ": "), (",", " :"), (",\n", "\t:")]),
    path=st.sampled_from(["a.parquet", 'm=":"/a.parquet', 'm=\\" :/a.parquet', "m=x y/a.parquet"]),
    added=st.lists(st.sampled_from(["size", "partition", "m", "path", "newer"]), max_size=2),
)
def test_a_list_of_files_with_a_key_twice_is_malformed(
    separators: tuple[str, str], path: str, added: list[str]
) -> None:
    """However the text is spelled: most texts are judged by the number of their keys."""
    body = {
        "format": "paimon",
        "location": "file:/t",
        "schema_id": 3,
        "files": [{"path": path, "size": 10, "rows": 2, "partition": {"m": "1"}}],
    }
    text = json.dumps(body, separators=separators)
    for key in added:
        text = text.replace("{", f'{{"{key}"{separators[1]}"x",', 3 if key == "newer" else 1)
    last = f'"size"{separators[1]}10'
    text = text.replace(last, f"{last},{last}") if "size" in added else text
    found = read_body(EventType.FILES_WRITTEN, text.encode())
    if _lists_a_key_twice(text):
        assert isinstance(found, Problem)
    elif not added:
        assert isinstance(found, FilesWritten)


@pytest.mark.parametrize(
    "value",
    [
        b'{"final": 1, "run": "a", "final": 2}',
        b'{"final": 1, "run": "a", "final": 1}',
        b'{"final": 1, "run": "a", "newer": [{"final": 2, "x": 0, "final": 3}]}',
        b'{"final": 1, "run": "a", "fin\\u0061l": 2}',
    ],
)
def test_a_repeated_key_is_malformed(value: bytes) -> None:
    found = read_body(EventType.REGION_CLOSED, value)
    assert isinstance(found, Problem)
    assert found == Problem(
        code=Code.MALFORMED_BODY, cause=Cause(code=CauseCode.KEY_REPEATED, names=("final",))
    )
    assert isinstance(read_body(EventType.REGION_CLOSED, value.replace(b": 2", b": 2.0")), Problem)


@pytest.mark.parametrize(
    "kind",
    [
        b"application/json; charset=utf-8",
        b'Application/JSON;charset="UTF-8"',
        b"application/json ; profile=x;",
    ],
)
def test_a_media_type_may_have_parameters(kind: bytes) -> None:
    headers = [(name, kind if name == "content-type" else value) for name, value in MESSAGE.headers]
    assert read_record(3, 4, headers, MESSAGE.value).flaw is None


def test_an_order_without_its_arguments_is_malformed() -> None:
    found = read_body(EventType.STREAM_COMMAND, b'{"command": "revert", "decision": 1}')
    assert isinstance(found, Problem)
    assert "revert needs region" in found.detail


def test_files_must_be_as_many_as_announced() -> None:
    found = read_files(ENVELOPE._replace(files=3), MESSAGE.value)
    assert found == Problem(
        code=Code.MALFORMED_BODY,
        names=("files",),
        cause=Cause(code=CauseCode.FILES_MISCOUNTED, number=2, other=3),
    )


def test_a_path_may_be_listed_once() -> None:
    body = json.loads(MESSAGE.value)
    body["files"] = [body["files"][0]] * 2
    found = read_files(ENVELOPE, json.dumps(body).encode())
    assert isinstance(found, Problem)
    assert (found.code, found.names) == (Code.MALFORMED_BODY, ("files.1.path",))
    assert found.cause == Cause(code=CauseCode.PATH_REPEATED, names=(body["files"][0]["path"],))
