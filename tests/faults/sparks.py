"""A Spark job whose Python workers, executors and driver are killed while the coordinator commits."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.cli.local.process import ChildProcess
from sluicegate.events.codec import read_record
from sluicegate.events.envelope import EventType, partition_of
from sluicegate.events.models import CheckpointCompleted
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import LOG_VARIABLE, VARIABLE
from sluicegate.writer_hooks.options import TABLE_PREFIX
from tests.faults.executors import CLUSTERED, SparkCluster
from tests.faults.lives import Deployment
from tests.faults.points import SENDING, SPOOLED
from tests.faults.scenes import Maker
from tests.faults.tables import Inexact, kind_of, rows_told, tally
from tests.integration.job import PARTITIONS
from tests.integration.waiting import until

ROOT: Final = Path(__file__).parents[2]
BEGINNING: Final = (
    Failpoint.HOOK_PROBE_BEFORE,
    Failpoint.HOOK_PROBE_AFTER,
    Failpoint.HOOK_MARKER_BEFORE,
    Failpoint.HOOK_MARKER_AFTER,
)
"""Passed only until a new checkpoint location has its incarnation, in this order."""
STARTING: Final = (
    Failpoint.HOOK_REGISTRATION_BEFORE,
    Failpoint.HOOK_REGISTRATION_AFTER,
    Failpoint.HOOK_ANSWER_AFTER,
)
"""Passed at each start of a query."""
HOOKS: Final = tuple(point for point in Failpoint if point.startswith("hook.") and point not in BEGINNING)
"""Passed again and again."""
WRITTEN: Final = (Failpoint.HOOK_FILES_WRITTEN_BEFORE, Failpoint.HOOK_FILES_WRITTEN_AFTER)
STRAGGLING: Final = 4_000
"""Milliseconds: long enough for another try of the task, and for the query's next run."""
Way = Literal["source", "foreach"]
"""The data source, or ForeachBatch, which does in the driver what the data source does in a worker of it."""
ROWS: Final = 20
"""Of a batch."""
_PASSED: Final = 10
"""Batches that are committed without a process at the place where a fault waits for it: it does not come."""


class Tickets:
    """The files with which the job's processes are told what to do at which place."""

    def __init__(self, where: Deployment) -> None:
        self.folder = where.folder / "tickets"
        self.folder.mkdir()
        killing, slowing = (*BEGINNING, *HOOKS, *SPOOLED, *SENDING), (*WRITTEN, *SPOOLED)
        self.kill = {point: self.folder / f"kill-{point}" for point in killing}
        self.slow = {point: self.folder / f"slow-{point}" for point in slowing}
        """The next task that has written its files publishes them late, or goes on late when it has."""
        rules = ["*=note", *(f"{point}=kill?{ticket}" for point, ticket in self.kill.items())]
        rules += [f"{point}=delay:{STRAGGLING}?{ticket}" for point, ticket in self.slow.items()]
        self.variables = {VARIABLE: ";".join(rules), LOG_VARIABLE: str(where.hits)}
        """Of the environment of all processes that are to listen."""


