"""Delays of streams beside stuck ones: commit delays of many streams, with some stuck and without.

    python -m tools.bench.streams [--streams 200] [--stuck 1] [--rate 20] [--rounds 5] [--turns 6] [--json]

One coordinator with default settings has so many streams, each with a table and a region of its own. In each
phase all but the stuck ones commit checkpoints of ten files, so many a second together. A round has so many
turns of two short phases, so that both meet the same neighbours. In one of them publications to the stuck
streams' tables hang in the file system call behind their manifests, each in a thread of the coordinator;
afterwards they are let go, and have to be committed. A delay is from the append of a completion to the append
of the notification of its commit, both by the broker's clock. Quantiles are of the delays of a round.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from sluicegate.cli.local.process import free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.notifications import Committed
from sluicegate.failpoints.points import LOG_VARIABLE, VARIABLE
from sluicegate.kafka.topics import TopicNames
from tools.bench.bulk import ORIGINS, Bulk
from tools.bench.common import (
    PARTITIONS,
    Region,
    create_table,
    machine,
    make_topics,
    quantiles,
    read_notifications,
    report,
    start_coordinator,
    wait_ready,
    wait_until_registered,
)

PATIENCE: Final = 60.0
WARM_UP: Final = 2
_POLL: Final = 0.02


@dataclass
class Job:
    """One stream: its region, its files, and when its completions were appended."""

    region: Region
    bulk: Bulk
    appended: list[int] = field(default_factory=list)
    """Milliseconds, by checkpoint."""

    async def checkpoint(self) -> None:
        """Append the next checkpoint."""
        number = len(self.appended)
        (body,) = self.bulk.events(1, len(ORIGINS), self.region.label(number))
        event, sent = await self.region.written(number, body)
        await sent
        self.appended.append((await (await self.region.complete(number, [event]))).timestamp)


@dataclass
class Phase:
    """The checkpoints of one phase, by stream, and whether others were stuck meanwhile."""

    round: int
    stuck: bool
    checkpoints: list[tuple[str, int]]


class Sabotage:
    """Makes publications hang, one after the other, and lets them go."""

    def __init__(self, folder: Path) -> None:
        self._ticket, self._gate = folder / "ticket", folder / "gate"
        self.log = folder / "hits"
        # The ticket is taken by the next publication that gets there.
        self.environment = {
            VARIABLE: f"lake.manifests-durable=hang:{self._gate}?{self._ticket}",
            LOG_VARIABLE: "",
        }

    async def stick(self, jobs: Sequence[Job]) -> None:
        """Give each of these streams something to commit, and wait until that hangs."""
        self._gate.unlink(missing_ok=True)
        for job in jobs:
            self._ticket.touch()
            await job.checkpoint()
            await asyncio.to_thread(wait_until_gone, self._ticket)

    def release(self) -> None:
        """Let all continue."""
        self._gate.touch()


def wait_until_gone(path: Path) -> None:
    """Wait until a file is gone. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE
    while path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} is still there")
        time.sleep(_POLL)


async def warm_jobs(
    stack: AsyncExitStack, folder: Path, bootstrap: str, topics: TopicNames, names: Sequence[str], rate: float
) -> list[Job]:
    """Register a job for each stream, and let each commit some checkpoints; their tables are in `folder`."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
    await stack.enter_async_context(producer)
    jobs = []
    for name in names:
        region = Region(bootstrap, topics, stream=name)
        region.producer = producer
        jobs.append(Job(region, Bulk(folder / "db.db" / name)))
        await region.register()
    await wait_until_registered(bootstrap, topics, *(job.region for job in jobs))
    await drive(jobs, rate, WARM_UP * len(jobs) / rate)
    await all_announced(bootstrap, topics, jobs)
    return jobs


async def drive(jobs: Sequence[Job], rate: float, seconds: float) -> list[tuple[str, int]]:
    """Let the streams complete checkpoints in turn; returns which."""
    made: list[tuple[str, int]] = []
    running: set[asyncio.Task[None]] = set()
    start = time.monotonic()
    for turn in range(round(rate * seconds)):
        await asyncio.sleep(start + turn / rate - time.monotonic())
        job = jobs[turn % len(jobs)]
        made.append((job.region.stream, len(job.appended)))
        task = asyncio.create_task(job.checkpoint())
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    return made


async def announced(bootstrap: str, topics: TopicNames) -> dict[tuple[str, int], int]:
    """When the commit of each checkpoint was announced, in milliseconds: the first one that includes it."""
    found: dict[tuple[str, int], int] = {}
    reached: dict[str, int] = {}
    async for time_ms, each in read_notifications(bootstrap, topics):
        if isinstance(each.body, Committed):
            stream = each.stream
            upto = each.body.cut["r1"].checkpoint
            for number in range(reached.get(stream, -1) + 1, upto + 1):
                found[stream, number] = time_ms
            reached[stream] = max(upto, reached.get(stream, -1))
    return found


def delays(jobs: Sequence[Job], told: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Return the milliseconds from each completion to the notification of its commit."""
    appended = {(job.region.stream, n): at for job in jobs for n, at in enumerate(job.appended)}
    return {each: told[each] - at for each, at in appended.items()}


