"""Limits of a commit: a region over a limit is excluded with a code, and nothing is lost."""

import asyncio
import os
import signal
from typing import Any

import pytest

from sluicegate.events.problems import Code
from tests.faults.lives import COMMAND
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, read_ids
from tests.integration.letters import stalled, stalls
from tests.integration.waiting import finished, until

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    ("limits", "code", "limit"),
    [
        ({"max_files_per_checkpoint": 2}, Code.TOO_MANY_FILES, 2),
        ({"max_pending_bytes": "100B"}, Code.TOO_MANY_BYTES, 100),
    ],
)
async def test_what_is_too_much_waits_for_a_higher_limit(
    place: Place, limits: dict[str, Any], code: Code, limit: int
) -> None:
    async with place.job() as job:
        async with running(place.settings(options=limits)) as service:
            await job.register()
            body = job.write_files([1], [2], [3])
            await job.complete(await job.written(body))
            problem = (await until(lambda: stalls(job)))[0]
            assert (problem.code, problem.region, problem.other) == (code, "r1", limit)
            assert (problem.number or 0) > limit
            assert stalled(service) == code
        assert read_ids(place.table) == []
        async with running(place.settings()):
            await job.committed([1, 2, 3])


async def test_a_region_with_too_much_holds_up_no_other(place: Place) -> None:
    options = {"partial": "allow", "alignment_timeout": 0.3}
    regions = ("r1", "r2")
    async with (
        place.job(regions=regions) as one,
        place.job(region="r2", regions=regions, incarnation="q2") as two,
    ):
        async with running(place.settings(options={**options, "max_files_per_checkpoint": 2})):
            await one.register()
            await two.register()
            await asyncio.gather(one.run_batch([10]), two.run_batch([11]))
            await two.committed([10, 11])
            await one.complete(await one.written(one.write_files([1], [2], [3])))
            for number in (4, 5):
                await two.run_batch([number])
            await two.committed([4, 5, 10, 11])
        async with running(place.settings(options=options)):
            await one.committed([1, 2, 3, 4, 5, 10, 11])


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
