"""The streams of a killed coordinator move to a living one of its host at once."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluicegate.coordinator.settings.model import Settings
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS
from tests.integration.waiting import BACKSTOP, until, wait_until, watched

pytestmark = [pytest.mark.kafka, pytest.mark.seam]

SESSION = 2 * BACKSTOP
"""Seconds: nobody waits for the session of the killed one."""


@contextmanager
def other_coordinator(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """Give a coordinator as a process of its own, once it has all partitions."""
    config, log = place.root / "other.toml", place.root / "other.log"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{place.bootstrap}"\ntopic_prefix = "{place.prefix}"\n'
        f'group_id = "{place.prefix}"\nsession_timeout = {SESSION}\nmembers_folder = "{members(place)}"\n'
        f'[http]\nport = 0\n[streams.flights]\ntable = "{place.table}"\n',
        encoding="utf-8",
    )
    command = [
        sys.executable,
        "-c",
        "from sluicegate.cli.main import main; main()",
        "run",
        "--config",
        str(config),
    ]
    with log.open("wb") as stderr, subprocess.Popen(command, stderr=stderr) as process:
        try:
            with watched(process):
                wait_until(lambda: b"partitions assigned" in log.read_bytes())
            yield process
        finally:
            process.kill()


def members(place: Place) -> Path:
    return place.root / "members"


def with_long_session(place: Place) -> Settings:
    settings = place.settings()
    more = {"session_timeout": float(SESSION), "members_folder": str(members(place))}
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update=more)})


async def test_the_streams_of_a_killed_coordinator_move_to_a_living_one_of_its_host(place: Place) -> None:
    with other_coordinator(place) as other:
        async with place.job() as job, running(with_long_session(place)) as own:
            await until(own.status, lambda seen: 0 < len(seen["partitions"]) < PARTITIONS)
            await job.register()
            await job.run_batch([1])
            await job.committed([1])
            other.send_signal(signal.SIGKILL)
            await until(own.status, lambda seen: len(seen["partitions"]) == PARTITIONS)
            await job.run_batch([2])
            await job.committed([1, 2])
