"""A stream whose topics or table were lost, and that was adopted."""

import json
import operator
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError

from sluicegate.cli import adopt
from sluicegate.cli.kafka import StateKey
from sluicegate.cli.recovery import write_records
from sluicegate.coordinator.core.state_record import StateRecord
from sluicegate.coordinator.settings.model import Settings
from sluicegate.coordinator.stream.state_records import decode_record, read_key
from sluicegate.events.envelope import EventType
from sluicegate.kafka.clients import started
from tests.faults import tables
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.job import Job, make_topics, read_events, read_ids, read_records
from tests.integration.letters import conditions
from tests.integration.orders import ADOPTION, follow, invoke_here
from tests.integration.test_replaced_tables import ids_of
from tests.integration.test_replay import three_commits, verified
from tests.integration.waiting import until
from tests.lakes.test_lost_metadata import lose_metadata

pytestmark = pytest.mark.kafka

ADOPT = ("stream", "adopt", "--stream", "flights")


async def lose_topics(place: Place, *some: str) -> None:
    """Delete topics, all without a name, and make them again."""
    topics = place.topics
    names = [*some] or [topics.events, topics.commits, topics.state, topics.dead_letters]
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        await admin.delete_topics(names)
        await until(admin.list_topics, lambda there: not {*names} & {*there}, what="the end of the topics")
    await make_topics(place.bootstrap, place.prefix)


@pytest.mark.seam
async def test_an_adopted_stream_is_read_from_its_base_record_by_replay_and_recovery(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        at = job.previous
        await lose_topics(place)
        assert (await invoke_here(place, *ADOPT)).exit_code == 0
        records = await read_records(place.bootstrap, place.topics.state)
        assert [read_key(each.key.decode()) for each in records] == [("flights", 0), ("flights", None)]
        base = decode_record("flights", records[0].value)
        assert isinstance(base, StateRecord)
        assert base.state.regions["r1"].position == at
        job.incarnation, job.base = "q2", at
        async with running(place.settings()):
            assert (await job.register()).accepted
            await job.commit([4], [1, 2, 3, 4])
        status, found = await verified(place)
        assert (status, found["first"], found["last"]) == (0, 4, 4)
        # A lost record is made of the base record and the log.
        await job.producer.send_and_wait(
            place.topics.state, None, key=b"flights", partition=records[1].partition
        )
        async with running(place.settings()):
            assert (await job.register()).accepted
            await job.commit([5], [1, 2, 3, 4, 5])
    assert read_ids(place.table) == [1, 2, 3, 4, 5]


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


async def test_an_adoption_that_was_interrupted_is_no_course_of_the_stream(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends after its base record. Then the right table is put back, and the stream continues by itself."""
    table, older, aside = Path(place.table), place.root / "older", place.root / "aside"
    async with place.job() as job:
        await commit(place, job, range(1, 3))
        shutil.copytree(table, older)
        await commit(place, job, range(3, 4))
        shutil.move(table, aside)
        shutil.move(older, table)
        monkeypatch.setattr(adopt, "write_records", without_the_last)
        ended = await invoke_here(place, *ADOPT, "--give-up", "3")
        assert ended.exit_code == 2, ended.output
        monkeypatch.undo()
        shutil.rmtree(table)
        shutil.move(aside, table)
        await commit(place, job, range(4, 5))
        waiting = job.write_files([5])
        event = await job.written(waiting)
        found = await invoke_here(place, "orphans", "list", "--stream", "flights", "--json", "--grace", "1ms")
        assert (found.exit_code, json.loads(found.stdout)["files"]) == (0, []), found.output
        status, _ = await verified(place)
        assert status == 0
        async with running(place.settings()):
            await job.complete(event)
            await until(lambda: ids_of(place), partial(operator.eq, [1, 2, 3, 4, 5]))
            await until(lambda: committed(place), lambda found: found == 5)
        again = await invoke_here(place, *ADOPT)
        assert (again.exit_code, "itself. Start the coordinators" in again.stderr) == (2, True), again.output


async def without_the_last(settings: Settings, values: Iterable[tuple[StateKey, bytes | None]]) -> None:
    """Write all of these state records except the last one, and fail."""
    await write_records(settings, [*values][:-1])
    raise KafkaConnectionError


PAGE = Path(__file__).parents[2] / "docs" / "moving.md"
_SECTION = re.compile(r"^## The table is lost\n(.*?)^## ", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def commands() -> Iterator[list[str]]:
    """Yield the commands of the section, in order, without the program's name."""
    section = _SECTION.search(PAGE.read_text(encoding="utf-8"))
    assert section is not None
    for block in _BLOCK.findall(section[1]):
        name, *words = block.split()
        assert name == "sluicegate"
        yield words


@pytest.mark.parametrize(
    ("lake", "catalog"),
    [
        *((lake, False) for lake in tables.FORMATS),
        pytest.param("iceberg", True, id="iceberg-whose-catalog-is-there"),
    ],
)
async def test_a_stream_continues_on_a_table_that_is_built_again(
    kafka_bootstrap: str, unique: str, tmp_path: Path, impatient: None, lake: str, catalog: bool
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    async with place.job() as job:
        await commit(place, job, range(1, 4))
        async with running(place.settings()) as service:
            event = await job.written(job.write_files([4]))
            lose_metadata(Path(place.table), catalog=not catalog)
            # It may be decided, and is then built as well.
            await job.complete(event, source_offsets=json.dumps({"next": 5}))
            retried = await until(lambda: [each for each in conditions(service) if each["kind"] == "retry"])
            assert "is lost for good, restart the coordinators: the stream then stalls" in str(retried)
        assert "sluicegate replay rebuild --stream flights --into TABLE" in await told(place, "table-unfit")
        again = tables.create_table(place.root, "again", lake)
        options = dict(tables.kind_of(again).options(again))
        named = [each for name, value in options.items() for each in ("--option", f"{name}={value}")]
        rebuild, adopt = commands()
        line = [str(again) if "/lake/" in each else each for each in rebuild]
        built = await invoke_here(place, *line, *named)
        assert built.exit_code == 0, built.output
        there = replace(place, table=str(again), lake_options=options)
        adopted = await invoke_here(there, *adopt, "--json")
        assert adopted.exit_code == 0, adopted.output
        job.location, job.lake_options = there.table, options
        await go_on(there, job, json.loads(adopted.stdout), 5)
    assert ids_of(there) == [1, 2, 3, 4, 5]
