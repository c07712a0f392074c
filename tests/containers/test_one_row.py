"""The program of the container tests works with the servers of this machine, so that it cannot be stale."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers.test_compose import COMMITTED, LOCATIONS, SCRIPT
from tests.integration.coordinator import running, settings_for
from tests.integration.job import make_topics

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("format", LOCATIONS)
async def test_the_program_commits_one_row(
    kafka_bootstrap: str, unique: str, tmp_path: Path, format: str
) -> None:
    await make_topics(kafka_bootstrap, unique)
    stream = {"format": format, "table": str(tmp_path / LOCATIONS[format])}
    async with running(settings_for(kafka_bootstrap, unique, {"flights": stream})):
        command = [sys.executable, str(SCRIPT), kafka_bootstrap, str(tmp_path), format, unique]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == COMMITTED
