"""Drivers without Spark whose processes are killed and frozen while the coordinator commits."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import ClassVar, Final, Self

from sluicegate.cli.local.process import ChildProcess
from sluicegate.cli.local.servers import EmbeddedHdfs
from sluicegate.failpoints.names import Failpoint
from sluicegate.writer_hooks.options import TABLE_PREFIX
from tests.faults.lives import Deployment, Life
from tests.faults.plaindriver import ROWS, WRITERS
from tests.faults.scenes import Maker
from tests.faults.sparks import WRITTEN, Tickets
from tests.faults.tables import Inexact, rows_told, tally
from tests.integration.waiting import until

ROOT: Final = Path(__file__).parents[2]
STEP: Final = ROWS * WRITERS
"""Rows of a checkpoint."""
STARTING: Final = (
    Failpoint.HOOK_PROBE_BEFORE,
    Failpoint.HOOK_PROBE_AFTER,
    Failpoint.HOOK_REGISTRATION_BEFORE,
    Failpoint.HOOK_REGISTRATION_AFTER,
    Failpoint.HOOK_ANSWER_AFTER,
)
"""Passed at each start of a driver or a job."""
COMPLETING: Final = (Failpoint.HOOK_COMPLETION_BEFORE, Failpoint.HOOK_COMPLETION_AFTER)
PROGRAM: Final = (sys.executable, "-m", "tests.faults.plaindriver")
_AHEAD: Final = 3 * STEP
"""Rows that a driver may write before they are committed."""


class Program:
    """One process of the program, with its writers."""

    def __init__(self, job: "PlainJob", *arguments: str, program: Sequence[str] = PROGRAM) -> None:
        self._process = ChildProcess(
            [*program, str(job.settings), *arguments],
            log_file=job.log_file,
            cwd=ROOT,
            env={**os.environ, **job.tickets.variables},
        )

    def poll(self) -> int | None:
        """Return the exit status, None while it lives."""
        return self._process.poll()

    @property
    def pid(self) -> int:
        """Process of the driver."""
        return self._process.pid

    @property
    def is_over(self) -> bool:
        """True if it has ended."""
        return self._process.poll() is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the driver alone."""
        with suppress(ProcessLookupError):
            self._process.send(number)

    def kill(self) -> None:
        """Kill it, with its writers."""
        self._process.kill()


class PlainJob:
    """Settings of the programs of one region, and what they are to write."""

    def __init__(self, where: Deployment, tickets: Tickets, options: Mapping[str, str]) -> None:
        """`options`: more options of the driver."""
        self.where = where
        self.tickets = tickets
        folder = where.folder / "plain-job"
        folder.mkdir()
        self.log_file = folder / "driver.log"
        self.settings = folder / "settings.json"
        given = {
            "stream": "flights",
            "region": "r1",
            "table": where.location("flights"),
            "format": where.lake,
            **{f"{TABLE_PREFIX}{name}": value for name, value in where.options("flights").items()},
            "kafka.bootstrap.servers": where.bootstrap,
            "topic.prefix": where.prefix,
            "registration.timeout": "900",
            **options,
        }
        self.settings.write_text(json.dumps(given), encoding="utf-8")
        self.target = 0
        """Rows that are asked for."""
        self.ask_for(0)

    def ask_for(self, more: int) -> None:
        """Have the driver write so many more rows."""
        self.target += more
        draft = self.settings.with_name("draft")
        draft.write_text(str(self.target))
        draft.rename(self.settings.with_name("target"))

    @property
    def committed(self) -> int:
        """Rows of the table."""
        return rows_told(self.where.tables["flights"])

    async def await_rows(self, rows: int, program: Program | None = None) -> None:
        """Wait until the table has so many rows."""
        await until(
            lambda: self.committed,
            lambda told: told >= rows,
            by=program,
            log=self.log_file,
            what=f"{rows} rows",
        )

    def exact(self) -> None:
        """Raise Inexact unless the table has all rows that were asked for, each once."""
        table = self.where.tables["flights"]
        found = tally(table, range(self.target), self.where.user("flights"))
        if not found.exact:
            raise Inexact(f"{table}: {found}\n{self.tail()}")

    def tail(self) -> str:
        """The end of the log of the programs."""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-20:])


