"""The bytes of every type of message: a change here breaks what is on topics already.

`pytest tests/events/test_recorded.py --rewrite-golden` writes them. A
changed file needs a new major version.
"""

import json
from pathlib import Path

import pytest

from sluicegate.events.codec import Reading, read_attributes, read_body, read_files, read_record
from sluicegate.events.encoding import Message, encode_event, encode_notification
from sluicegate.events.envelope import EventType, LogRecord
from sluicegate.events.notifications import (
    Notification,
    NotificationType,
    read_notification,
)
from sluicegate.events.problems import CauseCode
from tests.events.examples import (
    BODIES,
    CARRIED,
    CARRYING,
    FILES,
    PROBLEM,
    TIME,
    envelope_of,
    notification_of,
)

RECORDED = Path(__file__).parent / "recorded"
WITH_FILES = f"{EventType.CHECKPOINT_COMPLETED}-with-files"


def as_text(message: Message) -> bytes:
    """Return a message as its key, its headers, an empty line and its value."""
    lines = [b"key: " + message.key, *(name.encode() + b": " + value for name, value in message.headers)]
    return b"\n".join([*lines, b"", message.value, b""])


def as_message(text: bytes) -> Message:
    """Return the message of a recorded text."""
    head, _, value = text.partition(b"\n\n")
    (_, key), *headers = (line.split(b": ", 1) for line in head.split(b"\n"))
    return Message(key, value.removesuffix(b"\n"), [(name.decode(), found) for name, found in headers])


def recorded(name: str, message: Message, rewrite: bool) -> Message:
    """Compare a message with its file; return the recorded one."""
    path = RECORDED / f"{name}.txt"
    if rewrite:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(as_text(message))
    assert as_text(message) == path.read_bytes()
    return as_message(path.read_bytes())


@pytest.mark.parametrize("kind", EventType)
def test_an_event_has_the_recorded_bytes(kind: EventType, rewrite: bool) -> None:
    envelope, body = envelope_of(kind), BODIES[kind]
    found = recorded(kind, encode_event(envelope, body, TIME), rewrite)
    held = None if kind is EventType.FILES_WRITTEN else body
    assert read_record(3, 9, found.headers, found.value) == Reading(LogRecord(3, 9, envelope, held), None)
    if held is None:
        assert read_files(envelope, found.value) == FILES


def test_a_completion_with_files_has_the_recorded_bytes(rewrite: bool) -> None:
    found = recorded(WITH_FILES, encode_event(CARRYING, CARRIED, TIME), rewrite)
    assert read_attributes(found.headers) == CARRYING
    assert read_body(EventType.CHECKPOINT_COMPLETED, found.value) == CARRIED
    assert read_files(CARRYING, found.value) == FILES


@pytest.mark.parametrize("kind", NotificationType)
def test_a_notification_has_the_recorded_bytes(kind: NotificationType, rewrite: bool) -> None:
    notification = notification_of(kind)
    found = recorded(kind, encode_notification(notification, TIME), rewrite)
    assert read_notification(found.headers, found.value) == notification


@pytest.mark.parametrize("kind", [NotificationType.REGISTRATION_ANSWERED, NotificationType.STALLED])
@pytest.mark.parametrize(
    ("code", "is_read"), [("a-cause-of-a-newer-release", True), (7, False), (None, False), ([], False)]
)
def test_a_cause_of_a_newer_release_is_read_as_unknown(
    kind: NotificationType, code: object, is_read: bool
) -> None:
    message = as_message((RECORDED / f"{kind}.txt").read_bytes())
    value = json.loads(message.value)
    value["problem"]["cause"]["code"] = code
    found = read_notification(message.headers, json.dumps(value).encode())
    assert isinstance(found, Notification) is is_read
    if isinstance(found, Notification):
        value["problem"]["cause"]["code"] = CauseCode.UNKNOWN
        assert found == read_notification(message.headers, json.dumps(value).encode())


def test_the_identity_of_a_problem_depends_on_its_code_and_arguments_alone() -> None:
    assert PROBLEM.model_copy(update={"cause": None, "detail": ""}).identity == PROBLEM.identity
    assert PROBLEM.model_copy(update={"number": 5}).identity != PROBLEM.identity


def test_every_field_of_an_example_is_set() -> None:
    """A field with its default in all examples might change its notation unnoticed."""
    for kind, body in BODIES.items():
        unset = {
            name for name, field in type(body).model_fields.items() if getattr(body, name) == field.default
        }
        # A heartbeat has one of idle, begins and silent. A registration takes over, or has a base. A
        # completion names events, or has files.
        assert unset <= {"snapshot", "begins", "silent", "takes_over", "files"}, kind


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in RECORDED.glob("*.txt")} == {*EventType, *NotificationType, WITH_FILES}
