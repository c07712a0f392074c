"""The campaign of a Spark job: its Python workers, its executors and its driver are killed in turn."""

import asyncio
from collections import Counter
from random import Random

from tests.faults.executors import SparkCluster
from tests.faults.lives import Deployment
from tests.faults.scenes import Maker
from tests.faults.sparks import BEGINNING, HOOKS, WRITTEN, SparkJob, Tickets, Way, committed, events, settled


async def spark_killed(make: Maker, kills: int, random: Random, way: Way = "source") -> Counter[str]:
    """Kill workers, drivers and coordinators in turn; how often which."""
    where: Deployment = await make()
    done: Counter[str] = Counter()
    life = where.start()
    tickets = Tickets(where)
    for point in BEGINNING if way == "source" else BEGINNING[:1]:
        tickets.kill[point].touch()
    job = SparkJob(where, tickets, random.randrange(1 << 30), way=way)
    try:
        job.feed()
        if way == "foreach":
            # One life of the driver for each place.
            done["spark driver"] += sum([await job.kill_worker(point) for point in BEGINNING])
        await committed(where, job)
        if way == "source":
            done["python worker"] += sum(not tickets.kill[point].exists() for point in BEGINNING)
        turn = tried = 0
        while done.total() < kills:
            turn += 1
            if turn % 5 == 4:
                job.feed()
                await asyncio.sleep(random.uniform(0.0, 3.0))  # time: any moment of the batch
                job.kill_driver()
                done["spark driver"] += 1
            elif turn % 5 == 2:
                life.kill()
                life = where.start()
                done["coordinator"] += 1
            else:
                point, tried = HOOKS[tried % len(HOOKS)], tried + 1
                kind = "python worker" if way == "source" or point in WRITTEN else "spark driver"
                done[kind] += await job.kill_worker(point)
        await settled(where, job)
    finally:
        job.end()
        life.end()
    return done


async def executors_killed(make: Maker, kills: int, random: Random, way: Way = "source") -> Counter[str]:
    """The same on a cluster whose executors are processes, with speculation; how often what.

    In turn: an executor is killed; a task straggles, so that it is speculated, and an executor is killed or
    the query is stopped and begins again meanwhile, so that the task is a zombie; the driver is killed.
    """
    where: Deployment = await make()
    done: Counter[str] = Counter()
    life = where.start()
    tickets = Tickets(where)
    with SparkCluster(where.folder, tickets.variables) as cluster:
        job = SparkJob(where, tickets, random.randrange(1 << 30), cluster, way)
        try:
            job.feed()
            await committed(where, job)
            turn = 0
            while done["executor"] + done["spark driver"] < kills:
                turn += 1
                await _trouble(job, cluster, turn % 5, done, random)
                if turn % 5 == 0:
                    life.kill()
                    life = where.start()
                    done["coordinator"] += 1
            await settled(where, job)
            done["unnamed attempts"] = await _unnamed(where)
        finally:
            job.end()
            life.end()
    return done


async def _unnamed(where: Deployment) -> int:
    """Return the number of attempts of tasks that published files which no completion named."""
    written, named = await events(where)
    return len(written.keys() - named)


async def _trouble(
    job: SparkJob, cluster: SparkCluster, kind: int, done: Counter[str], random: Random
) -> None:
    if kind in (1, 2, 3):
        done["straggler"] += await job.straggle(random.choice(WRITTEN))
    else:
        job.feed()
    await asyncio.sleep(random.uniform(0.0, 2.0))  # time: any moment of the batch
    if kind == 3:
        job.restart()
        done["stopped query"] += 1
    elif kind == 4:
        job.kill_driver()
        done["spark driver"] += 1
    elif kind != 1:
        await asyncio.to_thread(cluster.kill_executor, random.randrange(2))
        done["executor"] += 1
