"""The trace context of a message: W3C's form, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sluicegate.events.encoding import MOST_LINKS, parse_traceparent, trace_headers, traceparent_of

GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00"
MALFORMED = [
    b"",
    b"00",
    GOOD.upper().encode(),
    GOOD.encode() + b"-more",
    GOOD.encode() + b"\n",
    b"ff" + GOOD[2:].encode(),
    b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
    b"00-4bf92f3577b34da6a3ce929d0e0e4736-" + b"0" * 16 + b"-01",
    b"\xff" * 55,
    b"01" + GOOD[2:].encode() + b"-" + b"x" * 1_000,
]


def test_a_context_is_read() -> None:
    assert parse_traceparent(GOOD.encode()) == parse_traceparent(GOOD) == GOOD


def test_a_later_version_may_have_more() -> None:
    assert parse_traceparent(b"cc" + GOOD[2:].encode() + b"-what-the-future-has") == GOOD


@pytest.mark.parametrize("raw", [None, *MALFORMED])
def test_a_malformed_context_counts_as_absent(raw: bytes | None) -> None:
    assert parse_traceparent(raw) is None
    assert traceparent_of([("ce_traceparent", raw)]) is None


@pytest.mark.slow
@given(st.from_regex(r"(00|01)-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", fullmatch=True) | st.text(max_size=60))
def test_it_is_what_opentelemetry_reads(text: str) -> None:
    carrier = {"traceparent": text}
    theirs = get_current_span(TraceContextTextMapPropagator().extract(carrier)).get_span_context()
    ours = parse_traceparent(text)
    assert (ours is not None) == theirs.is_valid or text != text.strip()
    if ours is not None:
        assert ours.split("-")[1:3] == [f"{theirs.trace_id:032x}", f"{theirs.span_id:016x}"]


def test_a_message_has_its_own_context_or_that_of_its_only_parent() -> None:
    assert trace_headers(None, []) == []
    assert trace_headers(None, [GOOD, GOOD]) == [("ce_traceparent", GOOD.encode())]
    assert trace_headers(OTHER, [GOOD]) == [("ce_traceparent", OTHER.encode())]


def test_several_parents_are_links() -> None:
    assert trace_headers(None, [GOOD, OTHER]) == [("ce_tracelinks", f"{GOOD},{OTHER}".encode())]
    many = [f"00-{number:032x}-00f067aa0ba902b7-01" for number in range(1, 100)]
    ((name, value),) = trace_headers(None, many)
    assert (name, value.count(b",")) == ("ce_tracelinks", MOST_LINKS - 1)
