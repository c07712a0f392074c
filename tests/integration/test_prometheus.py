"""A real Prometheus scrapes a real coordinator, and evaluates each rule and each panel of the dashboard."""

from pathlib import Path

import pytest
import yaml
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from sluicegate.kafka.clients import started
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.waiting import until
from tests.monitoring.files import SCALED, alerts, queries, tool
from tests.monitoring.server import Prometheus, prometheus

pytestmark = pytest.mark.kafka
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
