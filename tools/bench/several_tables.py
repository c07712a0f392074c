"""Time from the last event of a checkpoint to its visible decision, by the number of tables in it.

    python -m tools.bench.several_tables [--rounds 30] [--json]

One catalog in SQLite has all tables. Each of four coordinators, a process of its own, has a stream of 1, 2,
10 or 100 tables, and the decisions of a stream touch all of them. Of the last stream, further decisions touch
the anchor alone, and one further table alone. Each round makes a decision of each kind, so that a load of the
machine meets all alike. A checkpoint has one event of one file for each touched table. All but the last are
appended, and read by the coordinator. After a pause, the last event is appended, and the completion once it
is acknowledged. Time counts from before the last event is sent to the moment at which another process sees
the end of the transaction (inotify). The files are hard links of real ones.

Then another process commits to one of the ten tables five times a second, while decisions touch all ten. Time
counts there to the message of the commit in the topic of commits, with the writer and before it begins."""

import argparse
import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.envelope import EventType, with_counts
from sluicegate.events.notifications import Committed
from sluicegate.lakes.iceberg.adapter import ADAPTER
from sluicegate.lakes.port import Absent, CommitRequest, Found
from tools.bench.common import (
    Region,
    machine,
    make_topics,
    quantiles,
    read_notifications,
    report,
    wait_until_registered,
)
from tools.bench.files import Files
from tools.bench.lakes import Table, Watch, coordinator
from tools.bench.scale import wait_until_read

SIZES: Final = (1, 2, 10, 100)
FOREIGN_RATE: Final = 5.0
"""Commits a second of another writer."""
WARM_UP: Final = 5
"""Decisions of each kind that come first."""
_ROWS: Final = pa.record_batch({"id": pa.array(range(20), pa.int64()), "name": ["x" * 20] * 20})
_BESIDE: Final = 3
"""Records of a checkpoint beside its files: completion, decision and outcome."""


class Kind(NamedTuple):
    """A kind of decisions: those of one stream that touch these tables."""

    name: str
    size: int
    touched: Sequence[int]


KINDS: Final = (
    *(Kind(f"{size} touched", size, range(size)) for size in SIZES),
    Kind("100, the anchor touched", 100, [0]),
    Kind("100, another touched", 100, [1]),
)


class Stream:
    """The tables of one stream, and its writers."""

    def __init__(self, names: Sequence[str], files: Sequence[Files], region: Region, port: int) -> None:
        self._names, self._files, self._region, self._port = names, files, region, port
        self._number = 0
        self._read = 2
        """Records of the log before the next checkpoint: at first the policy and the registration."""

    async def commit(self, touched: Sequence[int], watch: Watch, pause: float) -> float:
        """Make a checkpoint, and return the milliseconds from its last event to the visible decision."""
        before = [await self._written(each) for each in touched[:-1]]
        for _, acknowledged in before:
            await acknowledged
        await wait_until_read(self._port, self._read + len(before))
        await asyncio.sleep(pause)
        start = time.time_ns()
        event, acknowledged = await self._written(touched[-1])
        await acknowledged
        await self._region.complete(self._number, [*(each for each, _ in before), event])
        visible = await asyncio.to_thread(watch.next)
        self._number += 1
        self._read += len(touched) + _BESIDE
        return (visible - start) / 1e6

    async def announced(self, rounds: int, pause: float) -> dict[str, float]:
        """Make so many checkpoints of all tables, and return quantiles of the time until their messages."""
        begun: dict[int, float] = {}
        for _ in range(rounds):
            await asyncio.sleep(pause)
            begun[self._number + 1] = time.time() * 1000
            events = [await self._written(each) for each in range(len(self._names))]
            for _, acknowledged in events:
                await acknowledged
            await self._region.complete(self._number, [each for each, _ in events])
            self._number += 1
            self._read += len(self._names) + _BESIDE
            await wait_until_read(self._port, self._read)
        ended = {
            found.body.decision: time
            async for time, found in read_notifications(self._region.bootstrap, self._region.topics)
            if isinstance(found.body, Committed)
        }
        took = [ended[number] - start for number, start in begun.items()]
        return quantiles(took)

    async def _written(self, table: int) -> "tuple[str, asyncio.Future[Any]]":
        body = next(self._files[table].events(1, self._number, 1))
        envelope = self._region.envelope(EventType.FILES_WRITTEN, self._number)
        named = with_counts(envelope._replace(table=self._names[table] if table else ""), body)
        return named.id, await self._region.send(named, body)


