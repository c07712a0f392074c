"""Topics that are older than the table: restored from a copy, or without their newest records.

Each test follows the text of the condition word by word, and the table ends exact.
"""

import json
import operator
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from sluicegate.events.envelope import EventType
from sluicegate.kafka.clients import started
from tests.faults import tables
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.job import Job, read_events, read_records
from tests.integration.letters import conditions
from tests.integration.orders import ADOPTION, follow, invoke_here
from tests.integration.test_adopt import ADOPT, lose_topics
from tests.integration.test_replaced_tables import ids_of
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
Copy = dict[str, list[Any]]


async def copied(place: Place) -> Copy:
    """Return all records of the topics, in the order of their partitions."""
    names = (place.topics.events, place.topics.state, place.topics.commits)
    return {name: await read_records(place.bootstrap, name) for name in names}


async def put_back(place: Place, copy: Copy) -> None:
    """Lose all topics, and restore them from a copy."""
    await lose_topics(place)
    async with started(AIOKafkaProducer(bootstrap_servers=place.bootstrap, acks="all")) as producer:
        for topic, records in copy.items():
            for each in records:
                await producer.send_and_wait(
                    topic, each.value, key=each.key, partition=each.partition, headers=list(each.headers)
                )


async def commit(place: Place, job: Job, ids: range) -> None:
    """Commit one batch for each id, whose source offsets are the next id."""
    async with running(place.settings()):
        assert (await job.register()).accepted
        for number in ids:
            event = await job.written(job.write_files([number]))
            await job.complete(event, source_offsets=json.dumps({"next": number + 1}))
            wanted = [*range(1, number + 1)]
            await until(lambda: ids_of(place), partial(operator.eq, wanted))
        done = len(ids_of(place))
        await until(lambda: committed(place), lambda found: found == done)


async def committed(place: Place) -> int:
    log = await read_events(place.bootstrap, place.topics.events)
    return sum(each.envelope.type is EventType.CUT_COMMITTED for each in log)


async def told(place: Place, code: str) -> str:
    """Return the sentence of a stall, as a coordinator has it."""
    async with running(place.settings()) as service:
        seen = await until(lambda: [each for each in conditions(service) if each["code"] == code])
    return str(seen[0]["message"])


async def go_on(place: Place, job: Job, adopted: dict[str, Any], last: int) -> None:
    """Continue the source at the offsets that the command prints, up to an id."""
    async with running(place.settings()):
        assert (await job.begin("after-the-adoption")).accepted
        for number in range(json.loads(adopted["source_offsets"]["r1"])["next"], last + 1):
            await job.run_batch([number])
        await until(lambda: ids_of(place), lambda found: found == [*range(1, last + 1)])
    verified = await invoke_here(place, "replay", "verify", "--stream", "flights")
    assert verified.exit_code == 0, verified.output


@pytest.mark.parametrize("lake", tables.FORMATS)
async def test_topics_that_were_restored_from_an_older_copy(
    kafka_bootstrap: str, unique: str, tmp_path: Any, lake: str
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    async with place.job() as job:
        await commit(place, job, range(1, 3))
        copy = await copied(place)
        await commit(place, job, range(3, 5))
        await put_back(place, copy)
        text = await told(place, "table-ahead")
        verified = await invoke_here(place, "replay", "verify", "--stream", "flights")
        assert verified.exit_code == 1
        # All texts lead to the same command.
        assert ADOPTION.findall(verified.stdout) == ADOPTION.findall(text)
        recovered = await invoke_here(place, "stream", "recover", "--stream", "flights")
        assert (recovered.exit_code, ADOPTION.findall(recovered.stderr)) == (2, ADOPTION.findall(text))
        adopted = await follow(place, text)
        assert adopted["decision"] == 4
        again = await invoke_here(place, *ADOPT)
        assert (again.exit_code, "itself. Start the coordinators" in again.stderr) == (2, True), again.output
        await go_on(place, job, adopted, 6)
    assert ids_of(place) == [1, 2, 3, 4, 5, 6]
