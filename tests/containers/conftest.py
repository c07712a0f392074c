"""Tests that need a container engine. Without one they are skipped, or fail where it is required."""

import os
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest

from tests.containers.compose import Compose
from tests.servers import engine_answers

REQUIRED: Final = os.environ.get("SLUICEGATE_TEST_ENGINE") == "required"
REASON: Final = (
    "NOT TESTED HERE: no container engine answers, so neither the image nor the compose file has run. "
    "The job `engine` of the workflow `ci` runs these tests, and fails without an engine"
)


@pytest.fixture(scope="session")
def engine() -> None:
    """Require a container engine."""
    if engine_answers():
        return
    if REQUIRED:
        pytest.fail(REASON)
    pytest.skip(REASON)


@pytest.fixture
def compose(engine: None, unique: str) -> Iterator[Compose]:
    """Give a deployment of docker-compose.yml under a name of its own, and remove all of it at the end."""
    deployment = Compose(f"sluicegate-{unique}".lower())
    try:
        yield deployment
    finally:
        subprocess.run(deployment.command("logs", "--no-color"), check=False)
        subprocess.run(
            deployment.command("down", "--volumes", "--remove-orphans", "--rmi", "local"), check=False
        )
