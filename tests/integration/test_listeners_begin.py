"""The beginning of a listener: no outcome is missed, and settings that do not fit the table are shown."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner

from sluicegate.cli import main
from sluicegate.coordinator.core.state_record import listener_key
from sluicegate.coordinator.listeners.worker import ListenerCode
from sluicegate.events.envelope import partition_of
from sluicegate.kafka.clients import started
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.job import PARTITIONS, read_ids
from tests.integration.orders import sluicegate
from tests.integration.test_listeners import announced, coordinator
from tests.integration.waiting import exit_status, until
from tests.integration.webhooks import code, config_with, hook, receiving, shown, with_hook

pytestmark = pytest.mark.kafka

LATE = """
import os
from sluicegate.coordinator.listeners.records import ListenerRecords
read = ListenerRecords.read
async def late(self, streams):
    if not os.path.exists(os.environ["RECORDS_MAY_BE_READ"]):
        raise TimeoutError
    return await read(self, streams)
ListenerRecords.read = late
from sluicegate.cli import main
main()
"""
"""The service; its listeners have no records until a file is there."""
MARKS = {"type": "mark-done", "actions": ["mark-event"]}


async def test_a_new_listener_misses_no_outcome_of_a_coordinator_that_dies_at_its_beginning(
    place: Place,
) -> None:
    """It dies right after it has announced its second commit, however late the first record is."""
    go, log = place.root / "go", place.root / "log"
    async with receiving(place.table) as receiver, place.job() as job:
        async with running(place.settings()):
            await job.register()
        config = config_with(place, hook(place, receiver))
        more = {
            "RECORDS_MAY_BE_READ": str(go),
            "SLUICEGATE_CONFIG": str(config),
            "SLUICEGATE_HTTP__PORT": "0",
            "SLUICEGATE_FAILPOINTS": "announce.after=kill@2",
        }
        with log.open("wb") as stderr:
            command = (sys.executable, "-c", LATE, "run")
            process = subprocess.Popen(command, stderr=stderr, env={**os.environ, **more})  # noqa: ASYNC220
        try:
            await job.run_batch([1])
            await until(lambda: read_ids(place.table), by=process, log=log)
            await job.run_batch([2])
            # Without the wait for the records, the second commit is announced, and the process ends.
            tries = _tries(log)
            await until(lambda: _tries(log), lambda found: found >= tries + 4, by=process, log=log)
            go.touch()
            assert await asyncio.to_thread(exit_status, process, log) == -signal.SIGKILL
        finally:
            process.kill()
            process.wait()
        assert receiver.hidden == []
        with coordinator(place, config, log) as second:
            await job.run_batch([3])
            await until(receiver.decisions, lambda found: 3 in found, by=second, log=log)
    assert sorted({*receiver.decisions()}) == [1, 2, 3]


def _tries(log: Path) -> int:
    """Return the number of times that the records of listeners could not be read."""
    return log.read_text().count("records of listeners not read yet")


async def test_a_listener_that_is_added_gets_no_earlier_outcome(place: Place) -> None:
    async with receiving(place.table) as receiver, place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            # Otherwise the next coordinator announces it.
            await until(lambda: announced(job))
        async with running(with_hook(place, receiver)):
            await job.run_batch([2])
            await until(receiver.decisions)
    assert receiver.decisions() == [2]


async def test_marks_that_the_table_cannot_have_are_refused_at_the_start_and_by_check(place: Place) -> None:
    options = {"listeners": {"hook": MARKS}}
    async with running(place.settings(options=options)) as service, place.job() as job:
        await until(lambda: code(service), lambda found: found == ListenerCode.UNUSABLE)
        problem = shown(service)["problem"]["message"]
        assert "the table has no partitions, so none can be marked. Remove the listener" in problem
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
    checked = await check(place, MARKS)
    assert "PROBLEM  listener hook of flights: the table has no partitions" in checked
    # As the problem advises, the listener is removed.
    assert "listener hook" not in await sluicegate(place, "check", "--create")


OTHER_RECORDS: dict[str, dict[str, Any]] = {
    "its record is of the type mark-done. Give the listener of the type webhook another name": {
        "version": 1, "type": "mark-done", "decision": 0
    },
    "a newer release wrote its record. Run that release, or give the listener another name": {"version": 2},
}  # fmt: skip


@pytest.mark.parametrize("words", OTHER_RECORDS)
async def test_a_record_that_cannot_be_used_leaves_another_name(place: Place, words: str) -> None:
    home = partition_of("flights", PARTITIONS)
    record = {"stream": "flights", "listener": "hook", "owner": "former", "partition": home, "offset": 0}
    value = json.dumps({**record, **OTHER_RECORDS[words]}).encode()
    async with started(AIOKafkaProducer(bootstrap_servers=place.bootstrap)) as producer:
        key = listener_key("flights", "hook", "former").encode()
        await producer.send_and_wait(place.topics.state, value, key=key, partition=home)
    async with receiving(place.table) as receiver, place.job() as job:
        async with running(with_hook(place, receiver)) as service:
            await until(lambda: code(service), lambda found: found == ListenerCode.UNUSABLE)
            assert words in shown(service)["problem"]["message"]
            assert shown(service)["stopped"]
            await job.register()
            await job.run_batch([1])
            await until(lambda: announced(job))
        listeners = {"another": hook(place, receiver)}
        async with running(place.settings(options={"listeners": listeners})):
            await job.run_batch([2])
            await until(receiver.decisions, lambda found: found == [2])


async def test_a_listener_begins_when_its_table_is_there(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of("paimon", kafka_bootstrap, unique, tmp_path)
    months = {"timestamp_pattern": "$origin-01", "interval": "1 month"}
    options = {"listeners": {"hook": {**MARKS, **months}}}
    aside = Path(place.table).with_name("aside")
    Path(place.table).rename(aside)  # noqa: ASYNC240
    async with running(place.settings(options=options), ready=False) as service:
        await until(lambda: code(service), lambda found: found == ListenerCode.UNUSABLE)
        assert "waits for its table" in shown(service)["problem"]["message"]
        assert not shown(service)["stopped"]
        aside.rename(place.table)
        await until(lambda: code(service) is None)


async def check(place: Place, own: dict[str, Any]) -> str:
    """Return the output of `sluicegate check` with a listener that does not fit."""
    config = config_with(place, own)
    told = await asyncio.to_thread(CliRunner().invoke, main, ["check", "--create", "--config", str(config)])
    assert told.exit_code == 1, told.output
    return str(told.output)
