"""The trace of a job reaches the commit and its notification; with OpenTelemetry, the commit has spans."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from sluicegate.coordinator.service.connections import ENDPOINTS
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_records
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
ONE = b"00-11111111111111111111111111111111-2222222222222222-01"
STEPS = {"check", "decide", "ask", "publish", "append", "notify"}


@pytest.fixture(autouse=True)
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)


async def run_batch(job: Job, number: int) -> None:
    await job.complete(await job.written(job.write_files([number])))


async def traced(place: Place, topic: str, kind: str) -> list[dict[str, bytes]]:
    """Return the trace headers of the messages of a type, in their order."""
    found = []
    for record in await read_records(place.bootstrap, topic):
        headers = dict(record.headers)
        if headers.get("ce_type", b"").startswith(f"sluicegate.{kind}.".encode()):
            found.append({name: value for name, value in headers.items() if name.startswith("ce_trace")})
    return found


async def of_commit(place: Place, count: int = 1) -> list[dict[str, bytes]]:
    """Return the trace headers of the outcomes and of their notifications, when there are so many."""
    shown = await until(
        lambda: traced(place, place.topics.commits, "commit.visible"), lambda found: len(found) == count
    )
    assert await traced(place, place.topics.events, "cut.committed") == shown
    return shown


async def test_a_context_travels_from_the_driver_to_the_commit_and_its_notification(place: Place) -> None:
    async with place.job() as job, running(place.settings()):
        await job.register()
        job.traceparent = ONE
        await run_batch(job, 1)
        await job.committed([1])
        assert await of_commit(place) == [{"ce_traceparent": ONE}]
        job.traceparent = None
        await run_batch(job, 2)
        await job.committed([1, 2])
        assert await of_commit(place, 2) == [{"ce_traceparent": ONE}, {}]


@dataclass
class Receiver:
    """A receiver of OTLP by HTTP."""

    url: str = ""
    spans: list[Any] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    async def take(self, request: web.Request) -> web.Response:
        """Keep the spans of a request."""
        body = ExportTraceServiceRequest.FromString(await request.read())
        for of_resource in body.resource_spans:
            self.services |= {
                each.value.string_value
                for each in of_resource.resource.attributes
                if each.key == "service.name"
            }
            self.spans += [span for scope in of_resource.scope_spans for span in scope.spans]
        return web.Response()

    def named(self, name: str) -> list[Any]:
        """Return the spans of a name."""
        return [span for span in self.spans if span.name == f"sluicegate.{name}"]


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver on a port of its own."""
    found, app = Receiver(), web.Application()
    app.router.add_post("/v1/traces", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield found
    finally:
        await runner.cleanup()


async def test_a_receiver_of_otlp_gets_the_steps_of_a_commit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        async with place.job() as job, running(place.settings()):
            await job.register()
            job.traceparent = ONE
            await run_batch(job, 1)
            await job.committed([1])
            (headers,) = await of_commit(place)
        # The end of the service exports what is left.
        (commit,) = received.named("commit")
    assert received.services == {"sluicegate"}
    assert (commit.trace_id.hex(), commit.parent_span_id.hex()) == ("1" * 32, "2" * 16)
    assert headers == {"ce_traceparent": f"00-{'1' * 32}-{commit.span_id.hex()}-01".encode()}
    attributes = {each.key: each.value for each in commit.attributes}
    assert attributes["sluicegate.stream"].string_value == "flights"
    assert attributes["sluicegate.decision"].int_value == 1
    assert attributes["sluicegate.outcome"].string_value == "committed"
    for step in STEPS:
        assert {span.parent_span_id for span in received.named(step)} == {commit.span_id}, step
        assert {span.trace_id.hex() for span in received.named(step)} == {"1" * 32}
