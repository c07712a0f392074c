"""The example programs of plain Python, with a real coordinator, while their processes are killed."""

import json
import operator
import random
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

import psutil
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sluicegate.kafka.clients import started
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

EXAMPLES = Path(__file__).parents[2] / "examples"
COUNT = 36_000


class Program:
    """One run of an example, in a process of its own."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log: IO[bytes] = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, *arguments], stdout=self._log, stderr=subprocess.STDOUT
        )
        self.path = log

    def checkpoints(self) -> int:
        """Number of checkpoints that all runs have completed."""
        return self.path.read_text(encoding="utf-8").count("\ncheckpoint ")

    def kill(self) -> None:
        """Kill the driver and its workers, as the loss of a machine does."""
        family = [*psutil.Process(self.process.pid).children(recursive=True)]
        self.process.kill()
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.close()

    def close(self) -> None:
        """Wait for the end of the process."""
        self.process.wait()
        self._log.close()

    def kill_worker(self, choose: random.Random) -> None:
        """Kill one of the workers, if there is one."""
        workers = [
            each
            for each in psutil.Process(self.process.pid).children()
            if "spawn_main" in " ".join(each.cmdline())
        ]
        if workers:
            choose.choice(workers).kill()


async def test_consumers_that_are_killed_at_random_lose_and_double_nothing(
    place: Place, tmp_path: Path
) -> None:
    topic = f"{place.prefix}-orders"
    async with started(AIOKafkaAdminClient(bootstrap_servers=place.bootstrap)) as admin:
        await admin.create_topics([NewTopic(topic, 3, 1)])
    async with started(AIOKafkaProducer(bootstrap_servers=place.bootstrap)) as producer:
        for number in range(COUNT):
            record = {"id": number, "origin": "JFK", "at": None}
            await producer.send(topic, json.dumps(record).encode(), partition=number % 3)
    arguments = [str(EXAMPLES / "kafka_consumers.py"), place.bootstrap, topic, place.table]
    arguments += ["--topic-prefix", place.prefix]
    log, choose = tmp_path / "driver.log", random.Random(7)
    log.write_text("\n")
    async with running(place.settings("orders")):
        for _ in range(2):
            program = Program(log, *arguments)
            for _ in range(2):
                seen = program.checkpoints()
                await until(program.checkpoints, partial(operator.lt, seen), by=program.process, log=log)
                program.kill_worker(choose)
            program.kill()
        last = Program(log, *arguments, "--once")
        await until(lambda: last.process.poll() is not None, log=log)
        last.close()
        assert last.process.returncode == 0, log.read_text()
    assert read_ids(place.table) == list(range(COUNT))
