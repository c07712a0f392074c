"""An hour of a stream with random faults: five regions, one of them of Spark, flat memory and open files.

    python -m tools.bench.soak [--minutes 60] [--format paimon] [--seed 1] [--every 20] [--json]

Region r1 is a streaming query of Spark, and four more regions are plain Python. Partial commits are
allowed. Every `--every` seconds something random happens. A second coordinator joins and is killed, or is
frozen and continues. Spark's driver or one of its Python workers is killed. Kafka or Valkey is killed and
started again. A region stays silent. One coordinator lives through all of it, and its memory, open files
and threads are sampled. At the end the table must have each row once, for a reader that shares no code with
any writer.

A process is flat if the last quarter of the samples is like the second one: the first quarter warms up.
"""

import argparse
import asyncio
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

import psutil

from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from tests.faults.feeds import Feed
from tests.faults.lives import Deployment, Life
from tests.faults.rolling import exact
from tests.faults.sparks import HOOKS, ROWS, SparkJob, Tickets
from tests.faults.tables import FORMATS
from tests.integration.waiting import until
from tools.bench.common import machine, report

REGIONS: Final = ("r1", "r2", "r3", "r4", "r5")
POLICY: Final = {"partial": "allow", "alignment_timeout": "2s", "max_consecutive_fallbacks": 50}
SAMPLING: Final = 5.0
"""Seconds between two samples."""
ROWS_OF_A_REGION: Final = 10_000_000
"""Ids of regions must not overlap."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A process at one moment."""

    rss_mib: float
    files: int
    threads: int


class SparkRegion(SparkJob):
    """The job of a table that other regions write to, too."""

    def rows_there(self) -> int:
        """Return how many rows its batches have. Spark notes each one that has ended, and keeps 100 notes."""
        noted = (self.folder / "checkpoint" / "commits").glob("[0-9]*")
        return ROWS * max((1 + int(each.name) for each in noted if each.name.isdecimal()), default=0)


