"""A campaign of real kills: every table must be exact, and every failpoint must have been reached.

    python -m tools.bench.faults [--format paimon] [--store local] [--kills 200] [--seed 1] [--spark 12]
        [--executors 12] [--compactions 32] [--cluster 8] [--python 2]
        [--parts scenes,servers,first,spark,executors,compaction,cluster,python]

Kafka, Valkey, the coordinators and Spark are processes of their own. The coordinator is killed (SIGKILL, by
itself) at each failpoint of an ordinary commit in a stream's very first commit and in later ones, and at the
rarer places in scenes that lead there (tools/bench/scenes.py); broker and state store are killed from
outside, Spark's Python workers and driver at the hooks' failpoints and at random. Whatever happens, the table
in the end is read by a reader that shares no code with any writer: our own for Paimon, DuckDB for the
other formats. With `--store s3proxy` the tables are in a real S3 server, and the reader looks at the files in
which that server keeps its objects. With `--store hdfs` they are in a real cluster, of which a mirror is made
before each reading. Then the NameNode is killed, too, as are drivers and writers in plain Python. In the end
the format's Java library reads all tables from the cluster itself. Prints how often each failpoint was
reached and how often a process was killed there; the last line is JSON.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import read_actions, read_hits
from tests.faults.compactor import KINDS, Compactor, compactor, verify
from tests.faults.feeds import Feed
from tests.faults.javas import read_by_java
from tests.faults.lives import Deployment
from tests.faults.pythons import drivers_hurt
from tests.faults.rolling import AGAIN, COMMIT, ONCE, PUBLISH, START, Plan, conclude, roll, strike
from tests.faults.scenes import Maker, lake_fails
from tests.faults.stores import HDFS, LOCAL, STORES, Store, opened
from tests.faults.tables import FORMATS, Inexact, tally
from tools.bench.scenes import (
    OF_PAIMON,
    SCENES,
    broker_killed,
    cluster_killed,
    partitions_move,
    redis_killed,
    redis_slow,
)
from tools.bench.spark_kills import executors_killed, spark_killed

EPISODE = 16
"""Kills of one stream's coordinator, before its table is read and another stream begins."""


class Campaign:
    """Everything that is killed, and what came of it."""

    def __init__(
        self,
        root: Path,
        kafka: EmbeddedKafka,
        valkey: EmbeddedValkey,
        store: Store,
        options: argparse.Namespace,
    ) -> None:
        self.root = root
        self.store = store
        self.lake: str = options.format
        self.lacking = FORMATS[self.lake].LACKING
        self.commit = tuple(point for point in COMMIT if point not in self.lacking)
        """Places of an ordinary commit of the format."""
        self.kafka = kafka
        self.valkey = valkey
        self.random = Random(options.seed)
        self.options = options
        self.hits = root / "hits"
        self.kills: Counter[str] = Counter()
        """By process."""
        self.tables: list[Path] = []
        self.missed: list[str] = []
        self.others: Counter[str] = Counter()
        """Counts of other events."""

    async def make(self, **differing: Any) -> Deployment:
        """A deployment with topics and tables of its own."""
        kind = {"lake": self.lake, "store": self.store.folder, "redis": self.valkey.url, "hits": self.hits}
        where = Deployment(self.kafka.bootstrap, self.root, **{**kind, **differing})
        await where.prepare()
        self.tables += where.tables.values()
        return where

    async def roll(self, plans: list[Plan], chance: Random | None = None) -> None:
        """One stream through these kills; with a `chance`, other things go wrong before each."""
        missed = await roll(await self.make(), plans, chance)
        self.missed += [plan.rule for plan in missed]
        self.kills["coordinator"] += len(plans)

    def note(self, what: str) -> None:
        """Say how far it is."""
        print(
            f"{time.strftime('%H:%M:%S')} {self.kills.total()} kills, {len(self.tables)} tables: {what}",
            flush=True,
        )


async def first_commits(campaign: Campaign) -> None:
    """Each place in a stream's first life, and again in its second; the first commit is not there yet."""
    for point in (*ONCE, *START, *campaign.commit):
        await campaign.roll([Plan(point), Plan(campaign.random.choice((*START, *campaign.commit, *AGAIN)))])
        campaign.note(f"first commit, {point}")


async def scenes(campaign: Campaign) -> None:
    """The places that an ordinary commit does not pass."""
    for name, scene in SCENES.items():
        if name in OF_PAIMON and campaign.lake != "paimon":
            continue
        campaign.kills["coordinator"] += await scene(campaign.make)
        campaign.note(name)


