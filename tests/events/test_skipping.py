"""Records that only a newer release reads, and the orders to skip them."""

import pytest

from sluicegate.events.codec import Reading
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import StreamCommand
from sluicegate.events.orders import Skips, digest_of, skipped_record

HEADERS = (
    ("ce_type", b"sluicegate.files.written.v9"),
    ("ce_stream", b"flights"),
    ("ce_region", b"EWR"),
    ("ce_incarnation", b"i1"),
    ("ce_id", b"e1"),
)


def order(offset: int, named: int, digest: str = "d", stream: str = "flights") -> LogRecord:
    body = StreamCommand(command="skip", offset=named, digest=digest)
    return LogRecord(offset, 0, Envelope("o", EventType.STREAM_COMMAND, stream), body)


def test_a_digest_is_of_the_key_the_headers_in_order_and_the_value() -> None:
    records = [
        (b"k", HEADERS, b"v"),
        (None, HEADERS, b"v"),
        (b"", HEADERS, b"v"),
        (b"k", HEADERS[::-1], b"v"),
        (b"k", HEADERS[:-1], b"v"),
        (b"k", (*HEADERS, ("empty", None)), b"v"),
        (b"k", (*HEADERS, ("empty", b"")), b"v"),
        (b"k", HEADERS, None),
        (b"kv", HEADERS, b""),
    ]
    assert len({digest_of(*each) for each in records}) == len(records)


def test_an_order_names_an_earlier_record_of_its_stream() -> None:
    skips = Skips()
    assert [skips.note(order(9, 4)), skips.note(order(4, 4)), skips.note(order(3, 5))] == [True, False, False]
    assert skips.name("flights", 4, "d")
    assert not any(
        (skips.name("flights", 4, "x"), skips.name("trains", 4, "d"), skips.name("flights", 5, "d"))
    )


@pytest.mark.parametrize(
    ("changed", "field"),
    [("ce_region", "region"), ("ce_incarnation", "incarnation"), ("ce_id", "id")],
)
def test_an_attribute_that_cannot_be_read_is_empty(changed: str, field: str) -> None:
    for value in (None, b"\xff", b"/" * 300):
        headers = [(name, value if name == changed else held) for name, held in HEADERS]
        record = skipped_record(7, 0, headers, "d")
        assert (getattr(record.envelope, field), record.envelope.type) == ("", EventType.FILES_WRITTEN)
    whole = skipped_record(7, 0, HEADERS, "d")
    assert Reading(whole, None).record == whole
    assert whole.envelope[:5] == ("e1", EventType.FILES_WRITTEN, "flights", "EWR", "i1")
