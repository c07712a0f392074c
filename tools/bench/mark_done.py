"""Marks of twelve monthly partitions while coordinators are killed: each in time, and once.

    python -m tools.bench.mark_done [--formats paimon,iceberg,delta] [--kills 20] [--seed 1] [--json]

Three regions, one for each airport, write a year of monthly partitions, in an order drawn at random. Partial
commits are allowed, so a region that is behind falls back. The coordinator is a process of its own, with a
listener of the type `mark-done`. It is killed (SIGKILL) so many times, and started again at once. For each
mark, the benchmark computes the watermark of the cut from what each region had really committed. A month must
be marked at the first cut where all three regions have passed its end, and only then, and its folder must
have the success file. A crash may repeat a mark, with the same id.
"""

import argparse
import asyncio
import tempfile
import uuid
from pathlib import Path
from random import Random

from sluicegate.cli.local.servers import EmbeddedKafka
from tests.faults.tables import FORMATS
from tests.integration.conftest import place_of
from tests.listeners.mark_done.year import live_through
from tools.bench.common import machine, report


async def measure(wanted: argparse.Namespace) -> None:
    """Print a line for each format."""
    with EmbeddedKafka() as kafka:
        for lake in wanted.formats.split(","):
            with tempfile.TemporaryDirectory() as folder:
                before = machine()
                place = await place_of(lake, kafka.bootstrap, f"m{uuid.uuid4().hex[:10]}", Path(folder))
                done = await live_through(place, wanted.kills, Random(f"{wanted.seed} {lake}"))
            told = {"format": lake, **done, "in_time": True, "before": before, "after": machine()}
            report(told, as_json=wanted.json)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