class Campaign:
    """A driver, or jobs, and what happens to them."""

    WRITING: ClassVar = WRITTEN
    """Places that each writer passes with its files."""

    def __init__(self, job: PlainJob, life: Life, random: Random) -> None:
        self.job = job
        self.life = life
        self.random = random
        self.done: Counter[str] = Counter()
        self.program: Program | None = None

    def start(self) -> Program:
        """Begin a life of the driver, in the place of the one before."""
        if self.program is not None:
            self.program.kill()
        self.program = Program(self.job)
        return self.program

    def feed_on(self) -> None:
        """Ask for more rows, if most are committed."""
        if self.job.target - self.job.committed < _AHEAD:
            self.job.ask_for(STEP)

    async def taken(self, ticket: Path) -> None:
        """Wait until a process has come to a place, while the driver has work."""

        def was_taken() -> bool:
            if not ticket.exists():
                return True
            if self.program is None or self.program.is_over:
                self.start()
            self.feed_on()
            return False

        await asyncio.to_thread(ticket.touch)
        await until(was_taken, log=self.job.log_file, what=ticket.name)

    async def killed_at(self, point: Failpoint) -> None:
        """Have the next process that comes to a place killed there."""
        if point in STARTING:
            self.start()
        await self.taken(self.job.tickets.kill[point])
        if point not in self.WRITING and self.program is not None:
            # Its writers end with it.
            await until(lambda: self.program is None or self.program.is_over, log=self.job.log_file)
            self.start()

    async def run(self, faults: Mapping[str, Callable[[Self], Awaitable[None]]], rounds: int) -> Counter[str]:
        """Let each kind of fault happen so often, in a random order; return how often which."""
        kinds = [*faults] * rounds
        self.random.shuffle(kinds)
        try:
            self.start()
            self.job.ask_for(STEP)
            await self.job.await_rows(STEP)
            for kind in kinds:
                await faults[kind](self)
                self.done[kind] += 1
            await self.end()
        finally:
            if self.program is not None:
                self.program.kill()
            self.life.end()
        return self.done

    # --- kinds of faults of a driver ----------------------------------------------------------------

    async def driver_killed_at_a_place(self) -> None:
        await self.killed_at(self.random.choice((*STARTING, *COMPLETING)))

    async def driver_killed_at_random(self) -> None:
        self.job.ask_for(2 * STEP)
        await asyncio.sleep(self.random.uniform(0.0, 2.0))  # time: any moment of a checkpoint
        self.start()

    async def writer_killed(self) -> None:
        await self.killed_at(self.random.choice(self.WRITING))

    async def writer_repeated(self) -> None:
        """A writer that needs long, so that another attempt of it counts, and this one is late."""
        await self.taken(self.job.tickets.slow[self.random.choice(self.WRITING)])

    async def zombie(self) -> None:
        """A frozen driver, which goes on when another one has taken its region."""
        old = self.program or self.start()
        self.job.ask_for(2 * STEP)
        await asyncio.sleep(self.random.uniform(0.0, 1.0))  # time: any moment of a checkpoint
        old.send(signal.SIGSTOP)
        self.program = None
        self.start()
        await self.job.await_rows(self.job.target, self.program)
        old.send(signal.SIGCONT)

        def ended() -> bool:
            # If it was frozen before it registered, it has replaced the other one, which begins again.
            self.feed_on()
            if self.program is None or self.program.is_over:
                self.start()
            return old.is_over

        await until(ended, log=self.job.log_file, what="the end of the replaced driver")
        old.kill()

    async def replay(self) -> None:
        """Checkpoints that are completed while no coordinator runs, and a driver that begins again."""
        if self.program is None or self.program.is_over:
            self.start()
        self.life.send(signal.SIGSTOP)
        self.job.ask_for(2 * STEP)
        await asyncio.sleep(self.random.uniform(0.5, 2.0))  # time: before, within or after the completion
        if self.program is not None:
            self.program.kill()
        self.life.send(signal.SIGCONT)
        self.start()

    async def coordinator_killed(self) -> None:
        self.job.ask_for(STEP)
        self.life.kill()
        self.life = self.job.where.start()

    async def cluster_killed(self, cluster: EmbeddedHdfs) -> None:
        """A cluster of HDFS that is killed while writers and coordinator work, and starts again."""
        self.job.ask_for(2 * STEP)
        await asyncio.sleep(self.random.uniform(0.0, 1.5))  # time: any moment of a checkpoint
        cluster.kill()
        await asyncio.to_thread(cluster.start)

        def caught_up() -> bool:
            if self.program is None or self.program.is_over:
                self.start()
            return self.job.committed >= self.job.target

        await until(caught_up, log=self.job.log_file, what="all rows")

    async def end(self) -> None:
        """Let the driver write all that was asked for, and end."""
        self.job.settings.with_name("done").touch()
        status = None
        while status != 0:
            if self.program is None or status is not None:
                self.start()
            assert self.program is not None
            status = await until(self.program.poll, lambda each: each is not None, log=self.job.log_file)
        await asyncio.to_thread(self.job.exact)


DRIVER_FAULTS: Final[Mapping[str, Callable[[Campaign], Awaitable[None]]]] = {
    "driver killed at a place": Campaign.driver_killed_at_a_place,
    "driver killed at random": Campaign.driver_killed_at_random,
    "writer killed": Campaign.writer_killed,
    "writer repeated": Campaign.writer_repeated,
    "zombie driver": Campaign.zombie,
    "replay": Campaign.replay,
    "coordinator killed": Campaign.coordinator_killed,
}


async def drivers_hurt(
    make: Maker, rounds: int, random: Random, cluster: EmbeddedHdfs | None = None
) -> Counter[str]:
    """Let each kind of fault happen so often, in a random order; return how often which. Raises Inexact.

    `cluster`: the one that has the table is killed, too.
    """
    where: Deployment = await make()
    campaign = Campaign(PlainJob(where, Tickets(where), {}), where.start(), random)
    faults = dict(DRIVER_FAULTS)
    if cluster is not None:
        faults["NameNode killed"] = partial(Campaign.cluster_killed, cluster=cluster)
    return await campaign.run(faults, rounds)
