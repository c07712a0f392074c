"""A Spark job whose Python workers and driver are killed while the coordinator commits."""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

from sluicegate.embedded.process import ChildProcess
from sluicegate.events.failpoint_names import Failpoint
from sluicegate.events.failpoints import LOG_VARIABLE, VARIABLE
from tests.faults.lives import Deployment
from tests.faults.rolling import Inexact
from tests.faults.scenes import Maker
from tests.faults.tables import rows_told, tally

ROOT: Final = Path(__file__).parents[2]
HOOKS: Final = tuple(point for point in Failpoint if point.startswith("hook."))
ROWS: Final = 20
"""Of a batch."""
_PATIENCE: Final = 120.0


class SparkJob:
    """The driver's process, and the files that its source has got."""

    def __init__(self, where: Deployment, seed: int) -> None:
        self.where = where
        self.folder = where.folder / "spark-job"
        self.source = self.folder / "in"
        self.source.mkdir(parents=True)
        self.ids: list[int] = []
        self._files = 0
        self.tickets = {point: self.folder / f"ticket-{point}" for point in HOOKS}
        self._settings = self.folder / "settings.json"
        options = {
            "stream": "flights",
            "region": "r1",
            "table": str(where.tables["flights"]),
            "kafka.bootstrap.servers": where.bootstrap,
            "topic.prefix": where.prefix,
            "opening.timeout": "60",
            "checkpointLocation": str(self.folder / "checkpoint"),
        }
        given = {
            "folder": str(self.folder),
            "source": str(self.source),
            "options": options,
            "seed": seed,
            "stop": 0.005,
        }
        self._settings.write_text(json.dumps(given), encoding="utf-8")
        self.start()

    def start(self) -> None:
        """Begin a life of the driver."""
        rules = [f"{point}=kill?{ticket}" for point, ticket in self.tickets.items()]
        variables = {VARIABLE: ";".join(["*=note", *rules]), LOG_VARIABLE: str(self.where.hits)}
        self._process = ChildProcess(
            [sys.executable, "-m", "tests.faults.sparkdriver", str(self._settings)],
            log_file=self.folder / "driver.log",
            cwd=ROOT,
            env={**os.environ, **variables},
        )

    def feed(self) -> None:
        """A file for the source: a batch."""
        ids = range(self._files * ROWS, (self._files + 1) * ROWS)
        lines = [json.dumps({"id": n, "origin": f"o{n % 2}", "at": "2013-01-01T00:00:00"}) for n in ids]
        draft = self.folder / "draft"
        draft.write_text("\n".join(lines))
        draft.rename(self.source / f"{self._files:06d}.json")
        self._files += 1
        self.ids.extend(ids)

    async def kill_worker(self, point: Failpoint) -> bool:
        """Have the next Python worker that gets to a place killed there; False if none did for a while."""
        ticket = self.tickets[point]
        ticket.touch()
        if point in (Failpoint.HOOK_OPENING_BEFORE, Failpoint.HOOK_OPENING_AFTER):
            self._settings.with_name("restart").touch()
        deadline = time.monotonic() + 30.0
        while ticket.exists():
            if time.monotonic() > deadline:
                ticket.unlink(missing_ok=True)
                return False
            # No more than the job keeps up with: in the end all of it has to be processed.
            if rows_told(self.where.tables["flights"]) > len(self.ids) - 2 * ROWS:
                self.feed()
            await asyncio.sleep(0.2)
        return True

    def kill_driver(self) -> None:
        """Kill the driver and its JVM, and start them again."""
        self._process.kill()
        self.start()

    async def finish(self) -> None:
        """Let it process all there is, and end."""
        self._settings.with_name("done").touch()
        status = await asyncio.to_thread(self._process.wait, _PATIENCE)
        if status:
            raise Inexact(f"the driver ended with {status}: {self.tail()}")

    def end(self) -> None:
        """Whatever it does."""
        self._process.kill()

    def tail(self) -> str:
        """The end of the driver's log."""
        return "\n".join((self.folder / "driver.log").read_text(errors="replace").splitlines()[-20:])


async def spark_killed(make: Maker, kills: int, random: Random) -> Counter[str]:
    """Kill workers, drivers and coordinators in turn; how often which."""
    where: Deployment = await make()
    done: Counter[str] = Counter()
    life = where.start()
    job = SparkJob(where, random.randrange(1 << 30))
    try:
        job.feed()
        await _committed(where, job)
        turn = tried = 0
        while done.total() < kills:
            turn += 1
            if turn % 5 == 4:
                job.feed()
                await asyncio.sleep(random.uniform(0.0, 3.0))
                job.kill_driver()
                done["spark driver"] += 1
            elif turn % 5 == 2:
                life.kill()
                life = where.start()
                done["coordinator"] += 1
            else:
                point, tried = HOOKS[tried % len(HOOKS)], tried + 1
                done["python worker"] += await job.kill_worker(point)
        await job.finish()
        await _committed(where, job)
    finally:
        job.end()
        life.end()
    found = await asyncio.to_thread(tally, where.tables["flights"], job.ids, where.user("flights"))
    if not found.exact:
        raise Inexact(f"{where.tables['flights']}: {found}\n{job.tail()}")
    return done


async def _committed(where: Deployment, job: SparkJob) -> None:
    deadline = time.monotonic() + _PATIENCE
    while rows_told(where.tables["flights"]) < len(job.ids):
        if time.monotonic() > deadline:
            raise Inexact(f"{rows_told(where.tables['flights'])} of {len(job.ids)} rows: {job.tail()}")
        await asyncio.sleep(0.2)
