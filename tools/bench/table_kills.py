"""Ten minutes of kills while a stream writes three tables: every reader must see whole commits.

    python -m tools.bench.table_kills [--minutes 10] [--catalog postgres] [--seed 1] [--keep DIR]
        [--json]

Two regions of plain Python write orders, and in most checkpoints their items or refunds, into three tables of
one catalog. An order names the sums of its items and refunds, so the sums of the tables agree at each commit
alone. A coordinator is killed (SIGKILL) at each failpoint of a publication, between the updates of its
transaction, and at random. Half of the time a second one runs beside it, and takes over in mid-commit. Some
owners stand still instead, until the other one has committed. A foreign writer appends to a table between the
composition of a commit and its publication. Each pass over all places has tables of its own.

Readers of three kinds compare the sums meanwhile: by the vector of the anchor (docs/tables.md), by two rounds
over the tables that find the same snapshots, and by one SELECT over all entries of the catalog. At the end of
each pass DuckDB reads the tables, which must have each row once.
"""

import argparse
import asyncio
import logging
import runpy
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from tests.faults.together import ANCHOR, PLACES, Reads, Together, attack, killed
from tests.integration.waiting import until
from tests.postgres import postgres_server
from tools.bench.common import machine, report

CATALOGS: Final = ("sqlite", "postgres")
READ: Final = Path(__file__).parents[2] / "examples" / "read_tables.py"


async def measure(root: Path, wanted: argparse.Namespace) -> dict[str, Any]:
    """Attack stream after stream. Raises Inexact for what was not promised."""
    at_one_commit = runpy.run_path(str(READ))["at_one_commit"]
    before, chance = machine(), Random(wanted.seed)
    kills: Counter[str] = Counter()
    total: Counter[str] = Counter()
    reads = Reads()
    longest = 0.0
    with ExitStack() as stack:
        kafka, valkey = stack.enter_context(EmbeddedKafka()), stack.enter_context(EmbeddedValkey())
        uri = stack.enter_context(postgres_server()) if wanted.catalog == "postgres" else ""
        # The first coordinator loads the program for all others.
        life = Together(kafka.bootstrap, root, redis=valkey.url, uri=uri).begin()
        await until(partial(life.get, "/status"), bool, by=life, log=life.log_file)
        life.end()
        end = time.monotonic() + wanted.minutes * 60
        while time.monotonic() < end:
            where = Together(kafka.bootstrap, root, redis=valkey.url, uri=uri)
            found, tallies = await attack(where, at_one_commit, chance, lambda: time.monotonic() >= end)
            kills += killed(where, found.at_random)
            reads.add(found.readers.reads)
            longest = max(longest, found.readers.pause)
            total += found.kills + Counter(
                passes=1,
                frozen=found.frozen.total(),
                checkpoints=sum(each.checkpoints for each in found.regions),
                commits=tallies[ANCHOR].commits - tallies[ANCHOR].others,
                rows=sum(each.rows for each in tallies.values()),
            )
    missed = [place for place in PLACES if place not in kills]
    return {
        "catalog": wanted.catalog,
        "minutes": wanted.minutes,
        "kills": kills.total(),
        **total,
        **asdict(reads),
        "longest_pause_s": round(longest, 1),
        "exact": True,
        "by_place": dict(sorted(kills.items())),
        "missed": missed,
        "before": before,
        "after": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--catalog", default="sqlite", choices=CATALOGS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="folder in which tables and logs stay, with one of the kills")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    if wanted.keep:
        log = Path(wanted.keep) / "kills.log"
        logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(message)s")
    with nullcontext(wanted.keep) if wanted.keep else tempfile.TemporaryDirectory() as root:
        report(asyncio.run(measure(Path(root), wanted)), as_json=wanted.json)


if __name__ == "__main__":
    main()
