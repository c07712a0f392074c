"""Limits of a commit: a region over a limit is excluded with a code, and nothing is lost."""

import asyncio
import os
import signal

import pytest

from tests.faults.lives import COMMAND
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, read_ids
from tests.integration.waiting import finished

pytestmark = pytest.mark.kafka


async def decide_and_die(place: Place) -> None:
    """Run a coordinator without narrow limits until right before its first publication."""
    await die_at(place, "publish.before")


async def die_at(place: Place, failpoint: str, **more: str) -> None:
    """Run a coordinator of a Paimon table without narrow limits until a failpoint kills it.

    `more` are variables of its environment.
    """
    config = place.root / "sluicegate.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{place.bootstrap}"\ntopic_prefix = "{place.prefix}"\n'
        f'group_id = "{place.prefix}"\npartitions = {PARTITIONS}\n'
        f'session_timeout = 6\n[http]\nport = 0\n[streams.flights]\ntable = "{place.table}"\n'
    )
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "run",
        env={
            **os.environ,
            "SLUICEGATE_CONFIG": str(config),
            "SLUICEGATE_FAILPOINTS": f"{failpoint}=kill",
            **more,
        },
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await finished(process.wait(), "the coordinator") == -signal.SIGKILL


async def test_a_logged_decision_is_executed_independent_of_the_limits(place: Place) -> None:
    """The limits are the proposer's alone: two coordinators with other ones commit the same."""
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
        body = job.write_files([1], [2], [3])
        await job.complete(await job.written(body))
        await decide_and_die(place)
        assert read_ids(place.table) == []
        async with running(place.settings(options={"max_files_per_checkpoint": 1})):
            await job.committed([1, 2, 3])
