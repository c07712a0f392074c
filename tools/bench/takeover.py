"""Pause of the streams of a killed coordinator: several coordinators with many streams, killed in turn.

    python -m tools.bench.takeover [--streams 300] [--members 3] [--rate 20] [--minutes 10]
        [--every 20] [--json]

Coordinators of one group on one host share so many streams, each with a table and a region of its own. All
streams together complete so many checkpoints of ten files a second. Every `--every` seconds one coordinator
is killed (SIGKILL), each in its turn, and is started again at once. A delay is from the append of a
completion to the append of the notification of its commit, both by the broker's clock. The longest delay is
the longest pause of a stream. In the end each table must have exactly the rows of its checkpoints.
"""

import argparse
import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pypaimon import CatalogFactory

from sluicegate.cli.local.process import ChildProcess, free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.kafka.topics import TopicNames
from tools.bench.bulk import ORIGINS, ROWS
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

LIMIT: Final = 5_000.0
"""Milliseconds that a stream may pause."""


@dataclass
class Member:
    """One coordinator of the group, with its own settings file, log and port."""

    settings: Path
    port: int
    process: ChildProcess

    @classmethod
    def start(
        cls, folder: Path, number: int, bootstrap: str, topics: TopicNames, names: list[str]
    ) -> "Member":
        """Start the coordinator of this number; the tables are in `folder`."""
        port = free_port()
        common = settings_of(folder, bootstrap, topics, port, names)
        own = folder / f"member{number}"
        own.mkdir(exist_ok=True)
        settings = common.rename(own / "sluicegate.toml")
        return cls(settings, port, start_coordinator(settings))

    def wait_ready(self) -> None:
        """Wait until it serves its partitions."""
        wait_ready(self.process, self.port, self.settings.parent / "coordinator.log")

    def kill(self) -> None:
        """Kill the process, and start it again."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.end(20.0)
        self.process = start_coordinator(self.settings)

    def end(self) -> None:
        """Stop the process."""
        self.process.end(20.0)


async def kill_in_turn(members: Sequence[Member], every: float, until: float) -> int:
    """Kill one coordinator after the other until a moment of the monotonic clock; return how many."""
    kills = 0
    while (due := time.monotonic() + every) < until:
        await asyncio.sleep(due - time.monotonic())
        await asyncio.to_thread(members[kills % len(members)].kill)
        kills += 1
    return kills


def inexact(folder: Path, jobs: Sequence[Job]) -> list[str]:
    """Return the tables that have other rows than those of their checkpoints."""
    catalog = CatalogFactory.create({"warehouse": str(folder)})
    wrong = []
    for job in jobs:
        read = catalog.get_table(f"db.{job.region.stream}").new_read_builder()
        files = [file for split in read.new_scan().plan().splits() for file in split.files]
        named = {file.file_name for file in files}
        rows = sum(file.row_count for file in files)
        if rows != len(job.appended) * len(ORIGINS) * ROWS or len(named) != len(files):
            wrong.append(job.region.stream)
    return wrong


async def measure(folder: Path, bootstrap: str, wanted: argparse.Namespace) -> dict[str, Any]:
    """Start everything, warm up, drive the streams while coordinators are killed."""
    topics = await make_topics(bootstrap)
    names = [f"s{number:03d}" for number in range(wanted.streams)]
    for name in names:
        create_table(folder, name)
    before = machine()
    async with AsyncExitStack() as stack:
        members = []
        for number in range(wanted.members):
            members.append(Member.start(folder, number, bootstrap, topics, names))
            stack.callback(members[-1].end)
        for member in members:
            await asyncio.to_thread(member.wait_ready)
        jobs = await warm_jobs(stack, folder, bootstrap, topics, names, wanted.rate)
        warm = {job.region.stream: len(job.appended) for job in jobs}
        seconds = wanted.minutes * 60
        killing = asyncio.create_task(kill_in_turn(members, wanted.every, time.monotonic() + seconds))
        await drive(jobs, wanted.rate, seconds)
        kills = await killing
        await all_announced(bootstrap, topics, jobs)
        told = await announced(bootstrap, topics)
    took = [each for (stream, number), each in delays(jobs, told).items() if number >= warm[stream]]
    return {
        "streams": wanted.streams,
        "members": wanted.members,
        "kills": kills,
        "commits": len(took),
        **{f"delay_{name}_ms": value for name, value in quantiles(took).items()},
        "over_limit": sum(delay > LIMIT for delay in took),
        "inexact_tables": await asyncio.to_thread(inexact, folder, jobs),
        "before": before,
        "after": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--rate", type=float, default=20.0, help="commits a second, of all streams together")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two kills")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        found = asyncio.run(measure(Path(folder), kafka.bootstrap, wanted))
    report(found, as_json=wanted.json)


if __name__ == "__main__":
    main()
