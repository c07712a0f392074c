"""Completions carry the trace context of the job, from OpenTelemetry or from the environment."""

import pytest
from opentelemetry.sdk.trace import TracerProvider

from sluicegate.events.encoding import traceparent_of
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import CheckpointCompleted, RegionHeartbeat
from sluicegate.writer_hooks.publisher import encoded
from sluicegate.writer_hooks.region import Event

CONTEXT = f"00-{'1' * 32}-{'2' * 16}-01"
COMPLETED = (
    Envelope("e1", EventType.CHECKPOINT_COMPLETED, "flights", "JFK", "q1", 0),
    CheckpointCompleted(events=(), predecessor=None, source_digest="d"),
)
HEARTBEAT = (
    Envelope("e2", EventType.REGION_HEARTBEAT, "flights", "JFK", "q1"),
    RegionHeartbeat(idle=False, run="n1"),
)


@pytest.fixture(autouse=True)
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)


def contexts() -> list[str | None]:
    return [traceparent_of(message.headers) for message in encoded([Event(*COMPLETED), Event(*HEARTBEAT)])]


def test_a_job_without_a_trace_sends_none() -> None:
    assert contexts() == [None, None]


def test_the_environment_of_the_job_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", CONTEXT)
    assert contexts() == [CONTEXT, None]
    monkeypatch.setenv("TRACEPARENT", "no context")
    assert contexts() == [None, None]


def test_the_current_span_is_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", CONTEXT)
    provider = TracerProvider(shutdown_on_exit=False)
    with provider.get_tracer("job").start_as_current_span("batch") as span:
        own = span.get_span_context()
        flags = int(own.trace_flags)
        assert contexts() == [f"00-{own.trace_id:032x}-{own.span_id:016x}-{flags:02x}", None]
