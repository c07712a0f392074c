"""Three tables of one stream, whose coordinators are killed while two regions write and readers compare.

Each checkpoint writes orders, and most write items or refunds. An order names the sums of its items and its
refunds. So the sums of the tables agree at each commit, and nowhere else.
"""

import asyncio
import json
import logging
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import read_actions
from sluicegate.writer_hooks import OpenCheckpoint, RegionDriver
from tests.contracts.lakes.iceberg_lake import local, open_library
from tests.faults import iceberg_tables
from tests.faults.forked import ForkedLife
from tests.faults.inside import INSIDE
from tests.faults.lives import Deployment, Life, stopped
from tests.faults.rolling import COMMIT
from tests.faults.tallies import Inexact, Tally, tally_of
from tests.iceberg_duck import duck
from tests.integration.waiting import until, watched

_log = logging.getLogger(__name__)

STREAM: Final = "shop"
USER: Final = f"sluicegate-{STREAM}"
ANCHOR: Final = "orders"
FURTHER: Final = ("items", "refunds")
"""Each is a column of the anchor, too: the sum of its prices."""
SCHEMAS: Final = {
    ANCHOR: pa.schema([("id", pa.int64()), *((name, pa.int64()) for name in FURTHER)]),
    **{name: pa.schema([("id", pa.int64()), ("price", pa.int64())]) for name in FURTHER},
}
REGIONS: Final = ("north", "south")

DISCARD: Final = (Failpoint.LAKE_DISCARD_BEFORE, Failpoint.LAKE_DISCARD_AFTER)
"""Passed when another writer has changed one of the tables meanwhile."""
AT_RANDOM: Final = "at random"
PLACES: Final = (
    *(point for point in COMMIT if point not in iceberg_tables.LACKING),
    *DISCARD,
    *INSIDE,
    AT_RANDOM,
)
"""Of kills: each place of a commit, inside of the transaction, and anywhere."""
FROZEN: Final = (Failpoint.ASK_AFTER, Failpoint.PUBLISH_BEFORE, Failpoint.LAKE_PUT_BEFORE)
"""Of owners that stand still until another one has taken over and committed."""

_AHEAD: Final = 3
"""Checkpoints of a region that may wait for their commits."""
_BETWEEN: Final = 0.02
"""Seconds between two reads of one kind."""
_ROWS_OF_A_REGION: Final = 10**9


@dataclass
class Together(Deployment):
    """The stream's deployment; its tables are in one catalog."""

    streams: tuple[str, ...] = ()
    lake: str = "iceberg"
    uri: str = ""
    """Of the catalog's database; empty: a file of SQLite."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.uri = self.uri or f"sqlite:///{self.folder / 'catalog.db'}"
        self.tickets = self.folder / "tickets"
        self.tickets.mkdir()
        with closing(self.catalog()) as catalog:
            catalog.create_namespace(self.prefix)
            for name, schema in SCHEMAS.items():
                place = (self.folder / self.prefix / name).as_uri()
                catalog.create_table(self.named(name), schema, location=place)

    def catalog(self) -> SqlCatalog:
        """Open the catalog with pyiceberg."""
        return open_library("default", self.uri, warehouse=self.folder.as_uri())

    def named(self, table: str) -> str:
        """Return the name of a table in the catalog."""
        return f"{self.prefix}.{table}"

    def settings(self, port: int) -> str:
        place = {"uri": self.uri, "identifier": self.named(ANCHOR)}
        lines = [f"[streams.{STREAM}]", 'format = "iceberg"']
        lines += [f'table = "{self.folder / self.prefix / ANCHOR}"', f"[streams.{STREAM}.tables]"]
        lines += [f'{name} = "{self.named(name)}"' for name in FURTHER]
        lines += [f"[streams.{STREAM}.options]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in place.items()]
        return super().settings(port) + "\n".join(lines) + "\n"

    def driver_options(self, region: str) -> dict[str, str]:
        """Return the options of a region's driver."""
        return {
            "stream": STREAM,
            "region": region,
            "regions": ",".join(REGIONS),
            "assignment": "1",
            "format": "iceberg",
            "table": str(self.folder / self.prefix / ANCHOR),
            "table.uri": self.uri,
            "table.identifier": self.named(ANCHOR),
            **{f"tables.{name}": self.named(name) for name in FURTHER},
            "kafka.bootstrap.servers": self.bootstrap,
            "topic.prefix": self.prefix,
            "registration.timeout": "900",
            "publish.timeout": "900",
        }

    def ticket(self, place: str) -> Path:
        """Return the file that sends a coordinator to its end at a place."""
        return self.tickets / place

    def begin(self) -> Life:
        """Begin a life that is killed, frozen or held up where a ticket says so."""
        rules = [f"{point}=kill?{self.ticket(point)}" for point in Failpoint]
        rules += [f"{point}=stop?{self.ticket(f'stop-{point}')}" for point in FROZEN]
        held = f"{self.ticket('go')}?{self.ticket('hold')}"
        rules.append(f"{Failpoint.LAKE_PUT_BEFORE}=hang:{held}")
        self.lives += 1
        return ForkedLife(self, self.lives, ";".join(rules), self.tickets)

    def pointers(self) -> dict[str, str]:
        """Return the metadata file of each table, as one SELECT reads them."""
        engine = create_engine(self.uri, poolclass=NullPool)
        chosen = "SELECT table_name, metadata_location FROM iceberg_tables WHERE table_namespace = :namespace"
        with engine.connect() as connection:
            rows = connection.execute(text(chosen), {"namespace": self.prefix}).all()
        return {str(name): str(location) for name, location in rows}


