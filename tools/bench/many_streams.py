"""Delays and cost of many streams in one coordinator, beside few streams with the same load.

    python -m tools.bench.many_streams [--few 10] [--many 1000] [--rate 20] [--seconds 20] [--rounds 5]
        [--json]

Two coordinators with default settings share a broker. One has few streams, the other has many. Each stream
has a table and a region of its own. Phases take turns: in each, the streams of one coordinator complete
checkpoints of ten files, so many a second together. A delay is from the append of a completion to the append
of the notification of its commit, both by the broker's clock. Quantiles are of the delays of a round.

At the end both coordinators are idle. Then their memory and their processor time are measured, and their
page, their API and their metrics are asked for, one after the other.
"""

import argparse
import asyncio
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from sluicegate.cli.local.process import ChildProcess, free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.kafka.topics import TopicNames
from tools.bench.common import (
    create_table,
    machine,
    make_topics,
    quantiles,
    report,
    start_coordinator,
    wait_ready,
)
from tools.bench.streams import Job, all_announced, announced, delays, drive, settings_of, warm_jobs

PAGES: Final = {"page": "/", "streams": "/api/v1/streams", "metrics": "/metrics"}
REQUESTS: Final = 30
IDLE: Final = 20.0
"""Seconds in which the processor time of an idle coordinator is measured."""


@dataclass
class Deployment:
    """One coordinator, with the jobs of its streams."""

    folder: Path
    topics: TopicNames
    port: int
    process: ChildProcess
    jobs: list[Job]

    @classmethod
    async def start(
        cls, stack: AsyncExitStack, folder: Path, bootstrap: str, streams: int, rate: float
    ) -> "Deployment":
        """Make the tables, start the coordinator, and let each stream commit."""
        topics, port = await make_topics(bootstrap), free_port()
        names = [f"s{number:04d}" for number in range(streams)]
        for name in names:
            create_table(folder, name)  # The first one makes the folder.
        process = start_coordinator(settings_of(folder, bootstrap, topics, port, names))
        stack.callback(process.end, 20.0)
        await asyncio.to_thread(wait_ready, process, port, folder / "coordinator.log")
        jobs = await warm_jobs(stack, folder, bootstrap, topics, names, rate)
        return cls(folder, topics, port, process, jobs)

    async def idle(self) -> dict[str, Any]:
        """Return memory, processor time, and how long answers take, of the coordinator without work."""
        process = psutil.Process(self.process.pid)
        before, begun = process.cpu_times(), time.monotonic()
        await asyncio.sleep(IDLE)
        after, took = process.cpu_times(), time.monotonic() - begun
        used = after.user + after.system - before.user - before.system
        asked = {name: await asyncio.to_thread(self._ask, path) for name, path in PAGES.items()}
        return {
            "streams": len(self.jobs),
            "rss_mib": round(process.memory_info().rss / 2**20),
            "idle_cores": round(used / took, 3),
            "answers_ms": {name: quantiles(each) for name, each in asked.items()},
        }

    def _ask(self, path: str) -> list[float]:
        took = []
        for _ in range(REQUESTS):
            begun = time.perf_counter()
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
                answer.read()
            took.append((time.perf_counter() - begun) * 1_000)
        return took


async def phases(
    both: Sequence[Deployment], bootstrap: str, wanted: argparse.Namespace
) -> list[list[list[tuple[str, int]]]]:
    """Run the phases; returns the checkpoints of each, by round and deployment."""
    made: list[list[list[tuple[str, int]]]] = []
    for turn in range(wanted.rounds):
        made.append([[], []])
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            each = both[which]
            made[-1][which] = await drive(each.jobs, wanted.rate, wanted.seconds)
            await all_announced(bootstrap, each.topics, each.jobs)
    return made


async def measure(folder: Path, bootstrap: str, wanted: argparse.Namespace) -> dict[str, Any]:
    """Start both, run the phases, and ask both coordinators."""
    before = machine()
    async with AsyncExitStack() as stack:
        both = [
            await Deployment.start(stack, folder / f"d{streams}", bootstrap, streams, wanted.rate)
            for streams in (wanted.few, wanted.many)
        ]
        made = await phases(both, bootstrap, wanted)
        took = [delays(each.jobs, await announced(bootstrap, each.topics)) for each in both]
        told = [await each.idle() for each in both]
    rounds = [
        [quantiles([took[which][done] for done in made[turn][which]]) for turn in range(wanted.rounds)]
        for which in (0, 1)
    ]
    found: dict[str, Any] = {
        "few": {**told[0], "rounds": rounds[0]},
        "many": {**told[1], "rounds": rounds[1]},
    }
    for share in ("p50", "p99"):
        ratios = [round(many[share] / few[share], 2) for few, many in zip(*rounds, strict=True)]
        for name, each in zip(("few", "many"), rounds, strict=True):
            found[f"{share}_{name}_ms"] = median(one[share] for one in each)
        found |= {f"{share}_ratios": ratios, f"{share}_median_ratio": median(ratios)}
    return {**found, "rate": wanted.rate, "before": before, "after": machine()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--few", type=int, default=10)
    parser.add_argument("--many", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=20.0, help="commits a second, of all streams together")
    parser.add_argument("--seconds", type=float, default=20.0, help="of one phase")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        found = asyncio.run(measure(Path(folder), kafka.bootstrap, wanted))
    report(found, as_json=wanted.json)


if __name__ == "__main__":
    main()
