"""The log line of an order: its sender as claimed, its effect, and nothing that could forge a line."""

import json
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from structlog.testing import capture_logs

from sluicegate.coordinator.stream.telemetry import log_order
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, Header, LogRecord
from sluicegate.events.models import Assignment, Body, CutAbandoned, RegionRegistered, StreamCommand
from sluicegate.events.orders import ORDER, Order, make_note, order_header
from sluicegate.events.problems import Code, Problem
from sluicegate.events.signing import SIGNATURE, Signatures

CLAIM = Order(order="region remove", by="alice", host="h7", at=0, release="0.1.0", reason="closed", about="x")
SIGNATURES = Signatures("events", "required", {"k1": b"1" * 32})
REMOVE = StreamCommand(command="remove", region="EWR", number=0)
REGISTERED = RegionRegistered(assignment=Assignment(number=0, regions=("EWR",)))


def logged(body: Body, *headers: Header, ignored: Problem | None = None) -> list[dict[str, Any]]:
    kinds = {
        StreamCommand: EventType.STREAM_COMMAND,
        RegionRegistered: EventType.REGION_REGISTERED,
        CutAbandoned: EventType.CUT_ABANDONED,
    }
    envelope = Envelope("e1", kinds[type(body)], "flights")
    if isinstance(body, RegionRegistered):
        envelope = envelope._replace(region="EWR", incarnation="i1")
    with capture_logs() as found:
        log_order(LogRecord(7, 1, envelope, body), _raw(envelope, body, *headers), SIGNATURES, ignored)
    return [{name: value for name, value in each.items() if name != "log_level"} for each in found]


def _raw(envelope: Envelope, body: Body, *headers: Header) -> ConsumerRecord:
    """Return the record as it is read from Kafka."""
    _, value, made = encode_event(envelope, body, 1)
    return ConsumerRecord("events", 0, 7, 1, 0, None, value, None, 0, 0, (*made, *headers))


def test_an_accepted_order_is_logged_with_its_sender() -> None:
    assert logged(REMOVE, order_header(CLAIM)) == [
        {
            "event": "order",
            "stream": "flights",
            "offset": 7,
            "id": "e1",
            "signature": "unsigned",
            "order": "region remove",
            "by": "alice",
            "host": "h7",
            "at": "1970-01-01T00:00:00Z",
            "release": "0.1.0",
            "reason": "closed",
            "about": "x",
            "command": {"command": "remove", "region": "EWR", "number": 0},
            "effect": "accepted",
        }
    ]


def test_a_refused_order_is_logged_with_its_code() -> None:
    (line,) = logged(REMOVE, ignored=Problem(code=Code.NOT_APPLICABLE, region="EWR"))
    assert (line["effect"], line["code"]) == ("refused", "not-applicable")
    assert "has no effect" in line["refusal"]
    assert "by" not in line


def test_a_note_and_the_registration_of_a_reset_are_orders() -> None:
    (note,) = logged(make_note(), order_header(CLAIM), ignored=Problem(code=Code.NOT_APPLICABLE))
    assert (note["effect"], note["order"], "command" in note) == ("noted", "region remove", False)
    (reset,) = logged(REGISTERED, order_header(CLAIM))
    assert (reset["effect"], reset["region"]) == ("accepted", "EWR")


def test_a_signed_order_is_told_from_a_claim() -> None:
    """Nobody asks for the signature of a reset, so its line has to say that it has none."""
    envelope = Envelope("e1", EventType.REGION_REGISTERED, "flights", "EWR", "i1")
    bare = _raw(envelope, REGISTERED, order_header(CLAIM))
    signed = replace(bare, headers=tuple(SIGNATURES.sign(bare.headers, bare.value or b"")))
    forged = replace(bare, headers=(*bare.headers, (SIGNATURE, f"k1:{'0' * 64}".encode())))
    with capture_logs() as found:
        for raw in (bare, signed, forged):
            log_order(LogRecord(7, 1, envelope, REGISTERED), raw, SIGNATURES, None)
    assert [(each["effect"], each["by"], each["signature"]) for each in found] == [
        ("accepted", "alice", "unsigned"),
        ("accepted", "alice", "valid"),
        ("accepted", "alice", "invalid"),
    ]


@pytest.mark.parametrize(
    "body", [REGISTERED, CutAbandoned(decision=1, regions=("EWR",), attempt=1, kind="ratio")]
)
def test_other_records_are_none(body: Body) -> None:
    assert logged(body) == []


def test_a_hostile_claim_is_left_out() -> None:
    raw = json.dumps(CLAIM.model_dump() | {"by": "\x1b[2J\nforged"}).encode()
    (line,) = logged(REMOVE, (ORDER, raw))
    assert "by" not in line
    assert "\x1b" not in str(line)
