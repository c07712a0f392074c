"""The beginning of a listener: no outcome is missed, and settings that do not fit the table are shown."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.test_listeners import coordinator
from tests.integration.waiting import exit_status, until
from tests.integration.webhooks import config_with, hook, receiving

pytestmark = pytest.mark.kafka

LATE = """
import os
from sluicegate.coordinator.listeners.records import ListenerRecords
read = ListenerRecords.read
async def late(self, streams):
    if not os.path.exists(os.environ["RECORDS_MAY_BE_READ"]):
        raise TimeoutError
    return await read(self, streams)
ListenerRecords.read = late
from sluicegate.cli.main import main
main()
"""
"""The service; its listeners have no records until a file is there."""


async def test_a_new_listener_misses_no_outcome_of_a_coordinator_that_dies_at_its_beginning(
    place: Place,
) -> None:
    """It dies right after it has announced its second commit, however late the first record is."""
    go, log = place.root / "go", place.root / "log"
    async with receiving(place.table) as receiver, place.job() as job:
        async with running(place.settings()):
            await job.register()
        config = config_with(place, hook(place, receiver))
        more = {
            "RECORDS_MAY_BE_READ": str(go),
            "SLUICEGATE_CONFIG": str(config),
            "SLUICEGATE_HTTP__PORT": "0",
            "SLUICEGATE_FAILPOINTS": "announce.after=kill@2",
        }
        with log.open("wb") as stderr:
            command = (sys.executable, "-c", LATE, "run")
            process = subprocess.Popen(command, stderr=stderr, env={**os.environ, **more})  # noqa: ASYNC220
        try:
            await job.run_batch([1])
            await until(lambda: read_ids(place.table), by=process, log=log)
            await job.run_batch([2])
            # Without the wait for the records, the second commit is announced, and the process ends.
            tries = _tries(log)
            await until(lambda: _tries(log), lambda found: found >= tries + 4, by=process, log=log)
            go.touch()
            assert await asyncio.to_thread(exit_status, process, log) == -signal.SIGKILL
        finally:
            process.kill()
            process.wait()
        assert receiver.hidden == []
        with coordinator(place, config, log) as second:
            await job.run_batch([3])
            await until(receiver.decisions, lambda found: 3 in found, by=second, log=log)
    assert sorted({*receiver.decisions()}) == [1, 2, 3]


def _tries(log: Path) -> int:
    """Return the number of times that the records of listeners could not be read."""
    return log.read_text().count("records of listeners not read yet")
