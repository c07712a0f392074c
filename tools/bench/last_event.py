"""Time from the last event of a checkpoint to its visible snapshot, by format and number of files.

    python -m tools.bench.last_event [--formats paimon] [--files 10 1000 10000] [--each 100] [--rounds 50]
        [--warm-up 2000] [--pause 0.3] [--json]

Every format and size has a table, topics and a coordinator (a process of its own) for itself, with default
settings. The files are hard links of ten real ones, with entries of their own (tools/bench/files.py). All
events but the last are appended, and read by the coordinator. After a pause, as between two checkpoints,
the last event is appended, and the completion once it is acknowledged. Time counts from before the last
event is sent, and from before the completion is sent, to the moment at which another process sees the
commit (inotify): the name of the snapshot or of the version, or the end of the transaction in the catalog's
database. Checkpoints without a pause come first, as a broker that was just started takes several
milliseconds for a request."""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluicegate.cli.local.servers import EmbeddedKafka
from tests.faults.stores import location
from tools.bench.common import Region, machine, make_topics, quantiles, report, rows, wait_until_registered
from tools.bench.files import Files
from tools.bench.lakes import Table, Watch, coordinator, make_table
from tools.bench.scale import wait_until_read

ORIGINS = tuple(f"A{n:02d}" for n in range(10))
ROWS = 20


@dataclass
class Checkpoints:
    """Checkpoints of one region, each of so many files, one after the other."""

    region: Region
    made: Files
    watch: Watch
    port: int
    files: int
    each: int
    """Files in an event."""
    table: Table
    number: int = 0
    """Of the next checkpoint."""

    @property
    def events(self) -> int:
        """Return the number of events with files of a checkpoint."""
        return -(-self.files // self.each)

    async def next(self, pause: float) -> tuple[float, float]:
        """Make the next checkpoint, with a pause before its last event.

        Return the milliseconds from the last event and from the completion to the visible commit.
        """
        *before, last = self.made.events(self.files, self.number, self.each)
        sent = [await self.region.written(self.number, event) for event in before]
        for _, acknowledged in sent:
            await acknowledged
        # Beside these, each checkpoint has its last event, completion, decision and outcome.
        await wait_until_read(self.port, 2 + self.number * (len(before) + 4) + len(before))
        await asyncio.sleep(pause)
        start = time.time_ns()
        event, acknowledged = await self.region.written(self.number, last)
        await acknowledged
        completed = time.time_ns()
        await self.region.complete(self.number, [*(each for each, _ in sent), event])
        visible = await asyncio.to_thread(self.watch.next)
        self.number += 1
        return (visible - start) / 1e6, (visible - completed) / 1e6

    def check(self) -> None:
        """Raise RuntimeError if the table has not each row."""
        expected = self.number * self.files * ROWS
        if self.table.rows != expected:
            raise RuntimeError(f"the table has {self.table.rows} rows instead of {expected}")


@asynccontextmanager
async def checkpoints(
    folder: Path,
    bootstrap: str,
    lake: str,
    files: int,
    each: int,
    origins: Sequence[str] = ORIGINS,
    place: Path | None = None,
) -> AsyncIterator[Checkpoints]:
    """Give checkpoints of a new table, with topics and a coordinator for itself. `place`: for the table."""
    table = make_table(lake, place or folder)
    topics = await make_topics(bootstrap)
    made = Files(lake, location(table.folder), table.options, rows(origins, 0, ROWS), "at")
    with Watch(table) as watch, coordinator(folder, bootstrap, topics, table, files) as (port, _):
        async with Region(bootstrap, topics) as region:
            await region.register()
            await wait_until_registered(bootstrap, topics, region)
            yield Checkpoints(region, made, watch, port, files, min(each, files), table)


async def measure(
    folder: Path, bootstrap: str, lake: str, files: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Measure checkpoints of so many files."""
    first = max(1, arguments.warm_up // files)
    async with checkpoints(folder, bootstrap, lake, files, arguments.each) as made:
        took = [
            await made.next(arguments.pause if number >= first else 0)
            for number in range(first + arguments.rounds)
        ]
        made.check()
    return {
        "format": lake,
        "files": files,
        "events": made.events,
        "rounds": arguments.rounds,
        "warm_up": first,
        "last_event_to_visible_ms": quantiles([event for event, _ in took[first:]]),
        "completion_to_visible_ms": quantiles([completion for _, completion in took[first:]]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", default="paimon")
    parser.add_argument("--files", type=int, nargs="+", default=[10, 1_000, 10_000])
    parser.add_argument("--each", type=int, default=100, help="files in an event")
    parser.add_argument("--rounds", type=int, default=50, help="checkpoints that count")
    parser.add_argument("--warm-up", type=int, default=2_000, help="files in the checkpoints that come first")
    parser.add_argument("--pause", type=float, default=0.3, help="seconds before each last event")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for files in arguments.files:
        for lake in arguments.formats.split(","):
            with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
                found = asyncio.run(measure(Path(folder), kafka.bootstrap, lake, files, arguments))
            report({**found, **machine()}, as_json=arguments.json)


if __name__ == "__main__":
    main()
