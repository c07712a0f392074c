"""Spans of a commit, with the real SDK and its exporter in memory."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from sluicegate.coordinator.observe.spans import OtelSpans

ONE = f"00-{'1' * 32}-{'2' * 16}-01"
TWO = f"00-{'3' * 32}-{'4' * 16}-01"
DROPPED = f"00-{'5' * 32}-{'6' * 16}-00"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> OtelSpans:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return OtelSpans(provider.get_tracer("test"))


def links_of(span: ReadableSpan) -> list[str]:
    return [f"{link.context.trace_id:032x}" for link in span.links]


def test_a_commit_of_one_checkpoint_continues_its_trace(
    spans: OtelSpans, exporter: InMemorySpanExporter
) -> None:
    commit = spans.commit("flights", [ONE, ONE])
    with commit.step("publish", 7) as finish:
        finish("Published", None)
    commit.end("committed")
    step, whole = exporter.get_finished_spans()
    assert whole.parent is not None
    assert (f"{whole.parent.trace_id:032x}", f"{whole.parent.span_id:016x}") == ("1" * 32, "2" * 16)
    assert commit.context.startswith(f"00-{'1' * 32}-")
    assert dict(whole.attributes or {}) == {
        "sluicegate.stream": "flights",
        "sluicegate.decision": 7,
        "sluicegate.outcome": "committed",
    }
    assert step.parent is not None
    assert (step.name, step.parent.span_id) == ("sluicegate.publish", whole.context.span_id)
    assert step.status.status_code is StatusCode.UNSET


def test_a_commit_of_several_has_a_link_to_each_once(
    spans: OtelSpans, exporter: InMemorySpanExporter
) -> None:
    commit = spans.commit("flights", [ONE])
    commit.link([ONE, TWO])
    commit.link([TWO])
    commit.end("committed")
    other = spans.commit("flights", [ONE, TWO, ONE])
    other.end("committed")
    first, second = exporter.get_finished_spans()
    assert links_of(first) == ["3" * 32]
    assert (second.parent, links_of(second)) == (None, ["1" * 32, "3" * 32])


def test_a_failed_step_has_its_reason(spans: OtelSpans, exporter: InMemorySpanExporter) -> None:
    commit = spans.commit("flights", [])
    with commit.step("publish", None) as finish:
        finish("OutcomeUnknown", "the connection was lost")
    (step,) = exporter.get_finished_spans()
    assert (step.status.status_code, step.status.description) == (StatusCode.ERROR, "the connection was lost")
    assert dict(step.attributes or {}) == {"sluicegate.result": "OutcomeUnknown"}


def test_a_trace_that_its_job_does_not_record_is_not_recorded_here(
    spans: OtelSpans, exporter: InMemorySpanExporter
) -> None:
    commit = spans.commit("flights", [DROPPED])
    commit.end("committed")
    assert exporter.get_finished_spans() == ()
    assert commit.context.startswith(f"00-{'5' * 32}-")
    assert commit.context.endswith("-00")
