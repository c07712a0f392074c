"""Time from the last event of a checkpoint to its visible snapshot, by the number of the checkpoint's files.

    python -m bench.last_event [--files 10 1000 10000] [--each 100] [--rounds 15] [--pause 1.0] [--json]

Every size has a table, topics and a coordinator (a process of its own) for itself. The files are hard links
of ten real ones, with entries of their own (bench/bulk.py). All events but the last are appended, and read by
the coordinator. After a pause, as between two checkpoints, the last event and the completion follow. Time
counts from before the last event is sent to the moment at which the snapshot's file has its name.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench.bulk import Bulk
from bench.common import Region, create_table, machine, make_topics, report, wait_until_registered
from bench.scale import coordinator, wait_until_read
from sluicegate.embedded import EmbeddedKafka

PATIENCE: Final = 120.0


async def wait_for(table: Path, number: int) -> float:
    """When a snapshot of the table got its name, in seconds since the Unix epoch."""
    snapshot = table / "snapshot" / f"snapshot-{number}"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if snapshot.exists():
            return snapshot.stat().st_ctime
        await asyncio.sleep(0.005)
    raise TimeoutError(f"no {snapshot.name}")


async def measure(folder: Path, bootstrap: str, files: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Checkpoints of so many files, one after the other."""
    create_table(folder, "t")
    table, took = folder / "db.db" / "t", list[float]()
    topics = await make_topics(bootstrap)
    bulk = Bulk(table)
    each = min(arguments.each, files)
    with coordinator(folder, bootstrap, topics, files) as (port, _):
        async with Region(bootstrap, topics) as region:
            await region.register()
            await wait_until_registered(bootstrap, topics, region)
            for number in range(arguments.rounds + 1):
                last = list(bulk.events(1, each, region.digest(number)))
                ids = await bulk.append(region, files // each - 1, each, number)
                # Beside these, each checkpoint has its last event, completion, decision and outcome.
                await wait_until_read(port, 2 + number * (files // each + 3) + len(ids))
                await asyncio.sleep(arguments.pause)
                start = time.time()
                event, sent = await region.written(number, last[0])
                await sent
                await region.complete(number, [*ids, event])
                took.append(await wait_for(table, number + 1) - start)
    ordered = sorted(each * 1000 for each in took[1:])
    return {
        "files": files,
        "events": files // each,
        "rounds": len(ordered),
        "last_event_to_visible_ms": {
            "p50": round(ordered[len(ordered) // 2], 1),
            "min": round(ordered[0], 1),
            "max": round(ordered[-1], 1),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, nargs="+", default=[10, 1_000, 10_000])
    parser.add_argument("--each", type=int, default=100, help="files in an event")
    parser.add_argument("--rounds", type=int, default=15, help="checkpoints that count; one more comes first")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds before each last event")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for files in arguments.files:
        with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
            made = asyncio.run(measure(Path(folder), kafka.bootstrap, files, arguments))
        report({**made, **machine()}, as_json=arguments.json)


if __name__ == "__main__":
    main()
