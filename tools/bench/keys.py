"""A campaign of kills on a table with keys: all readers must see the rows of a model.

    python -m tools.bench.keys [--kills 40] [--rows 1000000] [--keys 500000] [--batch 20000] [--seed 1]
        [--way foreach] [--minutes 60] [--keep DIR] [--json]

A query of Spark writes upserts and deletions into a table of Paimon with fixed buckets. With `--way foreach`
the order of the rows decides which one is newer, as `orderBy` gives it. With `--way source`, Spark's data
source writes, and the column of `sequence.field` decides; its values are in no order. A tenth of the rows is
for a hundred keys.

Coordinators are killed (SIGKILL) at the failpoints of a commit and at random, the driver of Spark and its
Python workers at the failpoints of the hooks and at random. Some drivers start again after a reset of their
checkpoint location. Paimon's Java library compacts the table meanwhile, unless a column decides: a compaction
removes deletions, so an older row that comes later would be there again.

In the end, the rows are read by pypaimon, by Java, by Java after a full compaction, and by pypaimon after it.
A run with another seed is another part of the campaign: kills and rows add up. One that reaches `--minutes`
has fewer of both.
"""

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pypaimon import CatalogFactory, Schema

from sluicegate.cli.local.jars import fetched_jars, find_java
from sluicegate.cli.local.process import free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.notifications import Committed
from sluicegate.failpoints.names import Failpoint
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation
from tests.faults import sparks
from tests.faults.compactor import Compactor, compactor
from tests.faults.executors import SparkCluster
from tests.faults.forked import ForkedLife
from tests.faults.lives import COMMAND, Deployment, Life
from tests.faults.rolling import COMMIT, START, Plan
from tests.faults.sparks import HOOKS, WRITTEN, SparkJob, Tickets, Way
from tests.faults.tallies import Inexact
from tests.integration.waiting import until
from tests.lakes.paimon.java_judge import judged
from tools.bench.common import machine, read_notifications, report

ROOT: Final = Path(__file__).parents[2]
STREAM: Final = "flights"
REGION: Final = "r1"
SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("value", pa.int64()),
        ("at", pa.int64()),
        ("place", pa.int64()),
        ("op", pa.string()),
    ]
)
KINDS: Final = np.array(["+I", "+U", "-U", "-D"])
SHARES: Final = (0.1, 0.65, 0.05, 0.2)
NULL: Final = -1
"""Value of the model for a null."""
Whole = npt.NDArray[np.int64]


class Batch(NamedTuple):
    """Rows of a batch in their order."""

    ids: Whole
    values: Whole
    at: Whole
    """Values of `sequence.field`, each of them once."""
    places: Whole
    """Place of each row among those of all batches."""
    kinds: Whole

    def to_arrow(self) -> pa.Table:
        values = pa.array(self.values, mask=self.values == NULL)
        return pa.table([self.ids, values, self.at, self.places, KINDS[self.kinds]], schema=SCHEMA)


class Model:
    """The rows that the table must have. They are a function of the seed and the number of batches."""

    def __init__(self, seed: int, keys: int, rows: int, *, is_ordered: bool) -> None:
        """`rows`: those of a batch. `is_ordered`: a column decides which row is newer."""
        self._seed, self._keys, self._rows = seed, keys, rows
        self._is_ordered = is_ordered
        self._values = np.full(keys, NULL, np.int64)
        self._newest = np.full(keys, -1, np.int64)
        self._alive = np.zeros(keys, bool)
        self.deletions = 0
        self.batches = 0

    def next_batch(self) -> Batch:
        """Make the rows of a batch, and apply them."""
        dice = np.random.default_rng([self._seed, self.batches])
        numbers = np.arange(self._rows, dtype=np.int64) + self.batches * self._rows
        ids = dice.integers(0, self._keys, self._rows)
        hot = dice.random(self._rows) < 0.1
        ids[hot] = dice.integers(0, 100, int(hot.sum()))
        values = np.where(dice.random(self._rows) < 0.02, NULL, numbers)
        # Rows come up to three batches late. No two have the same value.
        at = (numbers + dice.integers(0, 3 * self._rows, self._rows)) * 2**24 + numbers
        kinds = dice.choice(len(KINDS), self._rows, p=SHARES)
        made = Batch(ids, values, at, numbers, kinds)
        self._apply(made)
        return made

    def _apply(self, batch: Batch) -> None:
        order = batch.at if self._is_ordered else batch.places
        ranked = np.argsort(order, kind="stable")
        ids = batch.ids[ranked]
        # The last row of each key in the batch.
        keys, from_end = np.unique(ids[::-1], return_index=True)
        last = ranked[len(ids) - 1 - from_end]
        newer = order[last] > self._newest[keys]
        keys, last = keys[newer], last[newer]
        self._newest[keys] = order[last]
        self._values[keys] = batch.values[last]
        self._alive[keys] = batch.kinds[last] < 2
        self.deletions += int((batch.kinds >= 2).sum())
        self.batches += 1

    def rows(self) -> dict[int, int]:
        """Return the value of each key, NULL for a null."""
        keys = np.flatnonzero(self._alive)
        return dict(zip(keys.tolist(), self._values[keys].tolist(), strict=True))


