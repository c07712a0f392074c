"""Each letter is sent once, whatever becomes of the coordinator meanwhile."""

from collections import Counter

import pytest

from sluicegate.coordinator.service.service import Service
from sluicegate.events.dead_letters import Letter, read_letter
from tests.integration.conftest import Place
from tests.integration.coordinator import coordinator_process, running
from tests.integration.job import Job, read_records
from tests.integration.letters import home_of
from tests.integration.orders import config_of
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


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


@pytest.mark.parametrize("seen", [1, 400])
async def test_a_kill_in_the_middle_of_a_batch_neither_loses_nor_repeats_a_letter(
    place: Place, seen: int
) -> None:
    async with place.job() as job:
        await job.send_registration()
        await job.written(job.write_files([1]))
        offsets = await flood(job, 3_000)
        log = place.root / "log"
        with coordinator_process(config_of(place), log) as process:
            await until(lambda: sent(job), lambda letters: len(letters) >= seen, by=process, log=log)
        async with running(place.settings()) as service:
            await until(lambda: settled(service, job, offsets[-1]))
        once(await sent(job), offsets)
