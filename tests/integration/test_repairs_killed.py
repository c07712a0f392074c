"""`stream recover` and `stream adopt` killed at each of their writes, and repeated.

A coordinator may run between the kill and the repetition. Rows and a listener's events are exact either way.
"""

import os
import sys
from itertools import count
from typing import Final

import pytest

from sluicegate.coordinator.settings.model import Settings
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids
from tests.integration.orders import Spoken, config_of, spoken
from tests.integration.test_adopt import ADOPT, lose_topics
from tests.integration.test_adopt_listeners import ADOPT as RENAME
from tests.integration.test_adopt_listeners import USER, adopting, four_events, three_events
from tests.integration.test_recover import RECOVER, damage
from tests.integration.test_replay import put_base_record, three_commits, verified
from tests.integration.webhooks import hook, receiving

pytestmark = pytest.mark.kafka

KILLED: Final = -9
_MORTAL: Final = """\
import os, signal, sys
from aiokafka import AIOKafkaProducer
from sluicegate.cli.main import main

left, send = int(sys.argv.pop(1)), AIOKafkaProducer.send_and_wait

def live() -> None:
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

async def mortal(*given, **named):
    live()
    done = await send(*given, **named)
    live()
    return done

AIOKafkaProducer.send_and_wait = mortal
main()
"""
"""The command line. It is killed before (odd numbers) or after (even numbers) one of its writes."""


async def killed_at(place: Place, step: int, *arguments: str) -> Spoken:
    """Run a command that is killed at a step; a step after its end does nothing."""
    environment = {**os.environ, "SLUICEGATE_CONFIG": str(config_of(place))}
    return await spoken((sys.executable, "-c", _MORTAL, str(step), *arguments), environment)


async def killed_at_each_step(
    place: Place, *arguments: str, done: str, meanwhile: Settings | None = None
) -> int:
    """Run a command until it lives to its end, or says that the work is done; return the number of kills.

    `meanwhile`: a coordinator with these settings starts and stops after each kill.
    """
    for step in count(1):
        result = await killed_at(place, step, *arguments)
        if result.exit_code != KILLED:
            assert result.exit_code == 0 or (result.exit_code == 2 and done in result.stderr), result.output
            return step - 1
        if meanwhile is not None:
            async with running(meanwhile):
                pass
    raise AssertionError


async def exact(place: Place, job: Job) -> None:
    """Commit once more, and see each row once, for the log too."""
    async with running(place.settings()):
        assert (await job.register()).accepted
        await job.run_batch([5])
        await job.committed([1, 2, 3, 5])
    assert read_ids(place.table) == [1, 2, 3, 5]
    status, found = await verified(place)
    assert (status, found["different"]) == (0, False)


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_a_killed_adoption_is_repeated(place: Place, meanwhile: bool) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        at = job.previous
        await lose_topics(place)
        # The note, the base record, and the record: without one, the base record is enough.
        between, least = (place.settings(), 6) if meanwhile else (None, 4)
        kills = await killed_at_each_step(place, *ADOPT, done="continues by itself", meanwhile=between)
        assert kills >= least
        job.incarnation, job.base = "q2", at
        await exact(place, job)


@pytest.mark.parametrize("meanwhile", [False, True])
@pytest.mark.parametrize("base", [False, True])
async def test_a_killed_recovery_is_repeated(place: Place, base: bool, meanwhile: bool) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        if base:
            await put_base_record(place, job)
        await damage(place, job)
        # The note and the record.
        between = place.settings() if meanwhile else None
        assert await killed_at_each_step(place, *RECOVER, done="is not malformed", meanwhile=between) >= 4
        await exact(place, job)


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_a_killed_rename_takes_the_listener_along(place: Place, meanwhile: bool) -> None:
    async with receiving(place.table) as receiver, place.job() as job:
        await three_events(place, job, receiver)
        own = hook(place, receiver)
        new = place.settings("departures", options={"listeners": {"hook": own}, **USER})
        command, between = (
            (*RENAME, "--config", str(adopting(place, {"hook": own}))),
            new if meanwhile else None,
        )
        # The note, the record of the stream and the one of its listener.
        assert await killed_at_each_step(place, *command, done="continues by itself", meanwhile=between) >= 6
        await four_events(place, job, receiver, own)
    assert receiver.decisions() == [1, 2, 3, 4]
    assert read_ids(place.table) == [1, 2, 3, 4]
