"""What the service shows of real commits: metrics, traces, summaries, status, and the panels of the board."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from structlog.testing import capture_logs

from sluicegate.cli.local.process import free_port
from sluicegate.coordinator.service.connections import ENDPOINTS
from sluicegate.coordinator.stream.summary import sizes_of, touched
from sluicegate.events.models import CutCommitted
from sluicegate.events.notifications import Committed
from sluicegate.kafka.clients import started
from sluicegate.kafka.topics import topic_settings
from tests.doubles.http import served
from tests.integration.conftest import LAKES, Place, place_of
from tests.integration.coordinator import running
from tests.integration.job import Job, read_events, read_ids, read_records
from tests.integration.metrics import samples
from tests.integration.orders import invoke_here, sluicegate
from tests.integration.test_upkeep import commit
from tests.integration.waiting import until
from tests.monitoring.files import SCALED, alerts, queries, tool
from tests.monitoring.server import Prometheus, prometheus

pytestmark = pytest.mark.kafka

PROBES = 10


async def timed_commit(job: Job, number: int) -> tuple[float, int]:
    """One timed_commit: at most how long it took, and the bytes of its files."""
    started = time.monotonic()  # time: an upper bound of what is measured on this machine; no limit
    files = job.write_files([number])
    await job.complete(await job.written(files), watermark=number)
    await job.committed(range(1, number + 1))
    took = time.monotonic() - started  # time: as above
    return took, sum(each.size for each in files.files)


@pytest.mark.seam
async def test_a_commit_is_measured_without_the_idle_time_before_it(place: Place) -> None:
    with capture_logs() as told:
        async with running(place.settings(table_check_interval="300ms")) as service, place.job() as job:
            await job.register()
            first, size = await timed_commit(job, 1)
            asked = len(told)
            # The table is asked again and again while nothing is to be committed.
            await until(lambda: sum(line.get("effect") == "Ask" for line in told[asked:]) >= 2 * PROBES)
            second, more = await timed_commit(job, 2)
            seen = await until(lambda: samples(service), lambda seen: seen["commit_seconds_count"] == 2)
            now = time.time()
    assert 0 < seen["commit_seconds_sum"] <= first + second
    assert (seen["committed_rows_total"], seen["committed_bytes_total"]) == (2, size + more)
    assert now - 60 < seen["last_commit_timestamp_seconds"] <= now
    assert read_ids(place.table) == [1, 2]


VARIABLES = {"$__rate_interval": "1m", "$job": ".*", "$stream": ".*"}
EMPTY_WITHOUT_TROUBLE = {"Conditions", "Time in stall", "Refusals", "Failed steps"}
"""Panels without data while nothing fails; their texts say so."""


def filled(expression: str) -> str:
    """The expression as Grafana sends it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


async def rises(server: Prometheus, expression: str) -> bool:
    """True once two scrapes have seen the series."""
    return bool(await server.query(f"count_over_time({expression}[1m]) >= 3"))


async def test_each_panel_has_data_of_a_real_coordinator(place: Place, tmp_path: Path) -> None:
    program = tool("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed (Debian: prometheus); .ci/run installs it")
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        limit = {"retention.ms": "86400000", "message.timestamp.type": "LogAppendTime"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, place.topics.events, limit)])
    # The coordinator reads the limit as it starts, and then every ten minutes.
    client = place.settings().kafka.client_options()
    await until(
        lambda: topic_settings(client, place.topics.events), lambda found: limit.items() <= found.items()
    )
    async with place.job() as job, running(place.settings()) as service:
        assert service.http_port is not None
        with prometheus(program, tmp_path, service.http_port) as server:
            await until(server.targets, lambda found: [each["health"] for each in found] == ["up"])
            await job.register()
            files = job.write_files([1])
            await job.complete(await job.written(files), watermark=1_600_000_000_000)
            await job.committed([1])
            # This one is not completed, so that the stream needs an event of the log.
            await job.written(job.write_files([2]))
            await until(lambda: rises(server, "sluicegate_event_to_snapshot_seconds_bucket"))
            await until(lambda: rises(server, "sluicegate_oldest_needed_timestamp_seconds"))
            await until(lambda: server.query("stream:sluicegate_retention_left:ratio"))
            shown = {title: await server.query(filled(expression)) for title, expression in queries()}
            empty = {title for title, found in shown.items() if not found}
            assert empty <= EMPTY_WITHOUT_TROUBLE
            left = await server.query("stream:sluicegate_retention_left_seconds:min")
            assert [each["metric"]["stream"] for each in left] == ["flights"]
            assert 0 < float(left[0]["value"][1]) <= 86_400
            found = await server.rules()
            assert {each["name"] for each in found if each["type"] == "alerting"} == {*alerts()}
            assert [each for each in found if each.get("lastError")] == []
            assert [each["name"] for each in found if each.get("state") == "firing"] == []
            scaled = yaml.safe_load(SCALED.read_text(encoding="utf-8"))["spec"]
            (trigger,) = scaled["triggers"]
            assert trigger["type"] == "prometheus"
            assert [float(each["value"][1]) for each in await server.query(trigger["metadata"]["query"])] == [
                0
            ]


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
    async with served(app) as found.url:
        yield found


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


