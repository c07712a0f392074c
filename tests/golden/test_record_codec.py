"""State records of another release, of another stream or with damage are refused with a code."""

import json
from typing import Any

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluicegate.coordinator.core.state import LogState, RegionState
from sluicegate.coordinator.core.state_record import RECORD_VERSION, Condition, Due, StateRecord
from sluicegate.coordinator.observe.messages import format_cause
from sluicegate.coordinator.stream import state_records
from sluicegate.coordinator.stream.state_records import RecordTooLarge, decode_record, encode_record
from sluicegate.events.notifications import NotificationType, Stalled
from sluicegate.events.problems import Cause, CauseCode, Code, Problem

PROBLEM = Problem(code=Code.PAUSED)
RECORD = StateRecord(
    stream="flights",
    applied=17,
    low_water=3,
    state=LogState(partition=1, paused=True),
    due=[Due(id="d", type=NotificationType.STALLED, body=Stalled(problem=PROBLEM))],
    conditions=[Condition(kind="pause", problem=PROBLEM)],
    announced={"": PROBLEM},
)


def changed(**values: Any) -> bytes:
    return json.dumps(json.loads(encode_record(RECORD)) | values).encode()


def code(value: bytes) -> Code:
    found = decode_record("flights", value)
    assert isinstance(found, Problem)
    return found.code


def test_a_record_survives() -> None:
    assert decode_record("flights", encode_record(RECORD)) == RECORD


def large() -> StateRecord:
    regions = {f"r{number}": RegionState(source_offsets="0123456789" * 6_000) for number in range(50)}
    return RECORD.model_copy(update={"state": LogState(partition=1, regions=regions)})


def test_a_large_record_is_compressed_and_survives() -> None:
    value = encode_record(large())
    assert len(value) < 64 << 10
    assert decode_record("flights", value) == large()


@pytest.mark.parametrize("kept", [4, 40, -9])
def test_a_damaged_compressed_record_is_malformed(kept: int) -> None:
    assert code(encode_record(large())[:kept]) is Code.STATE_RECORD_MALFORMED


@pytest.mark.slow
def test_a_record_that_would_fill_the_memory_is_malformed() -> None:
    assert code(bytes(cramjam.zstd.compress(b" " * (65 << 20)))) is Code.STATE_RECORD_MALFORMED


def test_a_record_of_a_release_without_causes_is_read() -> None:
    caused = PROBLEM.model_copy(update={"cause": Cause(code=CauseCode.RECORDED_EXPIRED, snapshot=4)})
    record = RECORD.model_copy(update={"announced": {"": caused}})
    assert decode_record("flights", encode_record(record)) == record
    former = json.loads(encode_record(record))
    for problem in (former["announced"][""], former["conditions"][0]["problem"]):
        del problem["cause"]
    assert decode_record("flights", json.dumps(former).encode()) == RECORD


def test_fields_of_a_newer_minor_version_are_ignored() -> None:
    assert decode_record("flights", changed(a_new_field={"deep": [1]})) == RECORD


@pytest.mark.parametrize("version", [RECORD_VERSION + 1, 99])
def test_a_newer_record_is_refused_whatever_else_it_has(version: int) -> None:
    expected = Problem(code=Code.STATE_RECORD_NEWER, number=version)
    assert decode_record("flights", changed(version=version)) == expected
    assert decode_record("flights", json.dumps({"version": version, "state": []}).encode()) == expected


@pytest.mark.parametrize("version", [None, "2", 2.5, True, -1, 0, 2**63])
def test_a_record_without_a_proper_version_is_malformed(version: object) -> None:
    assert code(changed(version=version)) is Code.STATE_RECORD_MALFORMED


@pytest.mark.parametrize(
    "value", [b"", b"null", b"[]", b"{}", b"{", b"\xff", b"[" * 100_000, b'{"version": 1}']
)
def test_broken_records_are_malformed(value: bytes) -> None:
    assert code(value) is Code.STATE_RECORD_MALFORMED


@pytest.mark.parametrize(
    "change",
    [
        {"applied": "17"},
        {"due": [{"id": "d", "type": "not.invented.yet", "body": {}}]},
        {"due": [{"id": "d", "body": {}}]},
        {"due": [{"id": "d", "type": "stream.stalled", "body": {"problem": {"code": "no-such-code"}}}]},
        {"state": {"decided": "x"}},
        {"stream": "others"},
    ],
)
def test_damaged_records_are_malformed(change: dict[str, Any]) -> None:
    assert code(changed(**change)) is Code.STATE_RECORD_MALFORMED


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(place=st.integers(0, 400), junk=st.binary(max_size=4), dropped=st.integers(0, 4))
def test_decoding_never_raises(place: int, junk: bytes, dropped: int) -> None:
    value = encode_record(RECORD)
    found = decode_record("flights", value[:place] + junk + value[place + dropped :])
    assert isinstance(found, StateRecord | Problem)


def test_a_record_that_could_not_be_read_again_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(RECORD.model_dump_json())
    monkeypatch.setattr(state_records, "_MOST", size)
    assert decode_record("flights", encode_record(RECORD)) == RECORD
    monkeypatch.setattr(state_records, "_MOST", size - 1)
    with pytest.raises(RecordTooLarge) as refused:
        encode_record(RECORD)
    assert (refused.value.cause.number, refused.value.cause.other) == (size, size - 1)
    assert format_cause(refused.value.cause).endswith("let the drivers publish shorter ones")
    # Shorter ones make it small enough.
    shorter = RECORD.model_copy(update={"due": []})
    assert len(shorter.model_dump_json()) < size
    assert decode_record("flights", encode_record(shorter)) == shorter
