"""Completions that carry their files, and what a completion may leave out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.events import codec
from sluicegate.events.codec import read_completion, read_files, read_record
from sluicegate.events.encoding import Unencodable, encode_event
from sluicegate.events.envelope import UNCOUNTED, Envelope, EventType
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


@pytest.mark.parametrize("stated", [UNCOUNTED, 0, 1])
@pytest.mark.parametrize("kind", [EventType.FILES_WRITTEN, EventType.CHECKPOINT_COMPLETED])
def test_an_empty_list_of_files_is_malformed(kind: EventType, stated: int) -> None:
    """A list that is empty by mistake would lose rows; a checkpoint without rows names no events."""
    files = json.loads(CARRIED.model_dump_json())["files"] | {"files": []}
    body = files if kind is EventType.FILES_WRITTEN else body_of(files=files, events=None)
    found = read_files(CARRYING._replace(type=kind, files=stated), json.dumps(body).encode())
    assert isinstance(found, Problem)
    assert (found.code, found.names[0].split(".")[-1]) == (Code.MALFORMED_BODY, "files")
    assert 'a checkpoint without rows has "events": []' in found.detail


def test_the_files_are_read_only_when_they_are_needed() -> None:
    found = read(CARRYING, body_of(files={"files": [{"path": "../outside"}]}))
    assert isinstance(found, CheckpointCompleted)


@pytest.mark.parametrize("spaces", [(",", ":"), (", ", ": ")], ids=["plain", "spaces"])
def test_a_key_twice_is_found_where_it_is_read(spaces: tuple[str, str]) -> None:
    """That of the files is, as in a `files.written`, found by the check; any other one at once."""
    text = json.dumps(body_of(events=None), separators=spaces)
    size, mark = (f'"{name}"{spaces[1]}{value}' for name, value in (("size", 10), ("watermark", TIME)))
    assert text.count(mark) == 1
    among_files = text.replace(size, f"{size}{spaces[0]}{size}").encode()
    assert isinstance(read_completion(CARRYING, among_files), CheckpointCompleted)
    assert read_files(CARRYING, among_files) == _repeated("size")
    beside_them = text.replace(mark, f"{mark}{spaces[0]}{mark}").encode()
    assert read_completion(CARRYING, beside_them) == _repeated("watermark")
    assert read_files(CARRYING, beside_them) == _repeated("watermark")


def _repeated(name: str) -> Problem:
    return Problem(code=Code.MALFORMED_BODY, cause=Cause(code=CauseCode.KEY_REPEATED, names=(name,)))


MEMBERS = st.sampled_from(
    [
        *(f'"{name}":{json.dumps(value, separators=(",", ":"))}' for name, value in body_of().items()),
        *(
            '"events":["e1"]',
            '"files":null',
            '"files":[]',
            '"files":{}',
            '"fil\\u0065s":{}',
            '"files":{},"a":1',
        ),
        *(
            '"newer":{"files":{"a":1,"a":2}}',
            '"newer":{"predecessor":null,"files":{}}',
            '"newer":"},\\"files\\":{"',
        ),
        *('"source_digest":"d"', '"watermark":1.0', '"watermark":NaN', '"listeners":{"l":"é"}', '"x\\":1'),
        *(
            '"predecessor":{"checkpoint":6,"incarnation":"q1.0","digest":"d"}',
            '"predecessor":null',
            '"a":',
            "}",
            "{",
        ),
    ]
)
MORE = st.lists(MEMBERS, min_size=1, max_size=4).map(",".join)
GOOD = {name: json.dumps(value, separators=(",", ":")) for name, value in body_of().items()}
SHAPES = st.sampled_from(
    [
        "{%s}",
        f'{{"events":[],"files":{GOOD["files"]},"predecessor":{GOOD["predecessor"]},%s}}',
        f'{{"files":{GOOD["files"]},%s,"predecessor":null}}',
        f'{{"files":{{}},"predecessor":{GOOD["predecessor"]},%s}}',
        f'{{"predecessor":{GOOD["predecessor"]},%s,"files":{GOOD["files"]}}}',
        '{"predecessor":null,%s,"files":{}}',
        f'{{"abcd":{GOOD["files"]}}}%.0s',
    ]
)
CANONICAL = json.dumps(body_of(), separators=(",", ":"))


@given(
    text=st.builds(lambda shape, more: shape % more, SHAPES, MORE)
    | st.builds(
        lambda at, length, added: CANONICAL[:at] + added + CANONICAL[at + length :],
        st.integers(0, len(CANONICAL)),
        st.integers(0, 2),
        st.sampled_from(["", " ", "}", "{", "]", ",", '"', "\\", "1", '"a":1,', ',"a":{}', "é"]),
    ),
    writer=st.booleans(),
)
def test_a_text_is_read_apart_as_it_is_read_whole(text: str, *, writer: bool) -> None:
    envelope, value = CARRYING if writer else NAMING, text.encode()
    apart = read_completion(envelope, value), read_files(CARRYING, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_apart", lambda raw: None)
        assert (read_completion(envelope, value), read_files(CARRYING, value)) == apart


@pytest.mark.parametrize("text", ['{"files":%s,"predecessor":null}', '{"predecessor":null,"files":%s}'])
def test_what_usual_writers_send_is_read_apart(text: str) -> None:
    files = FILES.model_dump_json()
    assert codec._apart((text % files).encode()) == (b'{"predecessor":null}', files.encode())
    sent = encode_event(CARRYING, CARRIED, TIME).value
    assert codec._apart(sent) is not None


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