# --- writers ------------------------------------------------------------------------------------------


class Region:
    """One region: its driver and its writer, in a thread."""

    def __init__(self, where: Together, name: str, chance: Random) -> None:
        self._where, self._name, self._chance = where, name, chance
        self._first = REGIONS.index(name) * _ROWS_OF_A_REGION
        self.ids: dict[str, list[int]] = {table: [] for table in SCHEMAS}
        """Of all completed checkpoints."""
        self.checkpoints = 0

    def write(self, over: threading.Event) -> None:
        """Write checkpoint after checkpoint, and wait for the commits of all of them in the end."""
        waiting: list[OpenCheckpoint] = []
        with RegionDriver(
            self._where.driver_options(self._name), heartbeat_interval=1.0, idle_after=1.0
        ) as driver:
            while not over.is_set():
                checkpoint, tables = driver.begin(), self._tables()
                results = [
                    checkpoint.write("w0", rows, table="" if name == ANCHOR else name)
                    for name, rows in tables.items()
                ]
                driver.complete(checkpoint, results, source_offsets={"next": self.checkpoints})
                for name, rows in tables.items():
                    self.ids[name] += rows["id"].to_pylist()
                self.checkpoints += 1
                waiting.append(checkpoint)
                if len(waiting) > _AHEAD:
                    driver.await_commit(waiting.pop(0))
            for checkpoint in waiting:
                driver.await_commit(checkpoint)

    def _tables(self) -> dict[str, pa.Table]:
        """Return the rows of a checkpoint; a further table is left out by chance."""
        prices = {
            name: [self._chance.randrange(1, 10**9) for _ in range(self._chance.choice((0, 1, 3)))]
            for name in FURTHER
        }
        found = {ANCHOR: self._rows(ANCHOR, **{name: [sum(prices[name])] for name in FURTHER})}
        return found | {name: self._rows(name, price=each) for name, each in prices.items() if each}

    def _rows(self, table: str, **columns: list[int]) -> pa.Table:
        start = self._first + len(self.ids[table])
        count = len(next(iter(columns.values())))
        return pa.table({"id": range(start, start + count), **columns}, schema=SCHEMAS[table])


# --- readers ------------------------------------------------------------------------------------------


class Sums:
    """Sums of the price columns of tables. Manifests and data files never change, so each is read once."""

    def __init__(self) -> None:
        self._manifests: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, tuple[int, ...]] = {}

    def of(self, name: str, table: Table, snapshot: int | None) -> tuple[int, ...]:
        """Return the sums of a table at a snapshot; None: it has no rows yet."""
        columns = SCHEMAS[name].names[1:]
        found = [0] * len(columns)
        taken = table.snapshot_by_id(snapshot) if snapshot is not None else None
        for manifest in taken.manifests(table.io) if taken is not None else ():
            if manifest.manifest_path not in self._manifests:
                paths = [each.data_file.file_path for each in manifest.fetch_manifest_entry(table.io)]
                self._manifests[manifest.manifest_path] = _total(
                    [self._file(path, columns) for path in paths], len(columns)
                )
            found = [*_total([found, self._manifests[manifest.manifest_path]], len(columns))]
        return tuple(found)

    def _file(self, path: str, columns: Sequence[str]) -> tuple[int, ...]:
        if path not in self._files:
            rows = pq.ParquetFile(local(path)).read(columns=[*columns])
            self._files[path] = tuple(sum(rows[name].to_pylist()) for name in columns)
        return self._files[path]


def _total(sums: Sequence[Sequence[int]], columns: int) -> tuple[int, ...]:
    return tuple(sum(each[number] for each in sums) for number in range(columns))


