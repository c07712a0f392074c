"""Deployments for the command line's tests."""

from pathlib import Path

import pytest

from sluicegate.cli.local.process import free_port
from tests.cli.deployment import PARTITIONS, Deployment, make_table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Make an empty Paimon table; return its folder."""
    return make_table(tmp_path, "flights")


@pytest.fixture
def deployment(kafka_bootstrap: str, unique: str, table: Path, tmp_path: Path) -> Deployment:
    """Give a deployment whose topics are not made yet."""
    config = tmp_path / "sluicegate.toml"
    config.write_text(
        f"""
        [kafka]
        bootstrap_servers = "{kafka_bootstrap}"
        topic_prefix = "{unique}"
        group_id = "{unique}"
        partitions = {PARTITIONS}
        [streams.flights]
        table = "{table}"
        """,
        encoding="utf-8",
    )
    return Deployment(config, {})


@pytest.fixture
def nobody(tmp_path: Path) -> Deployment:
    """Give a deployment whose Kafka is away."""
    config = tmp_path / "nobody.toml"
    config.write_text(
        f"""
        [kafka]
        bootstrap_servers = "127.0.0.1:{free_port()}"
        request_timeout = "2s"
        [streams.flights]
        table = "/data/flights"
        """,
        encoding="utf-8",
    )
    return Deployment(config, {})
