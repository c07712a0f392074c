"""Commits of a stream with a commit interval, beside those of the same stream without one.

    python -m tools.bench.cadence [--seconds 60] [--rate 5] [--interval 10] [--json]

Kafka and the coordinator are processes of their own. One region completes checkpoints at a fixed rate, first
into a table whose stream has the interval, then into one whose stream has none. The gaps are those between
the append times of the decisions. Both tables are read at the end: each must have every row once.
"""

import argparse
import asyncio
import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pypaimon import CatalogFactory

from sluicegate.cli.local.process import free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.models import CutDecided, FilesWritten
from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes.registry import adapter
from tools.bench.common import (
    Region,
    create_table,
    label_of,
    machine,
    make_topics,
    quantiles,
    read_log,
    report,
    rows,
    start_coordinator,
    wait_ready,
    wait_until_registered,
    write_settings,
)

ROWS: Final = 20
PATIENCE: Final = 60.0


@contextmanager
def coordinator(
    folder: Path, bootstrap: str, topics: TopicNames, table: Path, interval: int
) -> Iterator[None]:
    """Run a coordinator of one stream; `interval` is in seconds, 0 for none."""
    port = free_port()
    settings = write_settings(folder, bootstrap, topics, table, port)
    if interval:
        # The section of the stream is the last one.
        settings.write_text(f'{settings.read_text()}commit_interval = "{interval}s"\n')
    process = start_coordinator(settings)
    try:
        wait_ready(process, port, folder / "coordinator.log")
        yield
    finally:
        process.end(20.0)


def prepare(table: Path, checkpoints: int) -> list[FilesWritten]:
    """Write the data files, one for each checkpoint."""
    lake = adapter("paimon")
    events = []
    for number in range(checkpoints):
        writer = lake.open_writer(lake.parse_table(str(table)), "at", label_of(number))
        writer.write(rows(("JFK",), number * ROWS, ROWS))
        files = tuple(writer.finish())
        place = (lake.format_version, writer.location, writer.schema_id)
        named = dict(zip(("format_version", "location", "schema_id"), place, strict=True))
        events.append(FilesWritten.model_validate({"format": "paimon", **named, "files": files}))
    return events


async def decisions(region: Region) -> list[tuple[int, int]]:
    """Return of each decision its append time in milliseconds, and the checkpoint that it reaches."""
    return [
        (record.time, record.body.cut[region.name].checkpoint)
        async for record in read_log(region.bootstrap, region.topics)
        if isinstance(record.body, CutDecided)
    ]


def read_ids(table: Path) -> list[int]:
    """Return the ids of all rows, by pypaimon's own reader."""
    catalog = CatalogFactory.create({"warehouse": str(table.parents[1])})
    builder = catalog.get_table(f"db.{table.name}").new_read_builder().with_projection(["id"])
    found: list[int] = builder.new_read().to_arrow(builder.new_scan().plan().splits())["id"].to_pylist()
    return sorted(found)


async def wait_for_rows(table: Path, count: int, interval: int) -> list[int]:
    """Wait until the table has so many rows; return their ids."""
    deadline = time.monotonic() + PATIENCE + interval
    while time.monotonic() < deadline:
        if len(found := read_ids(table)) >= count:
            return found
        await asyncio.sleep(0.5)
    raise TimeoutError(f"the table has less than {count} rows {PATIENCE + interval:g} s after the last one")


async def run(bootstrap: str, checkpoints: int, rate: float, interval: int) -> dict[str, Any]:
    """Complete all checkpoints; return the figures of the commits."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_table(folder, "ours")
        table = folder / "db.db" / "ours"
        events = prepare(table, checkpoints)
        topics = await make_topics(bootstrap)
        with coordinator(folder, bootstrap, topics, table, interval):
            async with Region(bootstrap, topics) as region:
                await region.register()
                await wait_until_registered(bootstrap, topics, region)
                start = time.monotonic()
                for number, body in enumerate(events):
                    await asyncio.sleep(start + number / rate - time.monotonic())
                    event, acknowledged = await region.written(number, body)
                    await acknowledged
                    await (await region.complete(number, [event]))
                ids = await wait_for_rows(table, checkpoints * ROWS, interval)
                decided = await decisions(region)
    expected = list(range(checkpoints * ROWS))
    if ids != expected:
        raise RuntimeError(f"the table has {len(ids)} rows instead of {len(expected)}, or others")
    times = [at for at, _ in decided]
    gaps = [(after - before) / 1000 for before, after in pairwise(times)]
    return {
        "interval_s": interval,
        "checkpoints": checkpoints,
        "rate": rate,
        "commits": len(decided),
        "gap_s": {"min": round(min(gaps), 3), **quantiles(gaps)},
        "rows": len(ids),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=float, default=5.0)
    parser.add_argument("--interval", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    checkpoints = round(arguments.seconds * arguments.rate)
    with EmbeddedKafka() as kafka:
        for interval in (arguments.interval, 0):
            found = asyncio.run(run(kafka.bootstrap, checkpoints, arguments.rate, interval))
            report({**found, "after": machine()}, as_json=arguments.json)


if __name__ == "__main__":
    main()
