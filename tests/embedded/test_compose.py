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


def test_every_service_has_a_health_check_and_every_named_volume_exists(document: dict[str, Any]) -> None:
    assert all("healthcheck" in service for service in document["services"].values())
    assert set(document["volumes"]) == {"kafka-data", "warehouse"}
