"""Topics that are older than the table: restored from a copy, or without their newest records.

Each test follows the text of the condition word by word, and the table ends exact.
"""

import json
import operator
import os
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from sluicegate.coordinator.core.state_record import base_key
from sluicegate.events.envelope import EventType
from sluicegate.events.problems import Code
from sluicegate.kafka.clients import started
from tests.faults import tables
from tests.faults.lives import COMMAND
from tests.integration.conftest import Place, neighbour, place_of
from tests.integration.coordinator import running
from tests.integration.job import Job, delete_records, read_events, read_records
from tests.integration.letters import conditions
from tests.integration.orders import ADOPTION, Spoken, config_of, follow, invoke_here, spoken
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


async def test_the_newest_events_are_lost_and_the_records_of_the_state_are_not(place: Place) -> None:
    async with place.job() as job:
        await commit(place, job, range(1, 3))
        events = {place.topics.events: (await copied(place))[place.topics.events]}
        await commit(place, job, range(3, 5))
        await put_back(place, {**await copied(place), **events})
        text = await told(place, "log-discontinuous")
        verified = await invoke_here(place, "replay", "verify", "--stream", "flights")
        assert (verified.exit_code, ADOPTION.findall(verified.stderr)) == (2, ADOPTION.findall(text))
        await go_on(place, job, await follow(place, text), 6)


async def test_an_older_copy_without_a_record_left(place: Place) -> None:
    async with place.job() as job:
        await commit(place, job, range(1, 3))
        copy = await copied(place)
        await commit(place, job, range(3, 5))
        await put_back(place, copy)
        await delete_records(place.bootstrap, place.topics.events, "flights")
        await go_on(place, job, await follow(place, await told(place, "table-ahead")), 6)


async def test_what_drivers_have_begun_in_the_older_copy_does_not_count(place: Place) -> None:
    """They began at the position of the copy, so their rows are in the table already."""
    async with place.job() as job:
        await commit(place, job, range(1, 3))
        copy, at = await copied(place), job.previous
        await commit(place, job, range(3, 5))
        await put_back(place, copy)
        job.incarnation, job.base, job.previous = "in-the-copy", at, at
        await job.send_registration(replaces="q1")
        await job.run_batch([3])
        await job.run_batch([4])
        text = await told(place, "table-ahead")
        adopted = await follow(place, text)
        async with running(place.settings()):
            refused = (await job.register()).problem
            assert refused is not None
            assert refused.code is Code.INCARNATION_ENDED
        await go_on(place, job, adopted, 6)


async def test_a_base_record_of_the_lost_events_is_not_taken_for_one_of_the_copy(place: Place) -> None:
    async with place.job() as job:
        await commit(place, job, range(1, 3))
        copy = await copied(place)
        await commit(place, job, range(3, 5))
        newest = (await copied(place))[place.topics.state][-1]
        await put_back(place, copy)
        end = len(copy[place.topics.events])
        # Coordinators delete up to here later, and would then begin with what is not of this log.
        stale = base_key("flights", end + 40).encode()
        await job.producer.send_and_wait(
            place.topics.state, newest.value, key=stale, partition=newest.partition
        )
        await go_on(place, job, await follow(place, await told(place, "table-ahead")), 6)
        records = await read_records(place.bootstrap, place.topics.state)
    assert {each.key: each.value for each in records}[stale] is None


async def test_two_streams_of_one_table_and_one_older_copy(place: Place) -> None:
    other = neighbour("flights", same=True)
    both = place.settings("flights", other)
    async with place.job() as job, place.job(other) as second:
        async with running(both):
            for each, number in ((job, 1), (second, 2)):
                assert (await each.register()).accepted
                await each.run_batch([number])
            await job.committed([1, 2])
            await until(lambda: committed(place), lambda found: found == 2)
        copy = await copied(place)
        async with running(both):
            await job.run_batch([3])
            await second.run_batch([4])
            await job.committed([1, 2, 3, 4])
            await until(lambda: committed(place), lambda found: found == 4)
        await put_back(place, copy)
        for name in ("flights", other):
            adopted = await invoke_with(place, name, "stream", "adopt", "--stream", name, "--from-table")
            assert adopted.exit_code == 0, adopted.output
        async with running(both):
            for each, number in ((job, 5), (second, 6)):
                assert (await each.begin(f"{each.stream}-again")).accepted
                await each.run_batch([number])
            await job.committed([1, 2, 3, 4, 5, 6])


async def invoke_with(place: Place, stream: str, *arguments: str) -> Spoken:
    """Run a command with the settings of another stream of the table."""
    config = config_of(place)
    config.write_text(config.read_text().replace("[streams.flights]", f"[streams.{stream}]"))
    return await spoken((*COMMAND, *arguments), {**os.environ, "SLUICEGATE_CONFIG": str(config)})