class Forking(Deployment):
    """A deployment whose coordinators begin at once, so that most of the time is for work."""

    def start(self, failpoints: str = "", command: Sequence[str] = COMMAND) -> Life:
        self.lives += 1
        return ForkedLife(self, self.lives, failpoints, self.folder)


class KeyedJob(SparkJob):
    """A query of Spark that writes the rows of a model."""

    def __init__(self, where: Deployment, tickets: Tickets, seed: int, way: Way, model: Model) -> None:
        self.model = model
        super().__init__(where, tickets, seed, way=way)
        self.location = self.folder / "checkpoint"

    def _given(self, seed: int, cluster: SparkCluster | None) -> dict[str, Any]:
        given = super()._given(seed, cluster)
        own = {
            "schema": "id long, value long, at long, place long, op string",
            "files": "parquet",
            "tasks": 3 if self.way == "source" else 0,
            # A batch after a reset may have several files, whose order is Spark's.
            "order": "" if self.way == "source" else "place",
            # Restarts are faults of their own here.
            "stop": 0.0,
        }
        return {**given, **own}

    def feed(self) -> None:
        draft = self.folder / "draft"
        pq.write_table(self.model.next_batch().to_arrow(), draft)
        draft.rename(self.source / f"{self.files:06d}.parquet")
        self.files += 1

    def rows_there(self) -> int:
        """Return the number of completed batches, in rows of the other campaigns."""
        return len([*self.location.glob("commits/[0-9]*")]) * sparks.ROWS

    def feed_on(self) -> None:
        """A batch, if the job keeps up. After a reset, one batch may have several files."""
        completed = max((int(each.name) for each in self.location.glob("commits/[0-9]*")), default=None)
        if completed is not None:
            *_, offset = (self.location / "offsets" / str(completed)).read_text(encoding="utf-8").splitlines()
            if json.loads(offset)["logOffset"] >= self.files - 2:
                self.feed()

    def settings_of_reset(self) -> list[str]:
        return ["--stream", STREAM, "--region", REGION, "--checkpoint-location", str(self.location)]

    async def reset(self) -> None:
        """Kill the driver, set its location back to what is committed, and start it again."""
        self._process.kill()
        config = self.where.write_settings(0, free_port())
        command = [
            *COMMAND,
            "region",
            "reset",
            "--config",
            str(config),
            *self.settings_of_reset(),
            "--silence",
            "1s",
        ]
        await until(
            partial(asyncio.to_thread, _succeeds, command, self.log_file), what="a reset", log=self.log_file
        )
        self.start()

    async def committed_all(self) -> bool:
        """Return True if the newest completed batch is committed."""
        location = CheckpointLocation(str(self.location))
        marker, newest, is_there = location.marker(), location.newest_completed(), False
        async for _, told in read_notifications(self.where.bootstrap, self.where.topics):
            at = told.body.cut.get(REGION) if isinstance(told.body, Committed) else None
            if at is not None and marker is not None:
                is_there = is_there or (at.incarnation, at.checkpoint) == (marker.incarnation, newest)
        return is_there


