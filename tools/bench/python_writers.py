"""Many Python processes that append to one table: as regions of one stream, and with the libraries alone.

    python -m tools.bench.python_writers [--formats iceberg,delta] [--processes 16] [--rate 20] [--appends 75]
        [--kills 12] [--seed 1]

Each process offers appends of ten rows at a fixed rate, and is behind if an append takes longer. With ours,
each process is the driver of a region. Processes are killed at random and start again. They continue at the
source offsets that the coordinator returns. The coordinator is a process of its own with default settings.
Publications are attempts to commit to the table; the failpoints of the coordinator count them. The library
alone is pyiceberg (with its catalog in SQLite) or deltalake: the same rate, no kills, and an append that
raises is tried again until it succeeds, or until `--patience` seconds are over for all. A commit that fails
is one try that raised. In the end a reader that shares no code with any writer reads each table of ours.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import read_hits
from sluicegate.writer_hooks import RegionDriver
from tests.faults.lives import Deployment
from tests.faults.tables import kind_of, rows_told, tally
from tests.integration.waiting import until
from tools.bench.common import machine

ROOT: Final = Path(__file__).parents[2]
ROWS: Final = 10
"""Of an append."""
_TIMES: Final = {"iceberg": pa.timestamp("us"), "delta": pa.timestamp("us", tz="UTC")}


def rows_of(lake: str, process: int, append: int, appends: int) -> pa.Table:
    """Return the rows of one append; ids are those of no other one."""
    first = (process * appends + append) * ROWS
    at = pa.array([1_357_000_000_000_000] * ROWS, pa.int64()).cast(pa.timestamp("us"))
    columns = {"id": pa.array(range(first, first + ROWS), pa.int64()), "origin": [f"o{process}"] * ROWS}
    return pa.table({**columns, "at": at.cast(_TIMES[lake])})


def paced(begin: float, number: int, pause: float) -> None:
    """Wait until an append is due."""
    left = begin + number * pause - time.time()
    if left > 0:
        time.sleep(left)


def ours(given: dict[str, Any]) -> None:
    """Append as the driver of a region, from where the source continues."""
    with RegionDriver(given["options"]) as driver:
        after = driver.committed
        newest = None
        for number in range(after.source_offsets["next"] if after else 0, given["appends"]):
            paced(given["begin"], number, given["pause"])
            newest = driver.begin()
            rows = rows_of(given["format"], given["process"], number, given["appends"])
            driver.complete(newest, [newest.write("w0", rows)], source_offsets={"next": number + 1})
        if newest is not None:
            driver.await_commit(newest)


def alone(given: dict[str, Any]) -> Counter[str]:
    """Append with the library alone; return how often it succeeded and failed."""
    append = _iceberg(given) if given["format"] == "iceberg" else _delta(given)
    done: Counter[str] = Counter()
    for number in range(given["appends"]):
        paced(given["begin"], number, given["pause"])
        rows = rows_of(given["format"], given["process"], number, given["appends"])
        while time.time() < given["end"]:
            try:
                append(rows)
            except Exception as error:
                done[f"failed: {type(error).__name__}"] += 1
            else:
                done["appends"] += 1
                break
    return done


def _delta(given: dict[str, Any]) -> Any:
    from deltalake import write_deltalake

    return lambda rows: write_deltalake(given["table"], rows, mode="append")


def _iceberg(given: dict[str, Any]) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    def append(rows: pa.Table) -> None:
        # A retry needs the newest metadata.
        with closing(SqlCatalog("default", uri=given["uri"], warehouse="file:///none")) as catalog:
            catalog.load_table(given["identifier"]).append(rows)

    return append


class Processes:
    """The processes of one run."""

    def __init__(self, given: dict[str, Any], each: list[dict[str, Any]], folder: Path) -> None:
        self._works = [{**given, **own, "process": number} for number, own in enumerate(each)]
        self._folder = folder
        self.running = [self._start(number) for number in range(len(each))]

    def _start(self, number: int) -> "subprocess.Popen[str]":
        work = self._folder / f"work-{number}.json"
        work.write_text(json.dumps(self._works[number]))
        log = (self._folder / f"process-{number}.log").open("a")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "tools.bench.python_writers", "--work", str(work)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def kill(self, number: int) -> bool:
        """Kill one and start it again; False if it has ended."""
        if self.running[number].poll() is not None:
            return False
        self.running[number].kill()
        self.running[number].communicate()
        self.running[number] = self._start(number)
        return True

    async def ended(self) -> Counter[str]:
        """Wait for all; return what they counted. Raises RuntimeError if one failed."""
        printed = await asyncio.gather(*(asyncio.to_thread(each.communicate) for each in self.running))
        for number, each in enumerate(self.running):
            if each.returncode:
                log = (self._folder / f"process-{number}.log").read_text()
                raise RuntimeError(f"process {number} ended with {each.returncode}: {log[-2000:]}")
        lines = [out.splitlines()[-1] for out, _ in printed if out.strip()]
        return sum((Counter(json.loads(line)) for line in lines), Counter[str]())

    def end(self) -> None:
        """Kill what still runs."""
        for each in self.running:
            each.kill()


def pace(options: argparse.Namespace) -> dict[str, Any]:
    """Return what all processes of a run have in common."""
    # Every process has started by then.
    begin = time.time() + options.processes
    pause = options.processes / options.rate
    return {"appends": options.appends, "pause": pause, "begin": begin, "end": begin + options.patience}


async def run_ours(where: Deployment, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the processes with kills. Raises RuntimeError unless the table is exact."""
    await where.prepare()
    life = where.start()
    regions = [f"w{number:02d}" for number in range(options.processes)]
    common = {
        "stream": "flights",
        "regions": ",".join(regions),
        "assignment": "0",
        "table": where.location("flights"),
        "format": where.lake,
        **{f"table.{name}": value for name, value in where.options("flights").items()},
        "kafka.bootstrap.servers": where.bootstrap,
        "topic.prefix": where.prefix,
    }
    given = {"way": "ours", "format": where.lake, **pace(options)}
    each = [{"options": {**common, "region": region}} for region in regions]
    processes, random, kills = Processes(given, each, folder), Random(options.seed), 0
    seconds = options.appends * given["pause"]
    try:
        for number in range(options.kills):
            due = given["begin"] + (number + random.random()) * seconds / options.kills
            await asyncio.sleep(max(0.0, due - time.time()))  # time: kills are spread over the run
            kills += processes.kill(random.randrange(options.processes))
        await processes.ended()
        took = time.time() - given["begin"]
        expected = options.processes * options.appends * ROWS
        await until(lambda: rows_told(where.tables["flights"]) >= expected, log=life.log_file)
        life.check()
    finally:
        processes.end()
        life.end()
    found = tally(where.tables["flights"], range(expected), where.user("flights"))
    if not found.exact:
        raise RuntimeError(f"the table is not exact: {found}")
    hits = read_hits(str(where.hits))
    return {
        "appends": options.processes * options.appends,
        "kills": kills,
        "seconds": round(took, 1),
        "commits": hits[Failpoint.APPEND_COMMITTED_AFTER],
        "publications": hits[Failpoint.PUBLISH_BEFORE],
        "ratio": round(hits[Failpoint.PUBLISH_BEFORE] / hits[Failpoint.APPEND_COMMITTED_AFTER], 2),
        "missing": 0,
        "doubled": 0,
    }


