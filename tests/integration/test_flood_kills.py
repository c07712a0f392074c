"""The owner of a stream that is held at its limit is killed. The next one goes on, and neighbours commit."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from sluicegate.coordinator.stream.reload import BURST
from sluicegate.events.problems import Code
from tests.faults.lives import COMMAND
from tests.integration.conftest import Place
from tests.integration.job import Job, create_table, read_ids
from tests.integration.letters import codes
from tests.integration.orders import sluicegate
from tests.integration.test_flood import QUIET, RAISED, conditions, flood
from tests.integration.test_reload import Coordinator, job_of, write_settings
from tests.integration.waiting import until, watched

pytestmark = pytest.mark.kafka

LIMIT: Final = 40
ROUND: Final = 100
MORE: Final = 3 * LIMIT * BURST
"""Events that are over the limit again for the next owner."""
HELD: Final = "stream is read at its limit"
STREAMS: Final = {"flights": f"max_events_per_second = {LIMIT}", QUIET: ""}


@contextmanager
def life(place: Place, name: str, streams: Mapping[str, str] = STREAMS) -> Iterator[Coordinator]:
    """A coordinator that is killed at the end of the block, if it was not before."""
    config, log = write_settings(place, streams), place.root / f"{name}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen([*COMMAND, "run", "--config", str(config)], stderr=stderr)
        try:
            yield Coordinator(process, place, log)
        finally:
            process.kill()
            process.wait()


async def held(owner: Coordinator) -> None:
    """Wait until the stream is read at its limit."""
    with watched(owner.process):
        await owner.told(HELD)
        await until(lambda: conditions(owner, "flights"), lambda seen: Code.EVENTS_LIMITED in seen)


async def flood_until_held(job: Job, *owners: Coordinator) -> Coordinator:
    """Publish more and more events; return the coordinator that reads the stream at its limit."""
    while True:
        for each in owners:
            if each.events(HELD):
                return each
        await flood(job, ROUND)


def own_commits(owner: Coordinator) -> list[dict[str, Any]]:
    """Return the commits of the noisy stream in the log of a coordinator."""
    return [each for each in owner.events("committed") if each["stream"] == "flights"]


async def exact(place: Place, noisy: Job, quiet: Job) -> None:
    """Compare both streams with their logs, and look for letters."""
    config = write_settings(place, STREAMS).rename(place.root / "both.toml")
    for stream in ("flights", QUIET):
        await sluicegate(place, "replay", "verify", "--stream", stream, "--config", str(config))
    assert await codes(noisy) == []
    assert await codes(quiet) == []


async def test_each_owner_of_a_held_stream_is_killed(place: Place, tmp_path: Path) -> None:
    """Three owners are killed: two while they read at the limit, one as soon as it has caught up."""
    create_table(tmp_path, QUIET)
    async with place.job() as noisy, job_of(place, QUIET) as quiet:
        rows, other = [1], [101]
        with life(place, "first") as owner:
            with watched(owner.process):
                await noisy.register()
                await quiet.register()
                await noisy.run_batch([1])
                await quiet.run_batch([101])
                await noisy.committed(rows)
                await flood_until_held(noisy, owner)
                await noisy.run_batch([2])
            await held(owner)
            with watched(owner.process):
                await quiet.committed(other)
            assert read_ids(noisy.location) == [1]
        # Nobody runs. Both jobs write on.
        rows, other = [1, 2, 3], [101, 102]
        await flood(noisy, MORE)
        await noisy.run_batch([3])
        await quiet.run_batch([102])
        with life(place, "second") as owner:
            await held(owner)
            with watched(owner.process):
                await quiet.committed(other)
        with life(place, "third") as owner, watched(owner.process):
            # A state record may include so much of the flood that the rest is within the burst.
            await until(lambda: owner.events("stream has caught up at its limit") or own_commits(owner))
        with life(place, "fourth") as owner, watched(owner.process):
            await noisy.committed(rows)
            await until(lambda: conditions(owner, "flights"), lambda seen: seen == [])
            rows, other = [1, 2, 3, 4], [101, 102, 103]
            await noisy.run_batch([4])
            await quiet.run_batch([103])
            await noisy.committed(rows)
            await quiet.committed(other)
        await exact(place, noisy, quiet)


async def test_a_member_that_waits_takes_a_held_stream_over(place: Place, tmp_path: Path) -> None:
    create_table(tmp_path, QUIET)
    async with place.job() as noisy, job_of(place, QUIET) as quiet:
        with life(place, "owner") as owner:
            with watched(owner.process):
                await noisy.register()
                await quiet.register()
                await noisy.run_batch([1])
                await noisy.committed([1])
            with life(place, "other") as other:
                both = (owner, other)
                for each in both:
                    with watched(each.process):
                        await each.told("partitions assigned")
                holder = await flood_until_held(noisy, *both)
                await noisy.run_batch([2])
                heir = other if holder is owner else owner
                holder.process.kill()
                with watched(heir.process):
                    await quiet.run_batch([101])
                    await quiet.committed([101])
                    # The printed way out works for the heir, too.
                    await heir.told(HELD)
                    heir.reload({"flights": RAISED, QUIET: ""})
                    await noisy.committed([1, 2])
                    await noisy.run_batch([3])
                    await noisy.committed([1, 2, 3])
        await exact(place, noisy, quiet)