async def servers(campaign: Campaign) -> None:
    """Broker and state store; a lake that fails; members that come and go."""
    campaign.kills["redis"] += await redis_killed(campaign.make, campaign.valkey, 15)
    campaign.note("redis killed")
    await redis_slow(campaign.make)
    await lake_fails(campaign.make)
    campaign.note("slow redis, failing lake")
    campaign.kills["coordinator"] += await partitions_move(campaign.make, 8, campaign.random)
    campaign.note("partitions move")
    campaign.kills["broker"] += await broker_killed(campaign.make, campaign.kafka, 8)
    campaign.note("broker killed")


async def spark(campaign: Campaign) -> None:
    """A Spark job's workers and driver, and the coordinator beside it."""
    campaign.kills.update(await spark_killed(campaign.make, campaign.options.spark, campaign.random))
    campaign.note("spark killed")


async def executors(campaign: Campaign) -> None:
    """The same on a cluster of processes: executors and the driver are killed, tasks speculated."""
    done = await executors_killed(campaign.make, campaign.options.executors, campaign.random)
    campaign.kills.update({name: done.pop(name) for name in ("executor", "spark driver", "coordinator")})
    campaign.others.update(done)
    campaign.note(f"executors killed: {dict(done)}")


KILLED_AT: Final = (*PUBLISH, Failpoint.LAKE_DISCARD_BEFORE, Failpoint.LAKE_DISCARD_AFTER)
"""The last two are reached after a compaction was first."""
_WIDE: Final = (Failpoint.LAKE_MANIFESTS_DURABLE, Failpoint.LAKE_PUT_BEFORE)
"""Held up here, a commit gives a compaction the time to be first."""


async def compacted(
    make: Maker, other: Compactor, kind: str, plans: list[Plan], chance: Random
) -> Counter[str]:
    """One table through these kills, and compactions from beginning to end; how often what.

    Raises Inexact if the table is not exact in the end, or replay finds that it differs from the log.
    """
    where: Deployment = await make(table_options=KINDS[kind], compacted=True)
    table, done = where.tables["flights"], Counter[str]()
    async with Feed(where) as feed:
        async with _compacting(other, table, done, chance):
            for plan in plans:
                slow = chance.choice([point for point in _WIDE if point != plan.point])
                done["killed"] += await strike(where, [feed], plan, f"{slow}=delay:700")
            await conclude(where, [feed])
        await other.compact(table)
        verify(where)
        found = await asyncio.to_thread(tally, table, feed.ids, where.user("flights"), compacted=True)
    if not found.exact:
        raise Inexact(f"{table}: {found}")
    done["commits"] = found.commits - found.others
    done["compactions"] = found.others
    return done


@asynccontextmanager
async def _compacting(
    other: Compactor, table: Path, done: Counter[str], chance: Random
) -> AsyncIterator[None]:
    over = asyncio.Event()

    async def go_on() -> None:
        while not over.is_set():
            made = await other.compact(table)
            done["replaced"] += made.files
            done["given up"] += bool(made.refused)
            await asyncio.sleep(chance.uniform(0.0, 0.1))  # time: any moment of a commit

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(go_on())
        yield
        over.set()


async def compaction(campaign: Campaign) -> None:
    """Paimon's own compaction, by its Java library, in a race with the coordinator's commits."""
    left = campaign.options.compactions
    async with compactor(campaign.root) as other:
        while left > 0:
            for kind in KINDS:
                points = campaign.random.choices(KILLED_AT, k=min(EPISODE, left))
                plans = [Plan(point, campaign.random.randint(1, 2)) for point in points]
                done = await compacted(campaign.make, other, kind, plans, campaign.random)
                campaign.others.update(
                    {name: done[name] for name in ("commits", "compactions", "replaced", "given up")}
                )
                campaign.kills["coordinator"] += len(plans)
                campaign.note(f"compaction, {kind} buckets: {dict(done)}")
                left -= len(plans)


async def cluster(campaign: Campaign) -> None:
    """The NameNode, during commits."""
    found = campaign.store.cluster
    if found is None:
        raise SystemExit("the part cluster needs --store hdfs")
    campaign.kills.update(
        await cluster_killed(campaign.make, found, campaign.options.cluster, campaign.random)
    )
    campaign.note("NameNode killed")