class SparkJob:
    """The driver's process, and the files that its source has got."""

    def __init__(
        self,
        where: Deployment,
        tickets: Tickets,
        seed: int,
        cluster: SparkCluster | None = None,
        way: Way = "source",
        regions: Sequence[str] = ("r1",),
    ) -> None:
        self.where = where
        self.regions = regions
        self.way = way
        self.tickets = tickets
        self.folder = where.folder / "spark-job"
        self.log_file = self.folder / "driver.log"
        self.source = self.folder / "in"
        self.source.mkdir(parents=True)
        self.ids: list[int] = []
        self.files = 0
        """Files for the source, each a batch."""
        self._settings = self.folder / "settings.json"
        given = self._given(seed, cluster)
        self._settings.write_text(json.dumps(given), encoding="utf-8")
        self.start()

    def _given(self, seed: int, cluster: SparkCluster | None) -> dict[str, Any]:
        where = self.where
        options = {
            "stream": "flights",
            "region": "r1",
            "regions": ",".join(self.regions),
            "assignment": "0",
            "table": where.location("flights"),
            "format": where.lake,
            **{f"{TABLE_PREFIX}{name}": value for name, value in where.options("flights").items()},
            "kafka.bootstrap.servers": where.bootstrap,
            "topic.prefix": where.prefix,
            "registration.timeout": "900",
            "checkpointLocation": str(self.folder / "checkpoint"),
        }
        return {
            "folder": str(self.folder),
            "source": str(self.source),
            "files": "json",
            # 0: as many as the source has.
            "tasks": 2,
            # Column by which ForeachBatch gets the rows of a batch.
            "order": "",
            "options": options,
            "schema": f"id long, origin string, at {kind_of(where.tables['flights']).SPARK_TIME}",
            "seed": seed,
            "way": self.way,
            "stop": 0.005,
            # A task that dies with its worker is tried again.
            "master": cluster.url if cluster else "local[2,4]",
            "session": CLUSTERED if cluster else {},
        }

    def start(self) -> None:
        """Begin a life of the driver."""
        self._process = ChildProcess(
            [sys.executable, "-m", "tests.faults.sparkdriver", str(self._settings)],
            log_file=self.log_file,
            cwd=ROOT,
            env={**os.environ, **self.tickets.variables},
        )

    def feed(self) -> None:
        """A file for the source: a batch."""
        ids = range(self.files * ROWS, (self.files + 1) * ROWS)
        lines = [json.dumps({"id": n, "origin": f"o{n % 2}", "at": "2013-01-01T00:00:00"}) for n in ids]
        draft = self.folder / "draft"
        draft.write_text("\n".join(lines))
        draft.rename(self.source / f"{self.files:06d}.json")
        self.files += 1
        self.ids.extend(ids)

    async def kill_worker(self, point: Failpoint) -> bool:
        """Have the next Python worker that gets to a place killed there; False if none did for a while."""
        if point in STARTING:
            self.restart()
        return await self._taken(self.tickets.kill[point])

    async def straggle(self, point: Failpoint) -> bool:
        """Hold up the next task that gets to a place; False if none did for a while."""
        return await self._taken(self.tickets.slow[point])

    def restart(self) -> None:
        """Have the driver stop the query, and start it again at once."""
        self._settings.with_name("restart").touch()

    async def _taken(self, ticket: Path) -> bool:
        await asyncio.to_thread(ticket.touch)
        last = self.rows_there() + _PASSED * ROWS

        def outcome() -> str:
            if not ticket.exists():
                return "taken"
            self.feed_on()
            return "passed" if self.rows_there() > last else ""

        what = f"{ticket.name}, or {_PASSED} batches without it"
        # With ForeachBatch, the process that is killed may be the driver.
        by = self._process if self.way == "source" else None
        found = await until(outcome, by=by, log=self.log_file, what=what)
        if self.way == "foreach" and ticket.name.startswith("kill") and not _is_of_tasks(ticket):
            await until(self._process.poll, lambda status: status is not None, log=self.log_file)
            self.kill_driver()
        await asyncio.to_thread(ticket.unlink, missing_ok=True)
        return found == "taken"

    def feed_on(self) -> None:
        """A batch, if the job keeps up: in the end all of it has to be processed."""
        if self.rows_there() > (self.files - 2) * ROWS:
            self.feed()

    def rows_there(self) -> int:
        """Return how many rows of the job the table has."""
        return rows_told(self.where.tables["flights"])

    def kill_driver(self) -> None:
        """Kill the driver and its JVM, and start them again."""
        self._process.kill()
        self.start()

    async def finish(self) -> None:
        """Let it process all there is, and end."""
        self._settings.with_name("done").touch()
        status = await until(
            self._process.poll, lambda found: found is not None, log=self.log_file, what="the end of the job"
        )
        if status:
            raise Inexact(f"the driver ended with {status}: {self.tail()}")

    def end(self) -> None:
        """Whatever it does."""
        self._process.kill()

    def tail(self) -> str:
        """The end of the driver's log."""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-20:])


def _is_of_tasks(ticket: Path) -> bool:
    return any(ticket.name.endswith(point) for point in WRITTEN)


async def executor_lost(make: Maker) -> int:
    """The executor of a task is killed when the task's files are there; how many files that left."""
    where: Deployment = await make()
    life = where.start()
    tickets = Tickets(where)
    with SparkCluster(where.folder, tickets.variables) as cluster:
        job = SparkJob(where, tickets, 1, cluster)
        try:
            job.feed()
            if not await job.straggle(Failpoint.HOOK_FILES_WRITTEN_AFTER):
                raise Inexact(f"no task wrote anything; {job.tail()}")
            worker = await until(partial(_delayed, where))
            await asyncio.to_thread(lambda: os.kill(cluster.executor_of(worker), signal.SIGKILL))
            await settled(where, job)
            written, named = await events(where)
            return await asyncio.to_thread(_files_there, where) - sum(written[each] for each in named)
        finally:
            job.end()
            life.end()


def _files_there(where: Deployment) -> int:
    """The number of data files in the folder of a Paimon table."""
    return len(list(Path(where.location("flights")).rglob("data-*.parquet")))


def _delayed(where: Deployment) -> int:
    """The process that was held up last, 0 if none was."""
    lines = [line.split() for line in where.noted().splitlines()]
    return next((int(line[0]) for line in reversed(lines) if line[-1] == "note,delay"), 0)


async def events(where: Deployment) -> tuple[dict[str, int], set[str]]:
    """The number of files of each event of the stream, and the events that completions name."""
    written, named = dict[str, int](), set[str]()
    async with AIOKafkaConsumer(bootstrap_servers=where.bootstrap, enable_auto_commit=False) as consumer:
        source = TopicPartition(where.topics.events, partition_of("flights", PARTITIONS))
        consumer.assign([source])
        end = (await consumer.end_offsets([source]))[source]
        consumer.seek(source, 0)
        while await consumer.position(source) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    read = read_record(record.offset, record.timestamp, record.headers, record.value).record
                    if read is not None and read.envelope.type is EventType.FILES_WRITTEN:
                        written[read.envelope.id] = read.envelope.files
                    elif read is not None and isinstance(read.body, CheckpointCompleted):
                        named.update(read.body.events)
    return written, named


async def settled(where: Deployment, job: SparkJob) -> None:
    """Let the job end; the table must be exact. Raises Inexact."""
    await job.finish()
    await committed(where, job)
    found = await asyncio.to_thread(tally, where.tables["flights"], job.ids, where.user("flights"))
    if not found.exact:
        raise Inexact(f"{where.tables['flights']}: {found}\n{job.tail()}")


async def committed(where: Deployment, job: SparkJob) -> None:
    rows = len(job.ids)
    await until(
        partial(rows_told, where.tables["flights"]),
        lambda told: told >= rows,
        log=job.log_file,
        what=f"{rows} rows",
    )
