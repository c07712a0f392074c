"""Scenes of the fault campaign: places that an ordinary commit does not pass, and servers that fail.

Every scene ends with an exact table, and returns how many processes it has killed. `tests/faults` has those
that the tests run, too.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import urlsplit

from sluicegate.cli.local.servers import EmbeddedHdfs, EmbeddedKafka, EmbeddedValkey
from sluicegate.failpoints.names import Failpoint
from tests.faults.feeds import Feed
from tests.faults.lives import Deployment, Life, joined
from tests.faults.rolling import PUBLISH, Plan, conclude, exact
from tests.faults.scenes import Maker, conflict, frozen, killed, reached, reverted
from tests.faults.tables import Inexact, head, rows_told
from tests.integration.job import read_ids
from tests.integration.waiting import until

Scene = Callable[[Maker], Awaitable[int]]
PARTIAL: Final = {"partial": "allow", "alignment_timeout": "300ms", "max_consecutive_fallbacks": 1}
"""A region that stays behind once forces the next cut to be full; that is abandoned soon."""
STREAMS: Final = tuple(f"s{number:02d}" for number in range(20))


async def _fed_until_killed(feed: Feed, life: Life) -> bool:
    await feed.batch()
    return await life.killed_meanwhile(1.0)


async def abandoned(make: Maker) -> int:
    """A forced cut is given up; killed before and after the event that says so."""
    where = await make(policy=PARTIAL)
    regions = ("r1", "r2")
    async with (
        Feed(where, regions=regions) as busy,
        Feed(where, region="r2", regions=regions, first=1_000_000) as silent,
    ):
        life = where.start()
        # The first cut of an assignment is full.
        await silent.batch()
        await busy.batch()
        await exact(where, [busy, silent], life)
        life.kill()
        kills = 1
        for point in (Failpoint.APPEND_ABANDONED_BEFORE, Failpoint.APPEND_ABANDONED_AFTER):
            life = where.start(Plan(point).rule)
            # The next cut falls back without the silent region; the one after it is forced, and waits.
            await until(partial(_fed_until_killed, busy, life), log=life.log_file, what=point)
            kills += 1
        await silent.batch()
        await busy.batch()
        await conclude(where, [busy, silent])
    return kills


async def silent(make: Maker) -> int:
    """An idle region misses its heartbeats; killed before and after the event that calls it not idle."""
    where = await make()
    kills = 0
    async with Feed(where) as feed:
        life = where.start()
        await feed.batch()
        await exact(where, [feed], life)
        await feed.job.heartbeat(idle=True, interval=1)
        life.kill()
        kills += 1
        for point in (Failpoint.APPEND_HEARTBEAT_BEFORE, Failpoint.APPEND_HEARTBEAT_AFTER):
            kills += await killed(where.start(Plan(point).rule))
        await feed.batch()
        await conclude(where, [feed])
    return kills


async def revoked(make: Maker) -> int:
    """A second member joins; the owner is killed before and after it gives its partitions up."""
    where = await make()
    kills = 0
    async with Feed(where) as feed:
        for point in (Failpoint.REVOKED_BEFORE, Failpoint.REVOKED_AFTER):
            # The first time is the owner's own joining, when there is nothing to give up.
            owner = where.start(Plan(point, 2).rule)
            await feed.batch()
            await exact(where, [feed], owner)
            other = where.start()
            kills += await killed(owner)
            await feed.batch()
            await exact(where, [feed], other)
            other.end()
        await conclude(where, [feed])
    return kills


async def last_record(make: Maker) -> int:
    """Killed before and after the record that a graceful stop leaves."""
    where = await make()
    kills = 0
    async with Feed(where) as feed:
        for point in (Failpoint.LAST_RECORD_BEFORE, Failpoint.LAST_RECORD_AFTER):
            life = where.start(Plan(point).rule)
            await feed.batch()
            await exact(where, [feed], life)
            life.send(signal.SIGTERM)
            kills += await killed(life)
            await feed.batch()
        await conclude(where, [feed])
    return kills


async def withdrawn(make: Maker) -> int:
    """Frozen before the link until the history there has expired; killed around taking the stray back."""
    where = await make()
    table = where.tables["flights"]
    kills = 1
    async with Feed(where) as feed:
        life = where.start()
        await feed.batch()
        await exact(where, [feed], life)
        life.kill()
        for number, point in enumerate((Failpoint.PAIMON_WITHDRAW_BEFORE, Failpoint.PAIMON_WITHDRAW_AFTER)):
            go = where.folder / f"go-{number}"
            life = where.start(f"lake.put.before=hang:{go}@1;{Plan(point).rule}")
            await feed.batch()
            await reached(where, Failpoint.LAKE_PUT_BEFORE, 1, life)
            # Another coordinator takes over meanwhile, commits, and the table expires all but the newest.
            life.send(signal.SIGSTOP)
            other = where.start()
            await feed.batch()
            await until(lambda: rows_told(table) == len(feed.ids))
            await feed.batch()
            await until(lambda: rows_told(table) == len(feed.ids))
            other.end()
            for path in (table / "snapshot").glob("snapshot-*"):
                if int(path.name.removeprefix("snapshot-")) < head(table):
                    path.unlink()
            go.touch()
            life.send(signal.SIGCONT)
            kills += await killed(life)
        life = where.start()
        await feed.batch()
        await until(lambda: len(read_ids(str(table))) == len(feed.ids))
        life.end()
    if read_ids(str(table)) != sorted(feed.ids):
        raise Inexact(f"{table}: not the ids that were written")
    return kills


FREEZES: Final = (Failpoint.PUBLISH_BEFORE, Failpoint.LAKE_PUT_BEFORE, Failpoint.ASK_AFTER)
SCENES: Final[dict[str, Scene]] = {
    "abandoned": abandoned,
    "reverted": reverted,
    "silent": silent,
    "revoked": revoked,
    "last record": last_record,
    "conflict": conflict,
    "withdrawn": withdrawn,
    "frozen": partial(frozen, points=FREEZES),
}
OF_PAIMON: Final = ("withdrawn",)
"""Scenes of places that only this format has."""


async def broker_killed(make: Maker, kafka: EmbeddedKafka, rounds: int) -> int:
    """The broker is killed under load and started again; coordinator and writers live through it."""
    where: Deployment = await make()
    async with Feed(where) as feed:
        life = where.start()
        for _ in range(rounds):
            await feed.batch()
            await exact(where, [feed], life)
            # In the middle of a commit, as far as one batch makes that likely.
            await feed.batch()
            kafka.kill()
            await asyncio.to_thread(kafka.start)
            await feed.batch()
        await exact(where, [feed], life)
        life.end()
    return rounds


def _is_gone(path: Path) -> bool:
    return not path.exists()


async def cluster_killed(make: Maker, cluster: EmbeddedHdfs, rounds: int, random: Random) -> Counter[str]:
    """Kill the NameNode and its data nodes at places of commits, and start them again; return the kills.

    The cluster is dead before the coordinator continues, or dies at any moment of the next steps. In every
    third round the coordinator is killed with it.
    """
    where: Deployment = await make()
    done: Counter[str] = Counter()
    places = random.choices([point for point in PUBLISH if point not in where.lacking], k=rounds)
    halts = [(where.folder / f"halt-{number}", where.folder / f"go-{number}") for number in range(rounds)]
    rules = joined(
        [f"{point}=hang:{go}?{halt}" for point, (halt, go) in zip(places, halts, strict=True)],
    )
    async with Feed(where) as feed:
        life = where.start(rules)
        for number, (halt, go) in enumerate(halts):
            await feed.batch()
            halt.touch()
            await feed.batch()
            await until(partial(_is_gone, halt), by=life, log=life.log_file, what=places[number])
            if number % 2:
                go.touch()
                await asyncio.sleep(random.uniform(0.0, 0.05))  # time: any moment of the commit
            cluster.kill()
            go.touch()
            done["NameNode"] += 1
            if number % 3 == 2:
                life.kill()
                done["coordinator"] += 1
                life = where.start(rules)
            # Its writers meet the dead cluster, too.
            batch = asyncio.create_task(feed.batch())
            await asyncio.to_thread(cluster.start)
            await batch
            await exact(where, [feed], life)
        life.end()
    return done


async def redis_killed(make: Maker, valkey: EmbeddedValkey, rounds: int) -> int:
    """The state store is killed, which wipes it, and comes back; commits never wait for it."""
    where: Deployment = await make()
    async with Feed(where) as feed:
        life = where.start()
        for _ in range(rounds):
            await feed.batch()
            valkey.kill()
            await feed.batch()
            await exact(where, [feed], life)
            await asyncio.to_thread(valkey.start)
            await feed.batch()
            await exact(where, [feed], life)
        life.end()
    return rounds


@dataclass
class Slowness:
    """Seconds that each piece of data waits, in both directions; may be changed at any time."""

    port: int
    seconds: float = 0.0


@asynccontextmanager
async def slow_proxy(host: str, port: int) -> AsyncIterator[Slowness]:
    """Forward connections to a server; gives the proxy's own port, and the way to slow it down."""
    tasks: set[asyncio.Task[None]] = set()
    slowness = Slowness(0)

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                await asyncio.sleep(slowness.seconds)  # time: the fault itself
                target.write(data)
                await target.drain()
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        for each in (pump(reader, back), pump(there, writer)):
            task = asyncio.create_task(each)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    slowness.port = server.sockets[0].getsockname()[1]
    try:
        yield slowness
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def redis_slow(make: Maker) -> int:
    """The state store answers after three seconds; commits do not wait for it."""
    where: Deployment = await make()
    found = urlsplit(where.redis or "")
    async with slow_proxy(found.hostname or "", found.port or 0) as slowness, Feed(where) as feed:
        where.redis = f"redis://127.0.0.1:{slowness.port}/0"
        life = where.start()
        await feed.batch()
        await exact(where, [feed], life)
        slowness.seconds = 3.0
        for _ in range(5):
            await feed.batch()
            await exact(where, [feed], life)
        slowness.seconds = 0.0
        life.end()
    return 0


async def partitions_move(make: Maker, rounds: int, random: Random) -> int:
    """Twenty streams, and members of the group that join, leave, freeze and are killed."""
    where: Deployment = await make(streams=STREAMS, session=2.0)
    kills = 0
    async with AsyncExitStack() as stack:
        feeds = [await stack.enter_async_context(Feed(where, stream=name)) for name in STREAMS]
        lives = [where.start()]
        for turn in range(rounds):
            lives.append(where.start())
            await _batches(feeds, 2)
            leaver = lives.pop(random.randrange(len(lives)))
            if turn % 2:
                leaver.kill()
                kills += 1
            else:
                leaver.end()
            await _batches(feeds, 1)
        for feed in feeds:
            await exact(where, [feed], lives[0])
        for life in lives:
            life.end()
    return kills


async def _batches(feeds: Sequence[Feed], count: int) -> None:
    for _ in range(count):
        for feed in feeds:
            await feed.batch(tasks=1)
        await asyncio.sleep(0.3)  # time: members join and leave between batches; nothing is asserted
