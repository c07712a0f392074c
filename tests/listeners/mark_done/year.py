"""A year of three regions with monthly partitions, through killed coordinators, and its marks."""

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter, deque
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sluicegate.events.models import CutReverted
from sluicegate.events.notifications import Committed, PartitionDone, SavepointTaken
from sluicegate.listeners.port import Outcome
from tests.integration.conftest import Place
from tests.integration.job import PARTITIONS, Job
from tests.integration.waiting import finished, until
from tests.listeners.mark_done.conftest import Monthly
from tests.listeners.mark_done.driving import stream_of
from tests.listeners.mark_done.policies import DAY, at

REGIONS: Final = ("EWR", "JFK", "LGA")
MONTHS: Final = tuple(f"2013-{month:02}" for month in range(1, 13))
MARKS: Final = """\
[streams.flights.listeners.months]
type = "mark-done"
start = "earliest"
actions = ["success-file", "mark-event"]
timestamp_pattern = "$origin-01"
interval = "1 month"
"""
COMMAND: Final = (sys.executable, "-c", "from sluicegate.cli.main import main; main()", "run")


def end_of(month: str) -> int:
    """Return the end of a month, in milliseconds."""
    year, number = int(month[:4]), int(month[5:])
    return at(f"{year + number // 12}-{number % 12 + 1:02}-01")


@dataclass
class Coordinator:
    """A process of the service, which is killed and started again."""

    place: Place
    listener: str = MARKS
    """Section of the listener in the settings."""
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
            f"max_consecutive_fallbacks = 1000\n[streams.flights.options]\n{options}{self.listener}"
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


def judge(published: list[PartitionDone], airports: dict[str, Airport], outcomes: list[Outcome]) -> None:
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
    assert not any(each.late for each in published)
    assert [(each.values["origin"], each.decision) for each in published] == expected
    assert [month for month, _ in expected] == list(MONTHS)


async def marks(job: Job) -> list[PartitionDone]:
    """Return the marks on the commits topic, each once: a crash repeats them with their ids."""
    found = {each.id: each.body for each in await job.notifications() if isinstance(each.body, PartitionDone)}
    return list(found.values())


async def registered(stack: AsyncExitStack, place: Place) -> dict[str, Airport]:
    """Return the airports; a coordinator has accepted their registrations."""
    airports: dict[str, Airport] = {}
    for name in REGIONS:
        job = place.job(region=name, regions=REGIONS, incarnation=f"q-{name}")
        airports[name] = Airport(await stack.enter_async_context(job), schedule())
        await airports[name].job.register()
    return airports


async def live_through(place: Place, kills: int, chance: random.Random) -> Counter[str]:
    """Write the year while coordinators are killed; return counts. Each month must be marked in time."""
    coordinator = Coordinator(place)
    async with AsyncExitStack() as stack:
        await coordinator.start()
        stack.push_async_callback(coordinator.kill)
        airports = await registered(stack, place)
        total = sum(len(each.left) for each in airports.values())
        moments, partials = ({*chance.sample(range(5, total - 5), count)} for count in (kills, 12))
        first, seen = airports["EWR"].job, list[Outcome]()

        async def complete() -> bool:
            seen.extend(await feed(first, {each.id for each in seen}))
            bodies = [each.body for each in seen if isinstance(each.body, Committed)]
            last = {name: len(each.watermarks) - 1 for name, each in airports.items() if each.watermarks}
            return bool(bodies) and {name: each.checkpoint for name, each in bodies[-1].cut.items()} == last

        for number in range(total):
            if number in partials:
                # One region writes while the others have nothing open: they fall back.
                await until(complete, bool)
            ready = [name for name in REGIONS if airports[name].left]
            # The first cut waits for each region.
            await airports[REGIONS[number] if number < len(REGIONS) else chance.choice(ready)].send()
            if number in partials:
                await until(complete, bool)
            if number in moments:
                await coordinator.kill()
                await coordinator.start()
        await until(complete, bool)
        published = await until(lambda: marks(first), lambda found: len(found) >= len(MONTHS))
        judge(published, airports, seen)
    stream = stream_of(place.lake, place.table, place.lake_options)
    assert Monthly(Path(place.table), stream).success() == list(MONTHS)
    partial = sum(bool(each.body.fallbacks) for each in seen if isinstance(each.body, Committed))
    return Counter(kills=kills, commits=len(seen), partial=partial, marks=len(published))
