"""The compose file agrees with what else knows about the same servers."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluicegate.cli.local.jars import KAFKA_VERSION
from sluicegate.cli.local.servers import valkey_binary
from sluicegate.coordinator.settings.model import load
from tests.servers import COMPOSE_FILE, compose_service


@pytest.fixture
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))
    return loaded


def test_images_and_embedded_servers_have_the_same_versions() -> None:
    assert compose_service("kafka").image == f"apache/kafka:{KAFKA_VERSION}"
    told = subprocess.run([valkey_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    name, _, version = compose_service("valkey").image.partition(":")
    assert name == "valkey/valkey"
    assert f" v={version}." in told


def test_the_coordinator_needs_only_its_streams_in_the_file(document: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "sluicegate.toml"
    file.write_text('[streams.flights]\ntable = "/var/lib/sluicegate/warehouse/flights"\n', encoding="utf-8")
    coordinator = document["services"]["coordinator"]
    settings = load(file, coordinator["environment"])
    assert settings.kafka.bootstrap_servers == "kafka:9092"
    assert settings.http.host == "0.0.0.0"  # noqa: S104
    assert coordinator["ports"] == [f"127.0.0.1:{settings.http.port}:{settings.http.port}"]
    assert f":{settings.http.port}/readyz" in coordinator["healthcheck"]["test"][-1]


def test_the_coordinator_starts_after_the_service_that_creates_the_topics(document: dict[str, Any]) -> None:
    topics, coordinator = (document["services"][each] for each in ("topics", "coordinator"))
    # Only one of the two builds the image. The other takes it, and never one of that name from elsewhere.
    assert topics["image"] == coordinator["image"]
    assert ("build" in topics, topics["pull_policy"], "build" in coordinator) == (False, "never", True)
    assert topics["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    assert coordinator["depends_on"]["topics"] == {"condition": "service_completed_successfully"}
    assert topics["environment"] == coordinator["environment"]
    assert topics["volumes"] == coordinator["volumes"][:1]
    assert "restart" not in topics


def test_the_settings_of_the_compose_file_work_unmodified(document: dict[str, Any]) -> None:
    coordinator = document["services"]["coordinator"]
    file, warehouse = coordinator["volumes"]
    default = file["source"].removeprefix("${SLUICEGATE_CONFIG:-").removesuffix("}")
    settings = load(COMPOSE_FILE.parent / default, coordinator["environment"])
    folder = warehouse.rpartition(":")[2]
    assert [each.table.startswith(f"{folder}/") for each in settings.streams.values()] == [True]
    dockerfile = (COMPOSE_FILE.parent / "Dockerfile").read_text(encoding="utf-8")
    assert f"--owner 10001 --group 10001 {folder}\n" in dockerfile


def test_every_service_that_stays_has_a_health_check_and_every_named_volume_exists(
    document: dict[str, Any],
) -> None:
    staying = {name for name, service in document["services"].items() if "restart" in service}
    assert staying == {"kafka", "valkey", "coordinator"}
    assert all("healthcheck" in document["services"][each] for each in staying)
    assert set(document["volumes"]) == {"kafka-data", "warehouse"}