class Sight(NamedTuple):
    """Sums that a reader saw of each table, and from which snapshots."""

    sums: Mapping[str, tuple[int, ...]]
    snapshots: Mapping[str, int | None]

    @property
    def is_torn(self) -> bool:
        """True if the sums of the tables disagree."""
        return self.sums[ANCHOR] != tuple(self.sums[name][0] for name in FURTHER)


@dataclass
class Reads:
    """Counts of the reads of all kinds."""

    vectors: int = 0
    """Reads by the vector of the anchor."""
    torn_vectors: int = 0
    backward_vectors: int = 0
    """Vectors of which a part was before that of an earlier one."""
    rounds: int = 0
    """Reads of two rounds that found the same snapshots."""
    torn_rounds: int = 0
    moved_rounds: int = 0
    """Reads of two rounds between which a table has changed; nothing is said of them."""
    selects: int = 0
    """Reads of the states that one SELECT names."""
    torn_selects: int = 0
    plain: int = 0
    """Reads of one table after the other, without the vector."""
    apart_plain: int = 0
    """Those of them whose sums differ, which is no error."""
    newer_plain: int = 0
    """Those of them that saw a table newer than one that was loaded later."""

    @property
    def errors(self) -> int:
        """Number of reads that the promise rules out."""
        return (
            self.torn_vectors
            + self.backward_vectors
            + self.torn_rounds
            + self.torn_selects
            + self.newer_plain
        )

    def add(self, other: "Reads") -> None:
        """Add what others have seen."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Readers:
    """Readers of three kinds, each in a thread of its own."""

    def __init__(
        self, where: Together, at_one_commit: Callable[..., Mapping[str, Any]], chance: Random
    ) -> None:
        """`at_one_commit`: the function of examples/read_tables.py."""
        self._where, self._at_one_commit, self._chance = where, at_one_commit, chance
        self._sums = Sums()
        self.reads = Reads()
        self.decision = 0
        """Of the newest vector."""
        self.pause = 0.0
        """Longest time in seconds between two new vectors."""
        self.said: list[str] = []
        """Sights of the reads that the promise rules out."""
        self._vector: dict[str, int] = {}
        self._since = 0.0

    def read(self, kind: Callable[["Readers", SqlCatalog], None], over: threading.Event) -> None:
        """Read in one way again and again."""
        with closing(self._where.catalog()) as catalog:
            while not over.is_set():
                kind(self, catalog)
                time.sleep(_BETWEEN)  # time: the pace of a reader

    def by_vector(self, catalog: SqlCatalog) -> None:
        """Read all tables by the rule of docs/tables.md."""
        names = {name: self._where.named(name) for name in FURTHER}
        try:
            found = self._at_one_commit(catalog, self._where.named(ANCHOR), names, USER)
        except LookupError:
            return  # no commit yet
        anchor = found["anchor"].table
        tables = {ANCHOR: found["anchor"], **{name: found[name] for name in FURTHER}}
        sight = self._sight({name: (table, snapshot) for name, (table, snapshot) in tables.items()})
        self.reads.vectors += 1
        self.reads.torn_vectors += self._is_bad(sight.is_torn, "vector", sight)
        cut = json.loads(anchor.properties[f"sluicegate.cut.{USER}"])
        vector = {"": cut["decision"], **{name: each[0] for name, each in cut["tables"].items()}}
        back = any(vector.get(name, 0) < before for name, before in self._vector.items())
        self.reads.backward_vectors += self._is_bad(back, f"{vector} after {self._vector}", sight)
        if vector != self._vector:
            now = time.monotonic()  # time: measured, and nothing waits for it
            if self._vector:
                self.pause = max(self.pause, now - self._since)
            self._since = now
        self._vector, self.decision = vector, cut["decision"]

    def by_rounds(self, catalog: SqlCatalog) -> None:
        """Load one table after the other, twice, in any order."""
        order = self._chance.sample([*SCHEMAS], len(SCHEMAS))
        first, second = ({name: self._newest(catalog, name) for name in order} for _ in range(2))
        if first[ANCHOR][1] is None:
            return  # no commit yet
        sight = self._sight(first)
        self.reads.plain += 1
        self.reads.apart_plain += sight.is_torn
        at = order.index(ANCHOR)
        newer = False
        for number, name in enumerate(FURTHER):
            ahead = sight.sums[ANCHOR][number] - sight.sums[name][0]
            newer = newer or (ahead > 0 if at < order.index(name) else ahead < 0)
        self.reads.newer_plain += self._is_bad(newer, f"loaded {order}", sight)
        if any(first[name][1] != second[name][1] for name in order):
            self.reads.moved_rounds += 1
            return
        self.reads.rounds += 1
        self.reads.torn_rounds += self._is_bad(sight.is_torn, "two equal rounds", sight)

    def by_select(self, catalog: SqlCatalog) -> None:
        """Read the entries of all tables with one statement, and the files that they name after it."""
        tables = {name: StaticTable.from_metadata(place) for name, place in self._where.pointers().items()}
        if not self.decision:
            return  # no commit yet
        sight = self._sight({name: (table, _newest_of(table)) for name, table in tables.items()})
        self.reads.selects += 1
        self.reads.torn_selects += self._is_bad(sight.is_torn, "select", sight)

    def _newest(self, catalog: SqlCatalog, name: str) -> tuple[Table, int | None]:
        table = catalog.load_table(self._where.named(name))
        return table, _newest_of(table)

    def _sight(self, tables: Mapping[str, tuple[Table, int | None]]) -> Sight:
        return Sight(
            {name: self._sums.of(name, table, snapshot) for name, (table, snapshot) in tables.items()},
            {name: snapshot for name, (_, snapshot) in tables.items()},
        )

    def _is_bad(self, bad: bool, what: str, sight: Sight) -> bool:
        if bad:
            self.said.append(f"{what}: {sight.sums} at {sight.snapshots}")
        return bad


def _newest_of(table: Table) -> int | None:
    found = table.current_snapshot()
    return found.snapshot_id if found is not None else None


KINDS: Final = (Readers.by_vector, Readers.by_rounds, Readers.by_select)


# --- kills --------------------------------------------------------------------------------------------


@dataclass
class Coordinators:
    """The coordinators of the stream: one, or two beside each other."""

    where: Together
    readers: Readers
    regions: Sequence[Region]
    chance: Random
    lives: list[Life] = field(default_factory=list)
    foreign: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in SCHEMAS})
    """Ids of another writer's rows, by table."""
    kills: Counter[str] = field(default_factory=Counter)
    """By the number of coordinators: `alone`, `beside`."""
    at_random: int = 0
    """Kills at any moment."""
    frozen: Counter[str] = field(default_factory=Counter)
    """Owners that stood still while another one took over, by the place."""

    async def pass_all(self, is_over: Callable[[], bool]) -> None:
        """Kill one coordinator at each place, in any order, and freeze one."""
        for place in self.chance.sample(PLACES, len(PLACES)):
            if is_over():
                return
            await self.kill(place, beside=self.chance.random() < 0.5)
            if self.chance.random() < 0.5:
                await self.progress()
        await self.freeze(self.chance.choice(FROZEN))

    async def prepare(self, count: int) -> None:
        """Have so many coordinators. One that comes to others serves before this returns."""
        while len(self.lives) > count:
            await asyncio.to_thread(self.lives.pop(0).end)
        while len(self.lives) < count:
            life = self.where.begin()
            self.lives.append(life)
            if len(self.lives) > 1:
                await until(
                    partial(life.get, "/status"), bool, by=life, log=life.log_file, what="its first answer"
                )

    async def progress(self) -> None:
        """Wait for a new commit."""
        await self.prepare(max(1, len(self.lives)))
        before = self.readers.decision
        await until(
            lambda: self.readers.decision > before,
            log=self.lives[-1].log_file,
            what=f"a commit after {before}",
        )

    async def kill(self, place: str, *, beside: bool) -> None:
        """Let a coordinator be killed at a place."""
        _log.info("%s, beside: %s; decision %s", place, beside, self.readers.decision)
        await self.prepare(2 if beside else 1)
        if place == AT_RANDOM:
            await asyncio.sleep(self.chance.uniform(0.0, 2.0))  # time: any moment
            self.chance.choice(self.lives).kill()
            self.at_random += 1
        elif place in DISCARD:
            await self._interfere(place)
        else:
            self.where.ticket(place).touch()
        await until(lambda: any(life.over for life in self.lives), what=f"a kill at {place}")
        for life in [each for each in self.lives if each.over]:
            await life.killed()
            self.lives.remove(life)
        self.kills["beside" if beside else "alone"] += 1

    async def _interfere(self, place: str) -> None:
        """Let another writer change a table between the composition of a commit and its publication."""
        go, hold = self.where.ticket("go"), self.where.ticket("hold")
        go.unlink(missing_ok=True)
        self.where.ticket(place).touch()
        hold.touch()
        await until(lambda: not hold.exists(), what="a publication that is held up")
        await asyncio.to_thread(self._append, self.chance.choice([*SCHEMAS]))
        go.touch()

    def _append(self, table: str) -> None:
        """Append a row without a price."""
        number = -1 - len(self.foreign[table])
        columns = {name: [0] for name in SCHEMAS[table].names}
        with closing(self.where.catalog()) as catalog:
            opened = catalog.load_table(self.where.named(table))
            opened.append(pa.table({**columns, "id": [number]}, schema=SCHEMAS[table]))
        self.foreign[table].append(number)

    async def freeze(self, point: Failpoint) -> None:
        """Let the owner stand still, another one take over and commit, and the owner wake up."""
        await self.prepare(2)
        _log.info("frozen at %s", point)
        self.where.ticket(f"stop-{point}").touch()
        await until(lambda: any(stopped(life.pid) for life in self.lives), what=f"a halt at {point}")
        await self.progress()
        for life in self.lives:
            life.send(signal.SIGCONT)
        await self.progress()
        self.frozen[point] += 1


