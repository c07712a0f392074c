"""Each letter is sent once, whatever becomes of the coordinator meanwhile."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluicegate.coordinator.service.service import Service
from sluicegate.events.dead_letters import Letter, read_letter
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import Job, read_records
from tests.integration.letters import home_of
from tests.integration.orders import config_of
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

_COMMAND = (sys.executable, "-c", "from sluicegate.cli.main import main; main()", "run")


async def sent(job: Job) -> list[tuple[str, Letter]]:
    """Every letter of the topic, with its id."""
    read = [read_letter(record) for record in await read_records(job.bootstrap, job.topics.dead_letters)]
    return [each for each in read if each is not None and isinstance(each[1], Letter)]


async def flood(job: Job, count: int) -> list[int]:
    """Append messages of which each gets a letter; returns their offsets."""
    futures = [
        await job.producer.send(
            job.topics.events,
            b"{}",
            key=b"flood",
            partition=home_of(job.stream),
            headers=[("ce_stream", job.stream.encode()), ("number", str(number).encode())],
        )
        for number in range(count)
    ]
    return [(await future).offset for future in futures]


def settled(service: Service, job: Job, offset: int) -> bool:
    """Whether the stream's partition is read up to an offset and no letter waits."""
    runner = service._runners.get(home_of(job.stream))
    return runner is not None and runner.position > offset and runner.letters.first_waiting() is None


def once(found: list[tuple[str, Letter]], offsets: list[int]) -> None:
    """Assert that each of these messages has one letter, and there is no other."""
    assert Counter(letter.place.offset for _, letter in found) == Counter(offsets)
    assert len({id_ for id_, _ in found}) == len(found)
    assert all(id_ == letter.id for id_, letter in found)


@contextmanager
def killed(place: Place, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A coordinator in a process of its own, for a SIGKILL."""
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            _COMMAND,
            stderr=stderr,
            env={**os.environ, "SLUICEGATE_CONFIG": str(config_of(place)), "SLUICEGATE_HTTP__PORT": "0"},
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("seen", [1, 400])
async def test_a_kill_in_the_middle_of_a_batch_neither_loses_nor_repeats_a_letter(
    place: Place, seen: int
) -> None:
    async with place.job() as job:
        await job.send_registration()
        await job.written(job.write_files([1]))
        offsets = await flood(job, 3_000)
        log = place.root / "log"
        with killed(place, log) as process:
            await until(lambda: sent(job), lambda letters: len(letters) >= seen, by=process, log=log)
        async with running(place.settings()) as service:
            await until(lambda: settled(service, job, offsets[-1]))
        once(await sent(job), offsets)


async def test_the_offset_moves_on_with_the_letters_and_the_next_life_sends_the_rest_only(
    place: Place,
) -> None:
    async with place.job() as job:
        async with running(place.settings()) as service:
            offsets = await flood(job, 20)
            await until(lambda: settled(service, job, offsets[-1]))
        async with running(place.settings()) as service:
            runner = service._runners[home_of("flights")]
            more = await flood(job, 20)
            await until(lambda: settled(service, job, more[-1]))
            assert runner.letters.mark == 20, "the letters of the former life are not read again"
        once(await sent(job), offsets + more)
