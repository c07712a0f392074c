"""The claim of an order: bounded, printable, and without influence on the reading of its record."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sluicegate.coordinator.core.replica import Replica
from sluicegate.events.codec import read_record
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import StreamCommand
from sluicegate.events.orders import (
    MOST_BYTES,
    ORDER,
    Order,
    has_order,
    is_note,
    make_note,
    order_header,
    read_order,
)
from sluicegate.events.problems import Code
from sluicegate.events.signing import Signatures
from tests.events.examples import TIME

CLAIM = Order(order="stream pause", by="alice", host="h7", at=TIME, release="0.1.0", reason="café, 東京")
HOSTILE = ["\x1b[2J", "a\nb", "a\rb", "a\x00b", "a\u202eb", "a\u2028b", "a\u200bb", "\x9b31m", "x" * 501]
PRINTABLE = st.text(min_size=1, max_size=200).filter(str.isprintable)
PAUSE = encode_event(
    Envelope("e1", EventType.STREAM_COMMAND, "flights"), StreamCommand(command="pause"), TIME
)


@pytest.mark.slow
@given(st.builds(Order, order=PRINTABLE, by=PRINTABLE, host=PRINTABLE, at=st.integers(0, 2**63 - 1),
                 release=PRINTABLE, reason=PRINTABLE | st.just("")))  # fmt: skip
def test_a_claim_is_read_as_it_was_written(order: Order) -> None:
    headers = [*PAUSE.headers, order_header(order)]
    assert read_order(headers) == order
    assert has_order(headers)


def test_the_longest_claim_fits() -> None:
    wide = "\U00010348"
    text = wide * 200
    order = Order(
        order=text, by=text, host=text, at=-(2**63), release=text, reason=wide * 500, about=wide * 300
    )
    assert len(order_header(order)[1]) <= MOST_BYTES
    assert read_order([order_header(order)]) == order


@pytest.mark.parametrize("field", ["order", "by", "host", "release", "reason", "about"])
@pytest.mark.parametrize("text", HOSTILE, ids=repr)
def test_text_that_could_disguise_itself_is_refused(field: str, text: str) -> None:
    values = CLAIM.model_dump() | {field: text}
    with pytest.raises(ValidationError):
        Order.model_validate(values)
    assert read_order([(ORDER, json.dumps(values).encode())]) is None


@pytest.mark.slow
@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode), st.none()))
def test_a_record_is_read_alike_with_any_claim(raw: bytes | None) -> None:
    plain = read_record(7, TIME, PAUSE.headers, PAUSE.value)
    assert read_record(7, TIME, [*PAUSE.headers, (ORDER, raw)], PAUSE.value) == plain
    read_order([*PAUSE.headers, (ORDER, raw)])


@pytest.mark.parametrize("raw", [None, b"", b"null", b"{}", b'"x"', b"\xff", b"[" * 4_000, b" " * (1 << 20)])
def test_a_malformed_claim_counts_as_absent(raw: bytes | None) -> None:
    assert read_order([(ORDER, raw)]) is None
    assert has_order([(ORDER, raw)])


def test_a_signature_covers_the_claim() -> None:
    signatures = Signatures("t", "required", {"k": b"1" * 32})
    headers = signatures.sign([*PAUSE.headers, order_header(CLAIM)], PAUSE.value)
    assert signatures.state(TIME, headers, PAUSE.value) == "valid"
    other = order_header(CLAIM.model_copy(update={"by": "mallory"}))
    forged = [other if name == ORDER else (name, value) for name, value in headers]
    assert signatures.state(TIME, forged, PAUSE.value) == "invalid"
    assert signatures.state(TIME, PAUSE.headers, PAUSE.value) == "unsigned"
    assert Signatures("t").state(TIME, headers, PAUSE.value) == "unchecked"
    early = Signatures("t", "required", {"k": b"1" * 32}, since=TIME + 1)
    assert early.state(TIME, forged, PAUSE.value) == "invalid"


def test_a_note_has_no_effect() -> None:
    replica = Replica("flights", 0)

    def apply(offset: int, body: StreamCommand) -> Code | None:
        envelope = Envelope(f"e{offset}", EventType.STREAM_COMMAND, "flights")
        ignored = replica.step(LogRecord(offset, TIME, envelope, body)).ignored
        return None if ignored is None else ignored.code

    assert apply(0, StreamCommand(command="savepoint", name="s1")) is None
    assert apply(1, StreamCommand(command="pause")) is None
    before = replica.state.model_dump()
    notes = [make_note() for _ in range(3)]
    assert [apply(2 + at, note) for at, note in enumerate(notes)] == [Code.NOT_APPLICABLE] * 3
    assert replica.state.model_dump() == before
    assert len({note.name for note in notes}) == 3
    assert all(is_note(note) for note in notes)
    assert not is_note(StreamCommand(command="cancel", name="s1"))
    assert not is_note(StreamCommand(command="savepoint", name=notes[0].name))
    assert not is_note(None)
