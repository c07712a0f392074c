"""Signatures of decisions and orders: made with one key, checked with all, bound to the whole record."""

import json
from typing import Any, Final

import pytest

from sluicegate.events.codec import read_record
from sluicegate.events.encoding import Message, encode_event
from sluicegate.events.envelope import BODIES, PER_CHECKPOINT, PER_REGION, Envelope, EventType, Header
from sluicegate.events.problems import Cause, CauseCode, Code
from sluicegate.events.signing import SIGNATURE, SIGNED, WINDOW_MS, Signatures, is_signed
from tests.security.hostile import BODY_JSON

NOW: Final = 1_750_000_000_123
TOPIC: Final = "lake.events"
OLD, NEW = {"k1": b"1" * 32}, {"k2": b"2" * 32}


def signatures(mode: Any = "required", keys: dict[str, bytes] = OLD, **more: Any) -> Signatures:
    return Signatures(more.pop("topic", TOPIC), mode, keys, **more)


def message(kind: EventType = EventType.STREAM_COMMAND, stream: str = "flights") -> Message:
    body = BODIES[kind].model_validate_json(json.dumps(BODY_JSON[kind]))
    envelope = Envelope("e-1", kind, stream)
    if kind in PER_REGION:
        envelope = envelope._replace(region="r1", incarnation="q1")
    if kind in PER_CHECKPOINT:
        envelope = envelope._replace(checkpoint=1)
    if kind is EventType.FILES_WRITTEN:
        envelope = envelope._replace(writer="w", attempt="a", files=1)
    return encode_event(envelope, body, NOW)


def cause_of(reader: Signatures, headers: list[Header], value: bytes, time: int = NOW) -> CauseCode | None:
    """Return why a reader refuses a record; None if it takes it."""
    record, flaw = reader.read(7, time, headers, value)
    if record is not None:
        assert flaw is None
        return None
    assert flaw is not None
    assert flaw.problem.cause is not None
    assert (flaw.problem.code, flaw.problem.event, flaw.stream) == (Code.SIGNATURE, "e-1", "flights")
    assert not flaw.stalls
    return flaw.problem.cause.code


@pytest.mark.parametrize("kind", EventType)
def test_only_records_of_coordinators_and_operators_need_a_signature(kind: EventType) -> None:
    made, reader = message(kind), signatures()
    found = cause_of(reader, made.headers, made.value)
    assert found == (CauseCode.UNSIGNED if kind in SIGNED else None)
    headers = reader.sign(made.headers, made.value)
    assert cause_of(reader, headers, made.value) is None
    read = reader.read(7, NOW, headers, made.value)
    assert read == read_record(7, NOW, made.headers, made.value)


@pytest.mark.parametrize("kind", sorted(SIGNED))
def test_a_signature_covers_every_header_and_the_value(kind: EventType) -> None:
    made, reader = message(kind), signatures()
    headers = reader.sign([*made.headers, ("sluicegate-group", b"g1")], made.value)
    refused = 0
    for at, (name, value) in enumerate(headers):
        for changed in (value + b"1", value[:-1] or b"x", b"other"):
            forged = [*headers[:at], (name, changed), *headers[at + 1 :]]
            # Some are no events any more.
            record, _ = reader.read(7, NOW, forged, made.value)
            assert record is None, name
            refused += read_record(7, NOW, forged, made.value).record is not None
        without = [*headers[:at], *headers[at + 1 :]]
        assert reader.read(7, NOW, without, made.value).record is None, name
    assert refused >= len(headers) - 3
    for value in (made.value + b" ", made.value.replace(b"1", b"2"), made.value.replace(b"s1", b"s2")):
        if value != made.value:
            assert cause_of(reader, headers, value) is CauseCode.SIGNATURE_WRONG


def test_a_new_header_of_the_protocol_is_covered_and_one_of_a_mirror_is_not() -> None:
    made, reader = message(), signatures()
    headers = reader.sign(made.headers, made.value)
    added = [*headers, ("ce_region", b"r1")]
    assert cause_of(reader, added, made.value) is CauseCode.SIGNATURE_WRONG
    assert cause_of(reader, [("traceparent", b"00-1"), *headers[::-1]], made.value) is None


def test_a_signature_is_of_one_topic() -> None:
    made = message()
    headers = signatures().sign(made.headers, made.value)
    assert cause_of(signatures(topic="other.events"), headers, made.value) is CauseCode.SIGNATURE_WRONG


def test_keys_are_changed_without_a_stop() -> None:
    made = message()
    by_old = signatures(keys=OLD).sign(made.headers, made.value)
    by_new = signatures(keys={**NEW, **OLD}).sign(made.headers, made.value)
    # First every member verifies with both keys, then the new one signs.
    for reader in (signatures(keys={**OLD, **NEW}), signatures(keys={**NEW, **OLD})):
        assert cause_of(reader, by_old, made.value) is None
        assert cause_of(reader, by_new, made.value) is None
    assert cause_of(signatures(keys=OLD), by_new, made.value) is CauseCode.KEY_UNKNOWN
    assert cause_of(signatures(keys={"k1": b"3" * 32}), by_old, made.value) is CauseCode.SIGNATURE_WRONG