class Work(threading.Thread):
    """Something that runs until an event, in a thread that no failure waits for."""

    def __init__(self, work: Callable[[threading.Event], None], over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._work, self._over = work, over
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._work(self._over)
        except BaseException as error:
            traceback.print_exc()
            self.error = error


async def end(works: Sequence[Work], over: threading.Event) -> None:
    """Wait until threads have come to their end. Raises the error of one."""
    over.set()
    await until(lambda: not any(each.is_alive() for each in works), what="the end of writers and readers")
    for each in works:
        if each.error is not None:
            raise each.error


async def attack(
    where: Together,
    at_one_commit: Callable[..., Mapping[str, Any]],
    chance: Random,
    is_over: Callable[[], bool] = lambda: False,
) -> tuple[Coordinators, dict[str, Tally]]:
    """Kill coordinators at each place once, with writers and readers meanwhile, and judge the tables.

    `is_over`: no further one is killed. Raises Inexact for a read or a table that is not what was promised.
    """
    await where.prepare()
    readers = Readers(where, at_one_commit, chance)
    regions = [Region(where, name, Random(chance.random())) for name in REGIONS]
    found = Coordinators(where, readers, regions, chance)
    writing, reading = threading.Event(), threading.Event()
    writers = [Work(each.write, writing) for each in regions]
    others = [Work(partial(readers.read, kind), reading) for kind in KINDS]
    try:
        with ExitStack() as stack:
            for each in (*writers, *others):
                each.start()
                stack.enter_context(watched(each))
            await found.pass_all(is_over)
        await found.prepare(1)
        await end(writers, writing)
        await end(others, reading)
    finally:
        writing.set()
        reading.set()
        for life in found.lives:
            life.end()
    tallies = await asyncio.to_thread(judge, where, regions, found.foreign)
    if readers.said or not all(each.exact for each in tallies.values()):
        raise Inexact(f"{where.folder}: {readers.said[:3]} {tallies}")
    return found, tallies


# --- the judge ----------------------------------------------------------------------------------------


def judge(
    where: Together, regions: Sequence[Region], foreign: Mapping[str, Sequence[int]]
) -> dict[str, Tally]:
    """Compare the rows of each table with those that the regions have completed; DuckDB reads them.

    Raises Inexact if the decisions of the tables do not fit together.
    """
    found, decisions = {}, {}
    for name, place in where.pointers().items():
        metadata = json.loads(local(place).read_bytes())
        ours = sorted(metadata["snapshots"], key=lambda each: int(each["sequence-number"]))
        summaries = [each["summary"] for each in ours]
        decisions[name] = [
            int(each["sluicegate.decision"]) for each in summaries if each.get("sluicegate.user") == USER
        ]
        rows = duck().table_function("iceberg_scan", [str(local(place))]).project("id").fetchall()
        wanted = [each for region in regions for each in region.ids[name]] + [*foreign[name]]
        found[name] = tally_of([number for (number,) in rows], wanted, USER, decisions[name], len(summaries))
    anchor = decisions[ANCHOR]
    if anchor != [*range(1, len(anchor) + 1)]:
        raise Inexact(f"{where.folder}: decisions of the anchor: {anchor}")
    for name in FURTHER:
        if alone := {*decisions[name]} - {*anchor}:
            raise Inexact(f"{where.folder}: decisions of {name} that the anchor lacks: {sorted(alone)}")
    return found


def killed(where: Together, at_random: int) -> Counter[str]:
    """Return how often a coordinator was killed at each place."""
    assert where.hits is not None
    found = read_actions(str(where.hits), "kill")
    if at_random:
        found[AT_RANDOM] = at_random
    return found
