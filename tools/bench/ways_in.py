"""A campaign of real faults for each way into a table beside the data source: every table must be exact.

    python -m tools.bench.ways_in [--way foreach] [--format paimon] [--rounds 6] [--kills 20] [--executors 16]
        [--seed 1]

The way `foreach` is ForeachBatch in Spark: its driver, its Python workers and the coordinator are killed at
each place of the hook and at random, then executors of a cluster, with speculation, late tasks, and queries
that are stopped and start again while their tasks still write. `python` is RegionDriver with writers in
other processes: `--rounds` of each kind of fault, in a random order. `uploads` is the same with
asynchronous uploads, whose uploader is killed, and whose spool is deleted with files in it. `jobs` are
batch jobs. The data source has its own campaign, tools.bench.faults. In the end a reader that shares no
code with any writer reads the table. The last line is JSON, with the number of faults of each kind."""

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from tests.faults.lives import Deployment
from tests.faults.plainjobs import jobs_hurt
from tests.faults.pythons import drivers_hurt
from tests.faults.scenes import Maker
from tests.faults.spools import spools_hurt
from tests.faults.tables import FORMATS
from tools.bench.spark_kills import executors_killed, spark_killed

_OTHERS: Final = frozenset({"unnamed attempts"})
"""Counts beside the faults."""


async def foreach(make: Maker, given: argparse.Namespace, random: Random) -> Counter[str]:
    """ForeachBatch, in one process and on a cluster."""
    done = await spark_killed(make, given.kills, random, way="foreach")
    print(f"{time.strftime('%H:%M:%S')} {dict(done)}", flush=True)
    return done + await executors_killed(make, given.executors, random, way="foreach")


async def python(make: Maker, given: argparse.Namespace, random: Random) -> Counter[str]:
    """A driver without Spark."""
    return await drivers_hurt(make, given.rounds, random)


async def uploads(make: Maker, given: argparse.Namespace, random: Random) -> Counter[str]:
    """A driver without Spark, and an uploader."""
    return await spools_hurt(make, given.rounds, random)


async def jobs(make: Maker, given: argparse.Namespace, random: Random) -> Counter[str]:
    """Batch jobs without Spark."""
    return await jobs_hurt(make, given.rounds, random)


WAYS: Final[dict[str, Callable[[Maker, argparse.Namespace, Random], Awaitable[Counter[str]]]]] = {
    "foreach": foreach,
    "python": python,
    "uploads": uploads,
    "jobs": jobs,
}


async def made(kafka: EmbeddedKafka, root: Path, redis: str, lake: str, **differing: Any) -> Deployment:
    """Return a deployment with topics and tables of its own."""
    where = Deployment(kafka.bootstrap, root, redis=redis, lake=lake, **differing)
    await where.prepare()
    return where


async def run(given: argparse.Namespace) -> dict[str, Any]:
    """Run the campaign. Raises Inexact at the first table that is not exact."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka() as kafka, EmbeddedValkey() as valkey:
        make = partial(made, kafka, Path(name), valkey.url, given.format)
        done = await WAYS[given.way](make, given, Random(given.seed))
    return {
        "way": given.way,
        "format": given.format,
        "faults": sum(count for kind, count in done.items() if kind not in _OTHERS),
        "by_kind": dict(sorted(done.items())),
        "missing": 0,
        "doubled": 0,
        "seed": given.seed,
        "seconds": round(time.monotonic() - started),
    }


def main() -> None:
    """Run the campaign and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--way", choices=sorted(WAYS), default="foreach")
    parser.add_argument("--format", choices=sorted(FORMATS), default="paimon")
    parser.add_argument("--rounds", type=int, default=6, help="of each kind of fault, without Spark")
    parser.add_argument("--kills", type=int, default=28, help="of ForeachBatch in one process")
    parser.add_argument("--executors", type=int, default=16, help="kills of ForeachBatch on a cluster")
    parser.add_argument("--seed", type=int, default=1)
    print(json.dumps(asyncio.run(run(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()