async def run_alone(where: Deployment, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the processes with the library alone."""
    table = where.tables["flights"]
    given = {"way": "alone", "format": where.lake, **pace(options), "table": str(table)}
    processes = Processes(given | dict(kind_of(table).options(table)), [{}] * options.processes, folder)
    try:
        done = await processes.ended()
    finally:
        processes.end()
    return {
        "appends": done["appends"],
        "failed": sum(count for name, count in done.items() if name != "appends"),
        "errors": dict(done),
        "seconds": round(time.time() - given["begin"], 1),
        "rows": rows_told(table),
    }


async def measure(options: argparse.Namespace) -> None:
    """Print a line for each format and way."""
    with EmbeddedKafka() as kafka:
        for lake in options.formats.split(","):
            for way, run in (("ours", run_ours), ("library alone", run_alone)):
                with tempfile.TemporaryDirectory() as name:
                    where = Deployment(kafka.bootstrap, Path(name), lake=lake)
                    before = machine()
                    found = await run(where, options, Path(name))
                told = {"format": lake, "way": way, "processes": options.processes, "rate": options.rate}
                told["offered"] = options.processes * options.appends
                print(json.dumps({**told, **found, "before": before, "after": machine()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", default="iceberg,delta")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--rate", type=float, default=20.0, help="appends a second of all processes together")
    parser.add_argument("--appends", type=int, default=75, help="of each process")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--patience", type=float, default=180.0, help="seconds for a library alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is None:
        asyncio.run(measure(options))
        return
    given = json.loads(options.work.read_text())
    if given["way"] == "ours":
        ours(given)
    else:
        print(json.dumps(alone(given)), flush=True)


if __name__ == "__main__":
    main()
