"""Spans are made only if the environment asks for them and the extra is installed."""

import sys

import pytest
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from structlog.testing import capture_logs

from sluicegate.coordinator.service.connections import exported_spans

ASKED = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


async def test_nobody_asks_for_spans() -> None:
    async with exported_spans({}) as spans:
        assert spans is None


async def test_without_the_extra_the_log_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with capture_logs() as told:
        async with exported_spans(ASKED) as spans:
            assert spans is None
    assert [line["way_out"] for line in told] == ['pip install ".[otel]"']


async def test_spans_are_made_and_the_end_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = list[int]()
    monkeypatch.setattr(
        BatchSpanProcessor, "force_flush", lambda self, timeout_millis: flushed.append(timeout_millis)
    )
    async with exported_spans(ASKED) as spans:
        assert spans is not None
    assert flushed == [5_000]
