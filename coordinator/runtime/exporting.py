"""Export of spans by OTLP, if the environment asks for it."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import structlog

import sluicegate
from sluicegate.coordinator.telemetry.tracing import Spans

log = structlog.get_logger(__name__)

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables that switch the export on, as the specification of OpenTelemetry names them."""
_STOPPED: Final = 5_000
"""Milliseconds for the last spans at the end of the process."""


@asynccontextmanager
async def exported_spans(environment: Mapping[str, str] = os.environ) -> AsyncIterator[Spans | None]:
    """Give what makes spans, and export them in a thread of their own; None if nobody asks for them.

    The SDK reads its other variables itself, such as the sampler and the name of the service.
    """
    if not any(environment.get(name) for name in ENDPOINTS):
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from sluicegate.coordinator.telemetry.spans import OtelSpans
    except ImportError as error:
        log.warning("no spans are exported", error=repr(error), way_out='pip install ".[otel]"')
        yield None
        return
    named = {SERVICE_VERSION: sluicegate.__version__}
    if "OTEL_SERVICE_NAME" not in environment:
        named[SERVICE_NAME] = "sluicegate"
    provider = TracerProvider(resource=Resource.create(named))
    processor = BatchSpanProcessor(OTLPSpanExporter())
    provider.add_span_processor(processor)
    try:
        yield OtelSpans(provider.get_tracer("sluicegate", sluicegate.__version__))
    finally:
        # A receiver that does not answer must not delay the end of the commits.
        await asyncio.to_thread(processor.force_flush, _STOPPED)
        await asyncio.to_thread(provider.shutdown)