def _succeeds(command: list[str], log_file: Path) -> bool:
    """Run a command of the operator. It fails while no coordinator answers."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    with log_file.open("a") as log:
        log.write(f"{' '.join(command[3:])}\n{done.stdout}{done.stderr}")
    return done.returncode == 0


class Campaign:
    """One table, its model, and everything that is killed."""

    def __init__(self, where: Deployment, job: KeyedJob, other: Compactor | None, chance: Random) -> None:
        self.where, self.job, self.other, self.chance = where, job, other, chance
        self.done: Counter[str] = Counter()
        self.life: Life = where.start()

    def kills(self) -> int:
        return self.done["coordinator"] + self.done["spark driver"] + self.done["python worker"]

    async def coordinator(self) -> None:
        """A coordinator is killed at any moment."""
        await asyncio.sleep(self.chance.uniform(0.0, 3.0))  # time: any moment of a commit
        self.life.kill()
        self.life = self.where.start()
        self.done["coordinator"] += 1

    async def coordinator_at_a_place(self) -> None:
        """A coordinator kills itself at a place that every start or every commit passes."""
        point = self.chance.choice((*START, *COMMIT, *COMMIT))
        self.life.kill()
        self.life = self.where.start(Plan(point).rule)
        self.done["coordinator"] += 1

        def is_over() -> bool:
            self.job.feed_on()
            return self.life.over

        await until(is_over, what=point, log=self.life.log_file)
        self.life = self.where.start()
        self.done["coordinator"] += 1
        self.done[f"at {point}"] += 1

    async def driver(self) -> None:
        await asyncio.sleep(self.chance.uniform(0.0, 4.0))  # time: any moment of a batch
        self.job.kill_driver()
        self.done["spark driver"] += 1

    async def worker(self) -> None:
        """The next Python worker that has written its files, or has not yet, is killed."""
        await self._at(self.chance.choice(WRITTEN))

    async def at_a_hook(self) -> None:
        """The next process that comes to a place of the hooks is killed there."""
        await self._at(self.chance.choice(HOOKS))

    async def _at(self, point: Failpoint) -> None:
        in_task = self.job.way == "source" or point in WRITTEN
        self.done["python worker" if in_task else "spark driver"] += await self.job.kill_worker(point)
        self.done[f"at {point}"] += 1

    async def reset(self) -> None:
        """The driver is killed, and its checkpoint location is set back."""
        await asyncio.sleep(self.chance.uniform(0.0, 4.0))  # time: any moment of a batch
        await self.job.reset()
        self.done["spark driver"] += 1
        self.done["reset"] += 1

    async def restart(self) -> None:
        """The query is stopped and started at once; its old tasks may still write."""
        await asyncio.sleep(self.chance.uniform(0.0, 2.0))  # time: any moment of a batch
        self.job.restart()
        self.done["restart of the query"] += 1

    async def compaction(self) -> None:
        if self.other is not None:
            made = await self.other.compact(self.where.tables[STREAM])
            self.done["compaction"] += bool(made.files)
            self.done["compaction refused"] += bool(made.refused)

    async def run(self, kills: int, batches: int, minutes: float) -> None:
        """Let things go wrong until so many processes are killed, and so many batches written.

        After so many minutes, what is there is finished.
        """
        end = time.monotonic() + minutes * 60
        self.job.feed()
        await until(self.job.rows_there, log=self.job.log_file, what="the first batch")
        while self.kills() < kills and time.monotonic() < end:
            while self.job.files < batches * self.kills() / kills:
                self.job.feed()
            if self.chance.random() < 0.5:
                await self._batch()
            faults = [self.chance.choice(KILLS)]
            if self.chance.random() < 0.25:
                faults.insert(0, self.chance.choice(BESIDE))
            for fault in faults:
                await fault(self)
            names, now = [each.__name__ for each in faults], time.strftime("%H:%M:%S")
            print(f"{now} {self.kills()} kills, {self.job.files} batches: {names}", flush=True)
        while self.job.files < batches and time.monotonic() < end:
            self.job.feed()
        await self.job.finish()
        await until(self.job.committed_all, log=self.life.log_file, what="the last commit")

    async def _batch(self) -> None:
        """Wait until a batch is completed: not all kills are to hit a start."""
        before = self.job.rows_there()

        def is_over() -> bool:
            self.job.feed_on()
            return self.job.rows_there() != before

        await until(is_over, log=self.job.log_file, what="a batch")

    def end(self) -> None:
        self.job.end()
        self.life.end()


Fault = Callable[[Campaign], Awaitable[None]]
KILLS: Final[tuple[Fault, ...]] = (
    *(Campaign.coordinator, Campaign.coordinator_at_a_place) * 2,
    *(Campaign.worker,) * 3,
    Campaign.at_a_hook,
    Campaign.driver,
    Campaign.reset,
)
BESIDE: Final[tuple[Fault, ...]] = (Campaign.restart, Campaign.compaction)
"""No kills. A kill follows at once."""


def make_table(folder: Path, way: Way) -> Path:
    """Make the table of the campaign."""
    options = {"bucket": "4", "write-only": "true", "rowkind.field": "op"}
    if way == "source":
        options["sequence.field"] = "at"
    catalog = CatalogFactory.create({"warehouse": str(folder)})
    catalog.create_database("keyed", ignore_if_exists=True)
    made = Schema.from_pyarrow_schema(SCHEMA, primary_keys=["id"], options=options)
    catalog.create_table("keyed.accounts", made, ignore_if_exists=False)
    return folder / "keyed.db" / "accounts"


def by_pypaimon(table: Path) -> dict[int, int]:
    """Read the rows with pypaimon. Raises Inexact if a key is there twice."""
    catalog = CatalogFactory.create({"warehouse": str(table.parents[1])})
    builder = catalog.get_table("keyed.accounts").new_read_builder()
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    ids = found["id"].to_pylist()
    rows = dict(zip(ids, found["value"].fill_null(NULL).to_pylist(), strict=True))
    if len(rows) != len(ids):
        raise Inexact(f"pypaimon reads {len(ids) - len(rows)} keys twice")
    return rows


def compare(reader: str, expected: Mapping[int, int], found: Mapping[int, int]) -> None:
    """Raise Inexact unless both are the same."""
    if found == expected:
        return
    missing = sorted(expected.keys() - found.keys())
    back = sorted(found.keys() - expected.keys())
    old = sorted(key for key in expected.keys() & found.keys() if expected[key] != found[key])
    examples = [(key, expected.get(key), found.get(key)) for key in (*missing[:5], *back[:5], *old[:5])]
    raise Inexact(
        f"{reader}: {len(missing)} rows are missing, {len(back)} deleted ones are there, {len(old)} have "
        f"another value; key, model, reader: {examples}"
    )


def judge(table: Path, folder: Path, expected: Mapping[int, int]) -> None:
    """Compare all readers with the model. Raises Inexact."""
    compare("pypaimon", expected, by_pypaimon(table))
    jars = fetched_jars("Paimon", ROOT / "tools/bench/java/paimon.jars")
    spill = folder / "spill"
    spill.mkdir(exist_ok=True)
    for (_, when), rows in judged((find_java(), ":".join(map(str, jars))), spill, [table]).items():
        found = {int(key): NULL if value == "null" else int(value) for key, value in rows.items()}
        compare(f"Java, {when} the compaction", expected, found)
    compare("pypaimon after the compaction", expected, by_pypaimon(table))


async def measure(root: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Run one part. Raises Inexact for rows that the model does not have."""
    before, started = machine(), time.monotonic()
    chance, way = Random(given.seed), given.way
    async with AsyncExitStack() as stack:
        kafka = stack.enter_context(EmbeddedKafka())
        other = await stack.enter_async_context(compactor(root)) if way == "foreach" else None
        where = Forking(kafka.bootstrap, root)
        where.tables[STREAM] = make_table(where.folder, way)
        await where.prepare()
        model = Model(given.seed, given.keys, given.batch, is_ordered=way == "source")
        job = KeyedJob(where, Tickets(where), given.seed, way, model)
        campaign = Campaign(where, job, other, chance)
        try:
            await campaign.run(given.kills, -(-given.rows // given.batch), given.minutes)
        finally:
            campaign.end()
    expected = model.rows()
    judge(where.tables[STREAM], where.folder, expected)
    done = campaign.done
    return {
        "way": way,
        "seed": given.seed,
        "kills": campaign.kills(),
        "rows": job.files * given.batch,
        "deletions": model.deletions,
        "keys": given.keys,
        "keys_in_the_end": len(expected),
        "exact": True,
        **{name: count for name, count in sorted(done.items()) if not name.startswith("at ")},
        "places": sum(name.startswith("at ") for name in done),
        "seconds": round(time.monotonic() - started),
        "before": before,
        "after": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--batch", type=int, default=20_000, help="rows of a batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--way", choices=("foreach", "source"), default="foreach")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no more happens")
    parser.add_argument("--keep", help="folder in which the table and the logs stay")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with nullcontext(given.keep) if given.keep else tempfile.TemporaryDirectory() as root:
        report(asyncio.run(measure(Path(root), given)), as_json=given.json)


if __name__ == "__main__":
    main()
