"""Time from the last event of a checkpoint to its visible snapshot, by format and number of files.

    python -m bench.last_event [--formats paimon] [--files 10 1000 10000] [--each 100] [--rounds 50]
        [--pause 0.3] [--json]

Every format and size has a table, topics and a coordinator (a process of its own) for itself, with default
settings. The files are hard links of ten real ones, with entries of their own (bench/files.py). All events
but the last are appended, and read by the coordinator. After a pause, as between two checkpoints, the last
event and the completion follow. Time counts from before the last event is sent to the moment at which another
process sees the commit (inotify): the name of the snapshot or of the version, or the end of the transaction
in the catalog's database.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.common import Region, machine, make_topics, quantiles, report, rows, wait_until_registered
from bench.files import Files
from bench.lakes import Watch, coordinator, make_table
from bench.scale import wait_until_read
from sluicegate.embedded import EmbeddedKafka

ORIGINS = tuple(f"A{n:02d}" for n in range(10))
ROWS = 20


async def measure(
    folder: Path, bootstrap: str, lake: str, files: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Checkpoints of so many files, one after the other."""
    table, took = make_table(lake, folder), list[float]()
    topics = await make_topics(bootstrap)
    made = Files(lake, str(table.folder), table.options, rows(ORIGINS, 0, ROWS), "at")
    each = min(arguments.each, files)
    with Watch(table) as watch, coordinator(folder, bootstrap, topics, table, files) as (port, _):
        async with Region(bootstrap, topics) as region:
            await region.register()
            await wait_until_registered(bootstrap, topics, region)
            for number in range(arguments.rounds + 1):
                *before, last = made.events(files, number, each)
                sent = [await region.written(number, event) for event in before]
                for _, acknowledged in sent:
                    await acknowledged
                # Beside these, each checkpoint has its last event, completion, decision and outcome.
                await wait_until_read(port, 2 + number * (len(before) + 4) + len(before))
                await asyncio.sleep(arguments.pause)
                start = time.time_ns()
                event, acknowledged = await region.written(number, last)
                await acknowledged
                await region.complete(number, [*(each for each, _ in sent), event])
                took.append((await asyncio.to_thread(watch.next) - start) / 1e6)
    expected = (arguments.rounds + 1) * files * ROWS
    if table.rows != expected:
        raise RuntimeError(f"the table has {table.rows} rows instead of {expected}")
    return {
        "format": lake,
        "files": files,
        "events": len(before) + 1,
        "rounds": arguments.rounds,
        "last_event_to_visible_ms": quantiles(took[1:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", default="paimon")
    parser.add_argument("--files", type=int, nargs="+", default=[10, 1_000, 10_000])
    parser.add_argument("--each", type=int, default=100, help="files in an event")
    parser.add_argument("--rounds", type=int, default=50, help="checkpoints that count; one more comes first")
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