async def all_announced(bootstrap: str, topics: TopicNames, jobs: Sequence[Job]) -> None:
    """Wait until all that these streams completed is committed. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE
    wanted = {(job.region.stream, len(job.appended) - 1) for job in jobs if job.appended}
    while not wanted <= (await announced(bootstrap, topics)).keys():
        if time.monotonic() > deadline:
            raise TimeoutError("not all is committed")
        await asyncio.sleep(0.5)


def settings_of(folder: Path, bootstrap: str, topics: TopicNames, port: int, names: Sequence[str]) -> Path:
    """Write the settings of all streams; returns the file."""
    lines = [
        "[kafka]",
        f'bootstrap_servers = "{bootstrap}"',
        f'topic_prefix = "{topics.prefix}"',
        f'group_id = "{topics.prefix}"',
        f"partitions = {PARTITIONS}",
        f"[http]\nport = {port}",
        *(f'[streams.{name}]\ntable = "{folder}/db.db/{name}"' for name in names),
    ]
    settings = folder / "sluicegate.toml"
    settings.write_text("\n".join(lines))
    return settings


async def phases(
    jobs: list[Job], sabotage: Sabotage, wanted: argparse.Namespace, where: tuple[str, TopicNames]
) -> list[Phase]:
    """Run the phases, two in each round."""
    bad, good = jobs[: wanted.stuck], jobs[wanted.stuck :]
    made: list[Phase] = []
    for turn in range(wanted.rounds * wanted.turns):
        for stuck in (False, True) if turn % 2 == 0 else (True, False):
            if stuck:
                await sabotage.stick(bad)
            done = await drive(good, wanted.rate, wanted.seconds)
            made.append(Phase(turn // wanted.turns, stuck, done))
            if stuck:
                sabotage.release()
            await all_announced(*where, jobs)
    return made


def figures(made: Sequence[Phase], took: dict[tuple[str, int], int], rounds: int) -> dict[str, Any]:
    """Milliseconds with and without stuck streams, round by round, and the medians."""
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for number in range(rounds):
        for stuck, each in found.items():
            phases = [phase for phase in made if phase.round == number and phase.stuck is stuck]
            each.append(quantiles([took[done] for phase in phases for done in phase.checkpoints]))
    told: dict[str, Any] = {"alone": found[False], "beside_stuck": found[True]}
    for share in ("p50", "p99"):
        alone = [each[share] for each in found[False]]
        beside = [each[share] for each in found[True]]
        told[f"{share}_alone_ms"], told[f"{share}_beside_stuck_ms"] = median(alone), median(beside)
        told[f"{share}_ratio_of_medians"] = round(median(beside) / median(alone), 2)
        ratios = [round(one / other, 2) for one, other in zip(beside, alone, strict=True)]
        told[f"{share}_ratios"], told[f"{share}_median_ratio"] = ratios, median(ratios)
    return told


async def measure(folder: Path, bootstrap: str, wanted: argparse.Namespace) -> dict[str, Any]:
    """Start everything, warm up, run the phases."""
    topics, port = await make_topics(bootstrap), free_port()
    names = [f"s{number:03d}" for number in range(wanted.streams)]
    for name in names:
        create_table(folder, name)
    sabotage = Sabotage(folder)
    settings = settings_of(folder, bootstrap, topics, port, names)
    before = machine()
    async with AsyncExitStack() as stack:
        process = start_coordinator(settings, sabotage.environment)
        stack.callback(process.end, 20.0)
        await asyncio.to_thread(wait_ready, process, port, folder / "coordinator.log")
        jobs = await warm_jobs(stack, folder, bootstrap, topics, names, wanted.rate)
        made = await phases(jobs, sabotage, wanted, (bootstrap, topics))
        told = await announced(bootstrap, topics)
    found = figures(made, delays(jobs, told), wanted.rounds)
    commits = wanted.turns * len(made[0].checkpoints)
    named = {"streams": wanted.streams, "stuck": wanted.stuck, "commits_a_round": commits}
    return {**named, **found, "before": before, "after": machine()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--stuck", type=int, default=1)
    parser.add_argument("--rate", type=float, default=20.0, help="commits a second, of all streams together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=6, help="of both phases, in one round")
    parser.add_argument("--seconds", type=float, default=3.0, help="of one phase")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        found = asyncio.run(measure(Path(folder), kafka.bootstrap, wanted))
    report(found, as_json=wanted.json)


if __name__ == "__main__":
    main()