def test_a_retired_key_counts_for_older_records_alone() -> None:
    made = message()
    headers = signatures().sign(made.headers, made.value)
    reader = signatures(keys={**NEW, **OLD}, retired={"k1": NOW + 1000})
    assert cause_of(reader, headers, made.value, NOW + 999) is None
    assert cause_of(reader, headers, made.value, NOW + 1000) is CauseCode.KEY_RETIRED


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_copy_of_an_old_record_has_no_effect(sign: int) -> None:
    made, reader = message(), signatures()
    headers = reader.sign(made.headers, made.value)
    assert cause_of(reader, headers, made.value, NOW + sign * WINDOW_MS) is None
    late = NOW + sign * (WINDOW_MS + 1)
    assert cause_of(reader, headers, made.value, late) is CauseCode.SIGNATURE_OLD
    assert reader.late(NOW, late)
    assert not reader.late(NOW, NOW)


@pytest.mark.parametrize("raw", [b"", b"yesterday", b"2025-06-15T15:06:40", b"\xff", b"9" * 5000])
def test_a_record_without_a_time_is_old(raw: bytes) -> None:
    made, reader = message(), signatures()
    headers = [(name, raw if name == "ce_time" else value) for name, value in made.headers]
    assert cause_of(reader, reader.sign(headers, made.value), made.value) is CauseCode.SIGNATURE_OLD


@pytest.mark.parametrize("raw", [b"k1", b"k1:", b":", b"\xff\xfe", b"k1:" + b"0" * 64, "k1:é".encode()])
def test_a_malformed_signature_is_refused(raw: bytes) -> None:
    made = message()
    found = cause_of(signatures(), [*made.headers, (SIGNATURE, raw)], made.value)
    assert found in (CauseCode.SIGNATURE_WRONG, CauseCode.KEY_UNKNOWN)


def test_a_record_from_before_the_signing_needs_no_signature() -> None:
    made, reader = message(), signatures(since=NOW)
    assert cause_of(reader, made.headers, made.value, NOW - 1) is None
    assert cause_of(reader, made.headers, made.value, NOW) is CauseCode.UNSIGNED


def test_accepted_refuses_nothing_and_reports_what_required_refuses() -> None:
    found: list[Cause] = []
    reader, made = signatures("accepted", lacks=found.append), message()
    assert cause_of(reader, made.headers, made.value) is None
    headers = reader.sign(made.headers, made.value)
    assert is_signed(headers)
    assert cause_of(reader, headers, made.value) is None
    assert cause_of(reader, headers, made.value + b" ") is None
    assert [each.code for each in found] == [CauseCode.UNSIGNED, CauseCode.SIGNATURE_WRONG]


def test_off_makes_and_checks_nothing() -> None:
    off, made = signatures("off", {}), message()
    assert off.sign(made.headers, made.value) == made.headers
    headers = signatures().sign(made.headers, made.value)
    for given in (made.headers, headers):
        assert off.read(7, NOW, given, made.value) == read_record(7, NOW, made.headers, made.value)


@pytest.mark.parametrize("kind", EventType)
def test_only_who_has_a_key_makes_a_stream_wait_for_a_newer_release(kind: EventType) -> None:
    """A newer version of a writer's event still does: writers have no key."""
    made, reader = message(kind), signatures()
    newer = [
        (name, held.replace(b".v5", b".v9") if name == "ce_type" else held) for name, held in made.headers
    ]
    read = reader.read(7, NOW, reader.sign(newer, made.value), made.value)
    assert read == read_record(7, NOW, newer, made.value)
    assert read.flaw is not None
    assert read.flaw.stalls
    if kind in SIGNED:
        assert cause_of(reader, newer, made.value) is CauseCode.UNSIGNED
        assert (
            cause_of(reader, signatures(keys=NEW).sign(newer, made.value), made.value)
            is CauseCode.KEY_UNKNOWN
        )
    else:
        assert reader.read(7, NOW, newer, made.value) == read
    for mode in ("off", "accepted"):
        assert signatures(mode).read(7, NOW, newer, made.value) == read


def test_the_state_of_a_signature_is_known_also_where_none_is_needed() -> None:
    made = message()
    headers = signatures().sign(made.headers, made.value)
    past = signatures(since=NOW + 1)
    wrong = [*headers[:-1], (headers[-1][0], b"k1:" + b"0" * 64)]
    assert past.state(NOW, headers, made.value) == "valid"
    assert past.state(NOW, made.headers, made.value) == "unsigned"
    assert past.state(NOW, wrong, made.value) == "invalid"
    assert signatures(keys=NEW).state(NOW, headers, made.value) == "unchecked"
    retired = signatures(keys={**NEW, **OLD}, retired={"k1": NOW})
    assert retired.state(NOW, headers, made.value) == "retired"
    # Who forges with the name of a retired key did not have it.
    assert retired.state(NOW, wrong, made.value) == "invalid"
    assert signatures().state(NOW + WINDOW_MS + 1, headers, made.value) == "copied"
