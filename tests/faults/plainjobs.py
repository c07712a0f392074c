"""Batch jobs without Spark whose processes are killed and frozen while the coordinator commits."""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Final

import psutil

from tests.faults.lives import Deployment, Life
from tests.faults.pythons import COMPLETING, STARTING, STEP, PlainJob, Program
from tests.faults.scenes import Maker
from tests.faults.sparks import Tickets
from tests.faults.tables import Inexact
from tests.integration.waiting import until


class Jobs:
    """Jobs of one region, one after the other; what happens to each."""

    def __init__(self, job: PlainJob, life: Life, random: Random) -> None:
        self.job = job
        self.life = life
        self.random = random
        self.number = 0

    def run(self) -> Program:
        """Start the next job, or the same one again."""
        return Program(self.job, str(self.number))

    async def finish(self) -> None:
        """Run the job until it is committed, and check that it counts once."""
        status = None
        while status != 0:
            program = self.run()
            status = await until(program.poll, lambda each: each is not None, log=self.job.log_file)
            program.kill()
        self.job.ask_for(STEP)
        await self.job.await_rows(self.job.target)
        self.number += 1

    async def killed_at_a_place(self) -> None:
        ticket = self.job.tickets.kill[self.random.choice((*STARTING, *COMPLETING))]
        ticket.touch()
        program = self.run()
        await until(lambda: program.is_over, log=self.job.log_file, what=ticket.name)
        program.kill()
        ticket.unlink(missing_ok=True)
        await self.finish()

    async def killed_at_random(self) -> None:
        program = self.run()
        await asyncio.sleep(self.random.uniform(0.5, 4.0))  # time: any moment of a job
        program.kill()
        await self.finish()

    async def writer_killed(self) -> None:
        program = self.run()
        await asyncio.sleep(self.random.uniform(0.5, 3.0))  # time: any moment of the writing
        kill_one_writer(program, self.random)
        await until(lambda: program.is_over, log=self.job.log_file, what="the end of the job")
        program.kill()
        await self.finish()

    async def repeated(self) -> None:
        """The same job, after its commit."""
        await self.finish()
        self.number -= 1
        program = self.run()
        status = await until(program.poll, lambda each: each is not None, log=self.job.log_file)
        program.kill()
        if status:
            raise Inexact(f"a repeated job ended with {status}\n{self.job.tail()}")
        self.number += 1

    async def zombie(self) -> None:
        """A frozen job, which goes on when the same job was run again."""
        old = self.run()
        await asyncio.sleep(self.random.uniform(0.5, 4.0))  # time: any moment of a job
        old.send(signal.SIGSTOP)
        await self.finish()
        old.send(signal.SIGCONT)
        await until(lambda: old.is_over, log=self.job.log_file, what="the end of the frozen job")
        old.kill()

    async def coordinator_killed(self) -> None:
        program = self.run()
        await asyncio.sleep(self.random.uniform(0.5, 3.0))  # time: any moment of a job
        self.life.kill()
        self.life = self.job.where.start()
        await until(lambda: program.is_over, log=self.job.log_file, what="the end of the job")
        program.kill()
        await self.finish()


def kill_one_writer(program: Program, random: Random) -> None:
    """Kill one of the writers of a program, if there is any."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(program.pid).children()
        writers = [each for each in children if "spawn_main" in " ".join(each.cmdline())]
        if writers:
            random.choice(writers).kill()


JOB_FAULTS: Final[Mapping[str, Callable[[Jobs], Awaitable[None]]]] = {
    "job killed at a place": Jobs.killed_at_a_place,
    "job killed at random": Jobs.killed_at_random,
    "writer killed": Jobs.writer_killed,
    "job repeated": Jobs.repeated,
    "zombie job": Jobs.zombie,
    "coordinator killed": Jobs.coordinator_killed,
}


async def jobs_hurt(make: Maker, rounds: int, random: Random) -> Counter[str]:
    """Let each kind of fault happen to so many jobs; return how often which. Raises Inexact."""
    where: Deployment = await make()
    jobs = Jobs(PlainJob(where, Tickets(where), {}), where.start(), random)
    kinds = [*JOB_FAULTS] * rounds
    random.shuffle(kinds)
    done: Counter[str] = Counter()
    try:
        for kind in kinds:
            await JOB_FAULTS[kind](jobs)
            done[kind] += 1
        await asyncio.to_thread(jobs.job.exact)
    finally:
        jobs.life.end()
    return done
