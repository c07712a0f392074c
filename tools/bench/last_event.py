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
from pathlib import Path
from typing import Any

from sluicegate.cli.local.servers import EmbeddedKafka
from tools.bench.common import Region, machine, make_topics, quantiles, report, rows, wait_until_registered
from tools.bench.files import Files
from tools.bench.lakes import Watch, coordinator, make_table
from tools.bench.scale import wait_until_read

ORIGINS = tuple(f"A{n:02d}" for n in range(10))
ROWS = 20


async def measure(
    folder: Path, bootstrap: str, lake: str, files: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Checkpoints of so many files, one after the other."""
    table, took, took_completion = make_table(lake, folder), list[float](), list[float]()
    first = max(1, arguments.warm_up // files)
    topics = await make_topics(bootstrap)
    made = Files(lake, str(table.folder), table.options, rows(ORIGINS, 0, ROWS), "at")
    each = min(arguments.each, files)
    with Watch(table) as watch, coordinator(folder, bootstrap, topics, table, files) as (port, _):
        async with Region(bootstrap, topics) as region:
            await region.register()
            await wait_until_registered(bootstrap, topics, region)
            for number in range(first + arguments.rounds):
                *before, last = made.events(files, number, each)
                sent = [await region.written(number, event) for event in before]
                for _, acknowledged in sent:
                    await acknowledged
                # Beside these, each checkpoint has its last event, completion, decision and outcome.
                await wait_until_read(port, 2 + number * (len(before) + 4) + len(before))
                await asyncio.sleep(arguments.pause if number >= first else 0)
                start = time.time_ns()
                event, acknowledged = await region.written(number, last)
                await acknowledged
                completed = time.time_ns()
                await region.complete(number, [*(each for each, _ in sent), event])
                visible = await asyncio.to_thread(watch.next)
                took.append((visible - start) / 1e6)
                took_completion.append((visible - completed) / 1e6)
    expected = (first + arguments.rounds) * files * ROWS
    if table.rows != expected:
        raise RuntimeError(f"the table has {table.rows} rows instead of {expected}")
    return {
        "format": lake,
        "files": files,
        "events": len(before) + 1,
        "rounds": arguments.rounds,
        "warm_up": first,
        "last_event_to_visible_ms": quantiles(took[first:]),
        "completion_to_visible_ms": quantiles(took_completion[first:]),
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