_KILLED: Final = {
    "driver killed at a place": "driver",
    "driver killed at random": "driver",
    "replay": "driver",
    "writer killed": "writer",
    "coordinator killed": "coordinator",
    "NameNode killed": "NameNode",
}
"""Process that is killed, by the kind of fault."""


async def python(campaign: Campaign) -> None:
    """A driver in plain Python and its writers, the coordinator, and the NameNode, if there is one."""
    done = await drivers_hurt(campaign.make, campaign.options.python, campaign.random, campaign.store.cluster)
    for kind, count in done.items():
        kinds, name = (campaign.kills, _KILLED[kind]) if kind in _KILLED else (campaign.others, kind)
        kinds[name] += count
    campaign.note(f"drivers and writers in plain Python: {dict(done)}")


PARTS: dict[str, Callable[[Campaign], Awaitable[None]]] = {
    "scenes": scenes,
    "servers": servers,
    "first": first_commits,
    "spark": spark,
    "executors": executors,
    "compaction": compaction,
    "cluster": cluster,
    "python": python,
}
_OF_HDFS: Final = ("cluster", "python")
"""Its parts if none are named. With local tables, drivers in plain Python have tools.bench.ways_in."""


async def later_commits(campaign: Campaign, kills: int) -> None:
    """Kills at random places and turns, until there are as many as asked for."""
    while (left := kills - campaign.kills.total()) > 0:
        places = (*START, *campaign.commit, *campaign.commit, *AGAIN)
        points = campaign.random.choices(places, k=min(EPISODE, left))
        turns = [1 if point in (*START, *AGAIN) else campaign.random.randint(1, 3) for point in points]
        plans = [Plan(*each) for each in zip(points, turns, strict=True)]
        await campaign.roll(plans, campaign.random)
        campaign.note("later commits, with troubles")


def parts_of(options: argparse.Namespace) -> list[str]:
    """The parts that were asked for, or all that the format and the store have; none for `none`."""
    if options.parts:
        return [part for part in str(options.parts).split(",") if part != "none"]
    if options.store == HDFS:
        return [*_OF_HDFS]
    own = options.format == "paimon" and options.store == LOCAL
    return [part for part in PARTS if part not in _OF_HDFS and (part != "compaction" or own)]


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """The whole campaign. Raises Inexact at the first table that is not exact."""
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedKafka() as kafka,
        EmbeddedValkey() as valkey,
        opened(options.store) as store,
    ):
        campaign = Campaign(Path(name), kafka, valkey, store, options)
        for part in parts_of(options):
            await PARTS[part](campaign)
        await later_commits(campaign, options.kills)
        judged = read_by_java(options.format, campaign.tables, Path(name)) if store.cluster else 0
        reached = read_hits(str(campaign.hits))
        killed = read_actions(str(campaign.hits), "kill")
        for point in Failpoint:
            print(f"{point:32} reached {reached[point]:6}   killed there {killed[point]:3}")
        return {
            "format": options.format,
            "store": options.store,
            "kills": campaign.kills.total(),
            "by_process": dict(campaign.kills),
            "at_failpoints": killed.total(),
            "tables": len(campaign.tables),
            "rows_read_by_java": judged,
            "others": campaign.others,
            "missing": 0,
            "doubled": 0,
            "killed_elsewhere": campaign.missed,
            "never_reached": [
                point for point in Failpoint if not reached[point] and point not in campaign.lacking
            ],
            "seconds": round(time.monotonic() - started),
            "seed": options.seed,
        }


def main() -> None:
    """Run the campaign; the status is 1 if all parts together have not reached every failpoint."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spark", type=int, default=12, help="kills of the part spark")
    parser.add_argument("--executors", type=int, default=12, help="kills of the part executors")
    parser.add_argument("--compactions", type=int, default=32, help="kills of the part compaction")
    parser.add_argument("--cluster", type=int, default=8, help="kills of the part cluster")
    parser.add_argument("--python", type=int, default=2, help="rounds of the part python")
    parser.add_argument("--parts", default="", help=f"of {','.join(PARTS)}, or none; default: all")
    parser.add_argument("--format", choices=sorted(FORMATS), default="paimon")
    parser.add_argument("--store", choices=STORES, default=LOCAL)
    options = parser.parse_args()
    found = asyncio.run(run(options))
    print(json.dumps(found), flush=True)
    has_all = not options.parts and options.store != HDFS
    sys.exit(1 if found["never_reached"] and has_all else 0)


if __name__ == "__main__":
    main()
