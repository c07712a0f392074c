"""Completions that carry their files, and what a completion may leave out."""

import json
from typing import Any

import pytest

from sluicegate.events.codec import read_completion, read_record
from sluicegate.events.encoding import Unencodable, encode_event
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import CheckpointCompleted, Position, default_source_digest
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from tests.events.examples import BODIES, CARRIED, CARRYING, FILES, POSITION, TIME, envelope_of

KIND = EventType.CHECKPOINT_COMPLETED
NAMING = envelope_of(KIND)
OFFSETS = CARRIED.source_offsets


def read(envelope: Envelope, body: dict[str, Any]) -> CheckpointCompleted | Problem:
    return read_completion(envelope, json.dumps(body).encode())


def body_of(**change: Any) -> dict[str, Any]:
    """Return the body that carries files, with another content; None: without this field."""
    found = json.loads(CARRIED.model_dump_json()) | change
    return {name: value for name, value in found.items() if value is not None}


def test_one_that_carries_files_names_itself() -> None:
    found = read(CARRYING, body_of(events=None))
    assert isinstance(found, CheckpointCompleted)
    assert found == CheckpointCompleted(
        events=(CARRYING.id,),
        predecessor=Position.model_construct(incarnation="q1.0", checkpoint=6, digest=""),
        source_digest=default_source_digest(7, [CARRYING.id], OFFSETS),
        watermark=TIME,
        source_offsets=OFFSETS,
    )
    message = encode_event(CARRYING, CARRIED, TIME)
    record = read_record(3, 4, message.headers, message.value).record
    assert record is not None
    assert (record.envelope, record.body) == (CARRYING, found)


@pytest.mark.parametrize(
    ("envelope", "change", "place", "problem"),
    [
        (CARRYING, {"events": ["e1"]}, (), "events and files exclude each other"),
        (CARRYING, {"files": None}, ("files",), CauseCode.ATTEMPT_WITHOUT_FILES),
        (CARRYING, {"files": None, "events": None}, (), "either events or files is needed"),
        (NAMING, {}, ("files",), CauseCode.FILES_WITHOUT_ATTEMPT),
        (NAMING, {"files": None, "events": None}, (), "either events or files is needed"),
        (CARRYING, {"files": []}, ("files",), "object"),
        (CARRYING, {"predecessor": {}}, ("predecessor.checkpoint",), "required"),
        (
            CARRYING,
            {"predecessor": {"incarnation": "p.0", "checkpoint": 1}},
            ("predecessor.digest",),
            CauseCode.PREDECESSOR_WITHOUT_DIGEST,
        ),
    ],
)
def test_what_does_not_go_together_is_malformed(
    envelope: Envelope, change: dict[str, Any], place: tuple[str, ...], problem: CauseCode | str
) -> None:
    found = read(envelope, body_of(**change))
    assert isinstance(found, Problem)
    assert (found.code, found.names) == (Code.MALFORMED_BODY, place)
    if isinstance(problem, CauseCode):
        assert found.cause is not None
        assert found.cause.code is problem
    else:
        assert problem in found.detail
    headers = encode_event(envelope, CARRIED if envelope is CARRYING else BODIES[KIND], TIME).headers
    reading = read_record(3, 4, headers, json.dumps(body_of(**change)).encode())
    assert reading.flaw is not None
    assert not reading.flaw.stalls
    assert reading.record is not None
    assert reading.record.body is None


@pytest.mark.parametrize("lacking", ["ce_writer", "ce_attempt"])
def test_writer_and_attempt_are_both_needed(lacking: str) -> None:
    message = encode_event(CARRYING, CARRIED, TIME)
    headers = [header for header in message.headers if header[0] != lacking]
    flaw = read_record(3, 4, headers, message.value).flaw
    assert flaw is not None
    assert flaw.problem == Problem(code=Code.MISSING_ATTRIBUTE, names=(lacking,))


def test_what_no_reader_would_take_is_not_encoded() -> None:
    with pytest.raises(Unencodable):
        encode_event(NAMING, BODIES[KIND].model_copy(update={"predecessor": None, "events": ("",)}), TIME)
    with pytest.raises(ValueError, match="the envelope has 0 files, and the body 2"):
        encode_event(NAMING, CARRIED, TIME)
    with pytest.raises(ValueError, match="the envelope has 1 files, and the body 2"):
        encode_event(CARRYING._replace(files=1), CARRIED, TIME)


def test_the_files_are_read_only_when_they_are_needed() -> None:
    found = read(CARRYING, body_of(files={"files": [{"path": "../outside"}]}))
    assert isinstance(found, CheckpointCompleted)


def test_the_default_digest_depends_on_the_number_the_offsets_and_what_is_included() -> None:
    digests = {
        default_source_digest(number, events, offsets)
        for number in (1, 2)
        for events in ([], ["e1"], ["e2"], ["e1", "e2"])
        for offsets in (None, "1", "2")
    }
    assert len(digests) == 24


def test_one_that_names_events_may_leave_the_same_out() -> None:
    body = {"events": ["e1", "e2"], "predecessor": {"checkpoint": 6}, "source_offsets": OFFSETS}
    found = read(NAMING, body)
    assert isinstance(found, CheckpointCompleted)
    assert found.events == ("e1", "e2")
    assert found.source_digest == default_source_digest(7, ["e1", "e2"], OFFSETS)
    assert found.predecessor == Position.model_construct(incarnation="q1.0", checkpoint=6, digest="")
    whole = read(NAMING, {**body, "predecessor": POSITION.model_dump(), "source_digest": "d"})
    assert isinstance(whole, CheckpointCompleted)
    assert (whole.predecessor, whole.source_digest) == (POSITION, "d")


def test_a_cause_has_its_arguments() -> None:
    found = read(NAMING, {"events": [], "predecessor": {"incarnation": "p.0", "checkpoint": 1}})
    assert isinstance(found, Problem)
    assert found.cause == Cause(code=CauseCode.PREDECESSOR_WITHOUT_DIGEST, names=("p.0",))
    assert len(FILES.files) == CARRYING.files
