"""A coordinator is killed beside the records of a listener: no outcome is missed, none is early."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.faults.listener_points import LISTENER_POINTS
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.test_listeners import announced, coordinator
from tests.integration.waiting import exit_status, until, watched
from tests.integration.webhooks import config_with, hook, receiving

pytestmark = pytest.mark.kafka

TURNS: Final = (1, 2, 3)
"""The first record, that of the task, and the one after the first action."""
STARTS: Final[dict[str, dict[str, Any]]] = {"new": {}, "earliest": {"start": "earliest"}}
_RUN: Final = (sys.executable, "-c", "from sluicegate.cli.main import main; main()", "run")


@pytest.mark.parametrize(("turn", "start"), [*((turn, "new") for turn in TURNS), (1, "earliest")])
@pytest.mark.parametrize("point", sorted(LISTENER_POINTS))
async def test_no_outcome_is_missed_after_a_kill_beside_a_record(
    place: Place, point: str, turn: int, start: str
) -> None:
    """Two batches are in the log before the coordinator starts, so it commits while its listener begins."""
    log = place.root / "log"
    async with receiving(place.table) as receiver, place.job() as job:
        async with running(place.settings()):
            await job.register()
        for number in (1, 2):
            await job.run_batch([number])
        config = config_with(place, hook(place, receiver, **STARTS[start]))
        await _killed_at(f"{point}=kill@{turn}", config, log)
        if (point, turn) == ("listener-record.before", 1):
            # Without a record of the listener, nothing is announced that it could miss.
            assert await announced(job) == {}
            assert receiver.asked == 0
        await job.run_batch([3])
        with coordinator(place, config, log) as second, watched(second):
            await job.committed([1, 2, 3])
            every = [*range(1, _commits(place) + 1)]
            await until(receiver.decisions, lambda found: sorted({*found}) == every, log=log)
            assert sorted({*(await announced(job)).values()}) == every
    assert receiver.hidden == []


async def _killed_at(failpoints: str, config: Path, log: Path) -> None:
    """Run a coordinator until a failpoint kills it."""
    names = {"CONFIG": str(config), "HTTP__PORT": "0", "FAILPOINTS": failpoints}
    env = {**os.environ, **{f"SLUICEGATE_{name}": value for name, value in names.items()}}
    with log.open("ab") as stderr:
        process = subprocess.Popen(_RUN, stderr=stderr, env=env)  # noqa: ASYNC220
    try:
        assert await asyncio.to_thread(exit_status, process, log) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def _commits(place: Place) -> int:
    return len([*(Path(place.table) / "snapshot").glob("snapshot-*")])
