"""Reading any message gives an event or a flaw, and never an exception."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluicegate.events import codec
from sluicegate.events.codec import Flaw, read_attributes, read_body, read_files, read_record
from sluicegate.events.encoding import encode_event, encode_notification
from sluicegate.events.envelope import BODIES as MODELS
from sluicegate.events.envelope import UNCOUNTED, Envelope, EventType, RawHeader, wire_type
from sluicegate.events.models import FilesWritten
from sluicegate.events.notifications import (
    NOTIFICATION_BODIES,
    Notification,
    NotificationType,
    read_notification,
)
from sluicegate.events.problems import Code, Problem
from tests.events.examples import BODIES, TIME, envelope_of, notification_of

pytestmark = pytest.mark.slow

RawHeaders = tuple[RawHeader, ...]
KIND = EventType.FILES_WRITTEN
MESSAGE = encode_event(envelope_of(KIND), BODIES[KIND], TIME)
NOTIFICATION = encode_notification(notification_of(NotificationType.COMMITTED), TIME)
HUGE = [b"%d" % 10**18, b"%d" % 10**30, b"9" * 10_000]
NAMES = st.sampled_from(
    [name for name, _ in MESSAGE.headers] + ["ce_", "ce_files ", "ce_lineage", "", "trace"]
)
GOOD = st.sampled_from([value for _, value in MESSAGE.headers])
VALUES = st.none() | st.binary(max_size=80) | GOOD | st.sampled_from([b"0", b"-1", b"1_0", *HUGE])
TYPES = st.sampled_from(
    [f"sluicegate.{each}.v{n}".encode() for each in [*EventType, *NotificationType] for n in (1, 2, 3)]
)


@st.composite
def damaged_headers(draw: st.DrawFn) -> RawHeaders:
    """Good headers, some of them dropped, replaced, doubled, mutated or in another order."""
    headers: list[RawHeader] = [header for header in MESSAGE.headers if draw(st.integers(0, 9)) > 0]
    if draw(st.booleans()):
        headers = [header for header in headers if header[0] != "ce_type"]
        headers.append(("ce_type", draw(TYPES)))
    headers += draw(st.lists(st.tuples(NAMES, VALUES), max_size=3))
    if draw(st.booleans()) and headers:
        place = draw(st.integers(0, len(headers) - 1))
        name, value = headers[place]
        at = draw(st.integers(0, len(value or b"")))
        headers[place] = name, (value or b"")[:at] + draw(st.binary(max_size=2)) + (value or b"")[at + 1 :]
    if draw(st.booleans()):
        headers = draw(st.permutations(headers))
    return tuple(headers)


def completing(headers: RawHeaders) -> RawHeaders:
    """Return the headers as those of a completion that carries files."""
    kind = wire_type(EventType.CHECKPOINT_COMPLETED)
    return tuple((name, kind if name == "ce_type" else value) for name, value in headers)


ANY_HEADERS = st.lists(st.tuples(st.text(max_size=12) | NAMES, VALUES), max_size=12).map(tuple)
ANY_VALUE = st.none() | st.binary(max_size=50) | st.just(MESSAGE.value) | st.just(NOTIFICATION.value)


@settings(max_examples=500, deadline=None)
@given(headers=damaged_headers() | ANY_HEADERS, value=ANY_VALUE)
@example(headers=tuple(MESSAGE.headers[:-1]), value=None)
def test_reading_never_raises(headers: RawHeaders, value: bytes | None) -> None:
    attributes, reading = read_attributes(headers), read_record(5, 6, headers, value)
    notification = read_notification(headers, value)
    assert isinstance(notification, Notification | Flaw)
    if isinstance(attributes, Flaw):
        assert reading.record is None
        assert reading.flaw is not None
        assert reading.flaw.problem.code is attributes.problem.code
        assert reading.flaw.stream == attributes.stream
        Problem.model_validate_json(attributes.problem.model_dump_json(), strict=True)
        return
    assert isinstance(attributes, Envelope)
    assert reading.record is not None
    if attributes.files != UNCOUNTED:
        assert reading.record.envelope == attributes
    assert 0 < len(attributes.id) <= 64
    assert -1 <= attributes.checkpoint < 10**18
    assert (reading.flaw is None) == (not reading.record.unreadable)
    assert isinstance(read_files(attributes, value), FilesWritten | Problem)


@settings(max_examples=500, deadline=None)
@given(headers=damaged_headers() | damaged_headers().map(completing) | ANY_HEADERS)
@example(headers=tuple(MESSAGE.headers))
@example(headers=completing(tuple(MESSAGE.headers)))
def test_an_event_with_files_is_read_as_its_readers_do(headers: RawHeaders) -> None:
    short = read_attributes(headers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_read_written", lambda attributes, kind: None)
        assert read_attributes(headers) == short


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    sorted({name for body in [*MODELS.values(), *NOTIFICATION_BODIES.values()] for name in body.model_fields})
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(EventType), st.dictionaries(FIELDS, JSON_VALUES, max_size=4), st.booleans())
def test_bodies_of_any_json_are_read_or_malformed(
    kind: EventType, values: dict[str, Any], on_top_of_a_good_one: bool
) -> None:
    good = json.loads(BODIES[kind].model_dump_json()) if on_top_of_a_good_one else {}
    found = read_body(kind, json.dumps(good | values).encode())
    if isinstance(found, Problem):
        assert found.code is Code.MALFORMED_BODY
    else:
        # What was read can be written, and reads the same.
        assert read_body(kind, found.model_dump_json().encode()) == found
