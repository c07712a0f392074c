"""Twelve months, three regions, a real broker, killed coordinators: each month has its mark in time."""

import asyncio
import json
import os
import random
import signal
import sys
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from sluicegate.events.models import CutReverted
from sluicegate.events.notifications import Committed, PartitionDone, SavepointTaken
from sluicegate.listeners.port import Outcome
from tests.faults import tables
from tests.integration.conftest import Place, place_of
from tests.integration.job import PARTITIONS, Job
from tests.integration.waiting import finished, until
from tests.listeners.mark_done.conftest import Monthly, by_month
from tests.listeners.mark_done.driving import Crash, Host, stream_of
from tests.listeners.mark_done.policies import DAY, at

pytestmark = pytest.mark.kafka

REGIONS: Final = ("EWR", "JFK", "LGA")
MONTHS: Final = tuple(f"2013-{month:02}" for month in range(1, 13))
COMMAND: Final = (sys.executable, "-c", "from sluicegate.cli import main; main()", "run")
KILLS: Final = 4


def end_of(month: str) -> int:
    """Return the end of a month, in milliseconds."""
    year, number = int(month[:4]), int(month[5:])
    return at(f"{year + number // 12}-{number % 12 + 1:02}-01")


@dataclass
class Coordinator:
    """A process of the service, which is killed and started again."""

    place: Place
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        config = self.place.root / "sluicegate.toml"
        options = "".join(
            f"{name} = {json.dumps(value)}\n" for name, value in self.place.lake_options.items()
        )
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{self.place.bootstrap}"\ntopic_prefix = "{self.place.prefix}"\n'
            f'group_id = "{self.place.prefix}"\npartitions = {PARTITIONS}\nsession_timeout = 6\n'
            f'[http]\nport = 0\n[streams.flights]\ntable = "{self.place.table}"\n'
            f'format = "{self.place.lake}"\npartial = "allow"\nalignment_timeout = "300ms"\n'
            f"max_consecutive_fallbacks = 1000\n[streams.flights.options]\n{options}"
        )
        self.process = await asyncio.create_subprocess_exec(
            *COMMAND, env={**os.environ, "SLUICEGATE_CONFIG": str(config)}, stderr=asyncio.subprocess.DEVNULL
        )

    async def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            await finished(self.process.wait(), "the coordinator")


@dataclass
class Airport:
    """One region: it writes months in order, and knows the watermark of each of its checkpoints."""

    job: Job
    left: deque[tuple[str, int]]
    """Month and watermark of each checkpoint to come."""
    watermarks: list[int] = field(default_factory=list)
    ids: int = 0

    async def send(self) -> None:
        """Write the next checkpoint."""
        month, watermark = self.left.popleft()
        self.ids += 1
        event = await self.job.written(self.job.write_files([self.ids], origin=month))
        await self.job.complete(event, watermark=watermark)
        self.watermarks.append(watermark)


def schedule() -> deque[tuple[str, int]]:
    """Return two checkpoints for each month, and one after the year."""
    found = [(month, end_of(month) - days * DAY) for month in MONTHS for days in (14, 1)]
    return deque([*found, ("2014-01", end_of("2013-12") + DAY)])


async def feed(job: Job, seen: set[str]) -> list[Outcome]:
    """Return the outcomes of the feed that were not seen."""
    found: list[Outcome] = []
    for each in await job.notifications():
        body = each.body
        if (
            isinstance(body, Committed | CutReverted | SavepointTaken)
            and each.id not in seen
            and each.id not in {one.id for one in found}
        ):
            found.append(Outcome(each.id, each.type, each.stream, 0, body))
    return found


async def follow(host: Host, outcomes: list[Outcome]) -> None:
    """Give the listener outcomes, through its crashes."""
    for outcome in outcomes:
        while True:
            try:
                await host.see(outcome)
            except Crash:
                host.restart()
            else:
                break


def judge(host: Host, airports: dict[str, Airport], outcomes: list[Outcome]) -> None:
    """Compare the marks with the rows that each region had really committed at each cut."""
    expected: list[tuple[str, int]] = []
    newest: dict[str, int] = {}
    for outcome in outcomes:
        body = outcome.body
        assert isinstance(body, Committed)
        assert body.summary is not None
        assert body.summary.touched is not None
        newest |= {str(each["origin"]): body.decision for each in body.summary.touched}
        if {*body.cut} < {*REGIONS}:
            continue
        real = min(airports[name].watermarks[body.cut[name].checkpoint] for name in REGIONS)
        done = [month for month in MONTHS if real > end_of(month)]
        expected += [(month, newest[month]) for month in done if month not in {name for name, _ in expected}]
    marks: dict[str, tuple[str, int]] = {}
    for each in host.published:
        assert isinstance(each.body, PartitionDone)
        mark = each.body.values["origin"] or "", each.body.decision
        assert marks.setdefault(each.id, mark) == mark
        assert not each.body.late
    assert list(marks.values()) == expected
    assert [month for month, _ in expected] == list(MONTHS)


@pytest.mark.parametrize("lake", list(tables.FORMATS))
async def test_each_month_is_marked_when_all_regions_have_passed_it(
    lake: str, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    chance = random.Random(lake)
    coordinator = Coordinator(place)
    async with AsyncExitStack() as stack:
        await coordinator.start()
        stack.push_async_callback(coordinator.kill)
        airports: dict[str, Airport] = {}
        for name in REGIONS:
            job = place.job(region=name, regions=REGIONS, incarnation=f"q-{name}")
            airports[name] = Airport(await stack.enter_async_context(job), schedule())
            await airports[name].job.register()
        stream = stream_of(lake, place.table, place.lake_options)
        host = Host(by_month("success-file", "mark-event"), stream, crash=lambda: chance.random() < 0.1)
        await stack.enter_async_context(host)
        total = sum(len(each.left) for each in airports.values())
        kills = {*chance.sample(range(5, total - 5), KILLS)}
        seen: list[Outcome] = []
        for number in range(total):
            # A region that is far behind falls back in most cuts.
            ready = [name for name in REGIONS if airports[name].left]
            await airports[chance.choice(ready)].send()
            if number in kills:
                await coordinator.kill()
                await coordinator.start()
        first = airports["EWR"].job

        async def complete() -> bool:
            fresh = await feed(first, {each.id for each in seen})
            await follow(host, fresh)
            seen.extend(fresh)
            bodies = [each.body for each in seen if isinstance(each.body, Committed)]
            last = {name: len(airports[name].watermarks) - 1 for name in REGIONS}
            return bool(bodies) and {name: each.checkpoint for name, each in bodies[-1].cut.items()} == last

        await until(complete, bool)
        judge(host, airports, seen)
    assert Monthly(Path(place.table), stream).success() == list(MONTHS)
