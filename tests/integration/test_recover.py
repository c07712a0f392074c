"""`sluicegate stream recover` and `stream adopt`, also killed at each of their writes, and repeated."""

import os
import sys
from itertools import count
from typing import Final

import pytest

from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_ids, read_records
from tests.integration.orders import Spoken, config_of, invoke_here, spoken
from tests.integration.test_adopt import ADOPT, lose_topics
from tests.integration.test_replay import put_base_record, three_commits, verified

pytestmark = pytest.mark.kafka

RECOVER = ("stream", "recover", "--stream", "flights")


async def damage(place: Place, job: Job) -> None:
    """Write what is no record under the key of the stream."""
    newest = [
        each for each in await read_records(place.bootstrap, place.topics.state) if each.key == b"flights"
    ]
    await job.producer.send_and_wait(
        place.topics.state, b"\x00no record", key=b"flights", partition=newest[-1].partition
    )


async def stalled_by_the_record(place: Place, job: Job) -> None:
    """See the condition, its advice, and that the record is not replaced without an order."""
    async with running(place.settings()):
        answer = await job.register()
        assert answer.problem is not None
        assert answer.problem.code is Code.STATE_RECORD_MALFORMED
        assert "`sluicegate stream recover --stream flights`" in answer.reason
    assert (await read_records(place.bootstrap, place.topics.state))[-1].value == b"\x00no record"


async def refused(place: Place) -> Spoken:
    result = await invoke_here(place, *RECOVER)
    assert result.exit_code == 2, result.output
    return result


async def continues(place: Place, job: Job, offset: int) -> None:
    """Follow the advice; the job's next batch is committed, and nothing twice."""
    result = await invoke_here(place, *RECOVER)
    assert result.exit_code == 0, result.output
    assert f"read again from offset {offset}. Restart the coordinators" in result.stdout
    assert "for its commit user sluicegate-flights" in result.stdout
    async with running(place.settings()):
        assert (await job.register()).accepted
        await job.commit([5], [1, 2, 3, 4, 5])
    assert "is not malformed" in (await refused(place)).stderr


async def test_a_stream_with_a_damaged_record_reads_its_whole_log_again(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        assert "See: sluicegate status --stream flights" in (await refused(place)).stderr
        await damage(place, job)
        await job.run_batch([4])
        await stalled_by_the_record(place, job)
        await continues(place, job, 0)
    assert read_ids(place.table) == [1, 2, 3, 4, 5]


@pytest.mark.seam
async def test_a_stream_with_a_damaged_record_continues_from_its_base_record(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        begin = await put_base_record(place, job)
        await damage(place, job)
        await job.run_batch([4])
        await stalled_by_the_record(place, job)
        await continues(place, job, begin)
    assert read_ids(place.table) == [1, 2, 3, 4, 5]


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
        await job.commit([5], [1, 2, 3, 5])
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