@dataclass
class Soak:
    """The deployment, its regions, and what has happened to it."""

    where: Deployment
    kafka: EmbeddedKafka
    valkey: EmbeddedValkey
    steady: Life
    spark: SparkRegion
    feeds: Sequence[Feed]
    random: Random
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when nobody begins anything new."""
    silent: set[str] = field(default_factory=set)
    samples: list[Sample] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    async def work(self, feed: Feed) -> None:
        """Let one region write batch after batch."""
        while not self.over.is_set():
            if feed.region not in self.silent:
                await feed.batch()
            await asyncio.sleep(self.random.uniform(1.0, 3.0))  # time: the pace of a region

    async def spark_work(self) -> None:
        """Give Spark a batch whenever it keeps up."""
        while not self.over.is_set():
            await asyncio.to_thread(self.spark.feed_on)
            await asyncio.sleep(2.0)  # time: the pace of a region

    async def sample(self) -> None:
        """Look at the coordinator that lives through everything. Raises Died if it does not."""
        process = psutil.Process(self.steady.pid)
        while not self.over.is_set():
            self.steady.check()
            with process.oneshot():
                memory = process.memory_info().rss / 2**20
                self.samples.append(Sample(memory, process.num_fds(), process.num_threads()))
            await asyncio.sleep(SAMPLING)  # time: the interval of samples

    async def hurt(self, every: float, until_then: float) -> None:
        """Let one fault after the other happen until a moment of the monotonic clock."""
        while time.monotonic() + every < until_then:
            await asyncio.sleep(self.random.uniform(0.5, 1.5) * every)  # time: any moment
            name = self.random.choice([*FAULTS])
            await FAULTS[name](self)
            self.done[name] += 1

    async def second_killed(self) -> None:
        life = self.where.start()
        await until(lambda: life.get("/status"), bool, by=life, log=life.log_file, what="its first answer")
        await asyncio.sleep(self.random.uniform(0.0, 5.0))  # time: any moment of its life
        life.kill()

    async def second_frozen(self) -> None:
        life = self.where.start()
        await until(lambda: life.get("/status"), bool, by=life, log=life.log_file, what="its first answer")
        life.send(signal.SIGSTOP)
        await asyncio.sleep(2 * self.where.session)  # time: longer than its session
        life.send(signal.SIGCONT)
        await asyncio.sleep(self.random.uniform(0.0, 5.0))  # time: any moment of its return
        life.end()

    async def driver_killed(self) -> None:
        await asyncio.to_thread(self.spark.kill_driver)

    async def worker_killed(self) -> None:
        await self.spark.kill_worker(self.random.choice(HOOKS))

    async def kafka_killed(self) -> None:
        self.kafka.kill()
        await asyncio.to_thread(self.kafka.start)

    async def valkey_killed(self) -> None:
        self.valkey.kill()
        await asyncio.sleep(self.random.uniform(0.0, 10.0))  # time: an outage
        await asyncio.to_thread(self.valkey.start)

    async def region_silent(self) -> None:
        region = self.random.choice(self.feeds).region
        self.silent.add(region)
        await asyncio.sleep(self.random.uniform(5.0, 30.0))  # time: longer than the alignment waits
        self.silent.discard(region)


FAULTS: Final[Mapping[str, Callable[[Soak], Awaitable[None]]]] = {
    "second coordinator killed": Soak.second_killed,
    "second coordinator frozen": Soak.second_frozen,
    "Spark driver killed": Soak.driver_killed,
    "Python worker killed": Soak.worker_killed,
    "Kafka killed": Soak.kafka_killed,
    "Valkey killed": Soak.valkey_killed,
    "region silent": Soak.region_silent,
}


def flatness(samples: Sequence[Sample]) -> dict[str, Any]:
    """Compare the medians of the second and the last quarter; give those of twelve parts, too."""
    quarter = len(samples) // 4
    found: dict[str, Any] = {}
    for name in ("rss_mib", "files", "threads"):
        values = [getattr(each, name) for each in samples]
        second, last = median(values[quarter : 2 * quarter]), median(values[-quarter:])
        found[f"{name}_second_quarter"], found[f"{name}_last_quarter"] = round(second, 1), round(last, 1)
        found[f"{name}_most"] = round(max(values), 1)
        step = max(1, len(values) // 12)
        parts = [values[start : start + step] for start in range(0, step * 12, step)]
        found[f"{name}_parts"] = [round(median(part), 1) for part in parts if part]
    return found


async def measure(root: Path, wanted: argparse.Namespace) -> dict[str, Any]:
    """Run the hour; raises Inexact if the table is not exact."""
    before, chance = machine(), Random(wanted.seed)
    async with AsyncExitStack() as stack:
        kafka, valkey = stack.enter_context(EmbeddedKafka()), stack.enter_context(EmbeddedValkey())
        where = Deployment(kafka.bootstrap, root, redis=valkey.url, policy=POLICY, lake=wanted.format)
        await where.prepare()
        steady = where.start()
        stack.callback(steady.end)
        spark = SparkRegion(where, Tickets(where), wanted.seed, regions=REGIONS)
        stack.callback(spark.end)
        feeds = [
            await stack.enter_async_context(
                Feed(where, region=name, regions=REGIONS, first=number * ROWS_OF_A_REGION)
            )
            for number, name in enumerate(REGIONS[1:], 1)
        ]
        soak = Soak(where, kafka, valkey, steady, spark, feeds, chance)
        spark.feed()
        # The first cut waits for each region.
        await asyncio.gather(*(feed.batch() for feed in feeds))
        async with asyncio.TaskGroup() as working:
            for feed in feeds:
                working.create_task(soak.work(feed))
            working.create_task(soak.spark_work())
            working.create_task(soak.sample())
            await soak.hurt(wanted.every, time.monotonic() + wanted.minutes * 60)
            soak.over.set()
        await spark.finish()
        feeds[0].foreign.extend(spark.ids)
        found = await exact(where, feeds, steady)
    return {
        "format": wanted.format,
        "minutes": wanted.minutes,
        "faults": dict(sorted(soak.done.items())),
        "rows": found.rows,
        "commits": found.commits,
        "exact": found.exact,
        **flatness(soak.samples),
        "before": before,
        "after": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--format", default="paimon", choices=[*FORMATS])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two faults")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        report(asyncio.run(measure(Path(root), wanted)), as_json=wanted.json)


if __name__ == "__main__":
    main()