class Foreign:
    """Another process that commits to one table again and again, as a context."""

    def __init__(self, table: Table, rate: float) -> None:
        """`rate`: commits a second."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        options = table.options
        self._process = context.Process(
            target=_append, args=(options["uri"], options["identifier"], rate, theirs), daemon=True
        )
        self.commits = 0

    def __enter__(self) -> Self:
        self._process.start()
        self._pipe.recv()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.send(None)
        self.commits = self._pipe.recv()
        self._process.join()


def _append(uri: str, identifier: str, rate: float, pipe: Connection) -> None:
    """Commit as the only stream of another user, until a message comes; send the number of commits."""
    options, decision = {"uri": uri, "identifier": identifier}, 0
    location = urlsplit(uri).path.removesuffix("catalog.db") + identifier.replace(".", "/")
    files = Files("iceberg", location, options, _ROWS)
    with closing(ADAPTER.open_committer(ADAPTER.parse_table(location, options), "another")) as committer:
        state = committer.inspect()
        head = state.head
        pipe.send(None)
        due = time.monotonic()
        while not pipe.poll(max(0.0, due - time.monotonic())):
            due += 1 / rate
            decision += 1
            checked = committer.check([*files.events(1, decision, 1)])
            while True:
                answer = committer.ask(decision, f"digest-{decision}", state.identity, head)
                if isinstance(answer, Found):
                    head = answer.snapshot
                    break
                if not isinstance(answer, Absent):
                    raise TypeError(answer)
                committer.publish(CommitRequest(decision, f"digest-{decision}", answer.head, None, checked))
    pipe.send(decision)


@asynccontextmanager
async def stream(folder: Path, warehouse: Path, bootstrap: str, size: int) -> AsyncIterator[Stream]:
    """Run the coordinator of a stream of so many tables."""
    names = [f"of_{size}_{number}" for number in range(size)]
    tables = [Table("iceberg", warehouse / "db" / name) for name in names]
    with closing(SqlCatalog("default", uri=f"sqlite:///{warehouse / 'catalog.db'}")) as catalog:
        catalog.create_namespace_if_not_exists("db")
        for table, name in zip(tables, names, strict=True):
            catalog.create_table(f"db.{name}", _ROWS.schema, location=f"file://{table.folder}")
    files = [Files("iceberg", str(each.folder), each.options, _ROWS) for each in tables]
    topics = await make_topics(bootstrap)
    further = {name: f"db.{name}" for name in names[1:]}
    with coordinator(folder, bootstrap, topics, tables[0], size, further) as (port, _):
        async with Region(bootstrap, topics) as region:
            await region.register()
            await wait_until_registered(bootstrap, topics, region)
            yield Stream(names, files, region, port)


async def measure(folder: Path, bootstrap: str, rounds: int, pause: float) -> dict[str, Any]:
    """Make so many decisions of each kind."""
    took: dict[str, list[float]] = {kind.name: [] for kind in KINDS}
    warehouse = folder / "warehouse"
    async with AsyncExitStack() as stack:
        streams = {
            size: await stack.enter_async_context(stream(folder / str(size), warehouse, bootstrap, size))
            for size in SIZES
        }
        watch = stack.enter_context(Watch(Table("iceberg", warehouse / "db" / "of_1_0")))
        for number in range(WARM_UP + rounds):
            for kind in KINDS:
                found = await streams[kind.size].commit(kind.touched, watch, pause)
                took[kind.name] += [found] if number >= WARM_UP else []
        ten = streams[10]
        alone = await ten.announced(rounds, pause)
        begun = time.monotonic()
        with Foreign(Table("iceberg", warehouse / "db" / "of_10_5"), FOREIGN_RATE) as foreign:
            beside = await ten.announced(4 * rounds, pause)
        rate = round(foreign.commits / (time.monotonic() - begun), 1)
    times: Mapping[str, Any] = {kind: quantiles(each) for kind, each in took.items()}
    one = times[KINDS[0].name]["p50"]
    return {
        "rounds": rounds,
        "load": round(os.getloadavg()[0], 1),
        "last_event_to_visible_ms": times,
        "times_one_table": {kind: round(each["p50"] / one, 2) for kind, each in times.items()},
        "ten_tables_to_message_ms": alone,
        "beside_a_foreign_writer_ms": beside,
        "foreign_commits_a_second": rate,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30, help="decisions of each kind that count")
    parser.add_argument("--pause", type=float, default=0.3, help="seconds before each last event")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        (Path(folder) / "warehouse" / "db").mkdir(parents=True)
        for size in SIZES:
            (Path(folder) / str(size)).mkdir()
        found = asyncio.run(measure(Path(folder), kafka.bootstrap, arguments.rounds, arguments.pause))
    report({**found, **machine()}, as_json=arguments.json)


if __name__ == "__main__":
    main()