async def committed(job: Job, count: int) -> list[Committed]:
    """Return what was announced about the commits of a stream, when there are so many."""

    async def read() -> list[Committed]:
        return [each.body for each in await job.notifications() if isinstance(each.body, Committed)]

    return await until(read, lambda found: len(found) == count)


@pytest.mark.seam
@pytest.mark.parametrize("lake", LAKES)
async def test_a_commit_is_announced_with_what_it_added(
    lake: str, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    async with place.job() as job, running(place.settings()):
        await job.register()
        await commit(job, 1)
        written = job.write_files([2], [3, 4])
        await job.complete(await job.written(written))
        first, second = await committed(job, 2)
        assert first.summary is not None
        assert second.summary is not None
        assert first.summary.previous is None or first.summary.previous != first.snapshot
        assert second.summary.previous == first.snapshot
        assert (second.files, second.summary.rows) == (2, 3)
        assert second.summary.bytes == sum(file.size for file in written.files)
        assert second.summary.partitions == len({tuple(file.partition.items()) for file in written.files})
        assert second.summary.touched == touched({"": sizes_of(written)})[""].values
        assert second.summary.sizes == touched({"": sizes_of(written)})[""].sizes
        assert second.summary.table == place.table
        outcomes = [each.body for each in await read_events(place.bootstrap, place.topics.events)]
        logged = [each.summary for each in outcomes if isinstance(each, CutCommitted)]
        assert logged == [first.summary, second.summary]


SOON = 100
"""Milliseconds between heartbeats, by what the job says."""


async def status_shown(place: Place, port: int) -> dict[str, Any]:
    """As a process beside the coordinator sees the stream."""
    found: dict[str, Any] = json.loads(await sluicegate(place, "status", "--json", HTTP__PORT=str(port)))[
        "streams"
    ][0]
    return found


async def start(job: Job) -> None:
    """A commit, then files without a completion, and a heartbeat that announces the next."""
    await job.register()
    await job.commit([1, 2], [1, 2])
    await job.written(job.write_files([3, 4, 5]))
    await job.heartbeat(interval=SOON)


async def test_status_asks_the_coordinator_that_runs_here(place: Place) -> None:
    port = free_port()
    async with place.job() as job:
        async with running(place.settings(options={"silence": 0.2}, http={"port": port})) as service:
            await start(job)
            live = await until(lambda: status_shown(place, port), lambda seen: seen["silent"] == ["r1"])
            assert (live["live"], live["ready"], live["committed"]) == (True, True, 1)
            waiting = live["waiting"]["r1"]
            assert (waiting["files"], waiting["rows"]) == (1, 3)
            assert live["regions"]["r1"]["heartbeat_interval"] == SOON
            assert live["updated_at"] - live["regions"]["r1"]["heard"] > 3 * SOON
            # One model: whoever asks over HTTP sees what the command shows.
            served = service.status()["streams"]["flights"]
            command_only = {"configured", "known", "problem", "recorded_at", "live", "unserved"}
            assert live.keys() - served.keys() == command_only
            assert "SILENT" in await sluicegate(place, "status", HTTP__PORT=str(port))
            # Another deployment's coordinator at that address is not believed.
            other = await shown_elsewhere(place, port)
            assert other["live"] is False
        gone = json.loads((await invoke_here(place, "status", "--json")).stdout)["streams"][0]
        assert (gone["live"], gone["committed"]) == (False, 1)
        assert gone["waiting"]["r1"]["rows"] == 3


async def shown_elsewhere(place: Place, port: int) -> dict[str, Any]:
    text = await sluicegate(
        place, "status", "--json", HTTP__PORT=str(port), KAFKA__GROUP_ID=f"{place.prefix}-other"
    )
    found: dict[str, Any] = json.loads(text)["streams"][0]
    return found
