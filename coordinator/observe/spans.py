"""Spans of commits by OpenTelemetry. This module needs the extra `otel`; without it, nobody imports it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

Finish = Callable[[str, str | None], None]
"""Takes the name of a step's result, and the reason of a failure."""

_PREFIX: Final = "sluicegate"


class OtelSpans:
    """Makes the spans of commits."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def commit(self, stream: str, parents: Sequence[str]) -> "OtelCommit":
        """Start a commit. It continues the trace of an only parent, and has a link to each of several."""
        return OtelCommit(self._tracer, stream, list(dict.fromkeys(parents)))


class OtelCommit:
    """The span of one commit, and those of its steps."""

    def __init__(self, tracer: Tracer, stream: str, parents: list[str]) -> None:
        self._tracer = tracer
        self._linked = set(parents)
        only = NonRecordingSpan(_context(parents[0])) if len(parents) == 1 else None
        self._span = tracer.start_span(
            f"{_PREFIX}.commit",
            context=set_span_in_context(only) if only is not None else None,
            kind=SpanKind.CONSUMER,
            attributes={"sluicegate.stream": stream},
            links=[Link(_context(each)) for each in parents] if only is None else [],
        )

    @property
    def context(self) -> str:
        """Return the trace context of the commit."""
        own = self._span.get_span_context()
        return f"00-{own.trace_id:032x}-{own.span_id:016x}-{int(own.trace_flags):02x}"

    @contextmanager
    def step(self, name: str, decision: int | None) -> Iterator[Finish]:
        """Make the span of a step; its result decides the status."""
        if decision is not None:
            self._span.set_attribute("sluicegate.decision", decision)
        span = self._tracer.start_span(f"{_PREFIX}.{name}", context=set_span_in_context(self._span))
        try:
            yield _Finish(span)
        finally:
            span.end()

    def link(self, parents: Iterable[str]) -> None:
        """Link contexts that the commit includes, each once."""
        for each in parents:
            if each not in self._linked:
                self._linked.add(each)
                self._span.add_link(_context(each))

    def end(self, outcome: str) -> None:
        """End the commit."""
        self._span.set_attribute("sluicegate.outcome", outcome)
        self._span.end()


class _Finish:
    def __init__(self, span: Span) -> None:
        self._span = span

    def __call__(self, result: str, failure: str | None) -> None:
        """Note the result of the step, and the reason of a failure."""
        self._span.set_attribute("sluicegate.result", result)
        if failure is not None:
            self._span.set_status(StatusCode.ERROR, failure)


def _context(parent: str) -> SpanContext:
    _, trace, span, flags = parent.split("-")
    return SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))
