"""Servers that are killed, wiped and slow, a lake that fails, and partitions that move."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Final
from urllib.parse import urlsplit

from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from tests.faults.feeds import Feed
from tests.faults.lives import Deployment
from tests.faults.proxies import slow_proxy
from tests.faults.rolling import exact
from tests.faults.scenes import Maker

STREAMS: Final = tuple(f"s{number:02d}" for number in range(20))


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


LAKE_TROUBLES: Final = (
    "lake.manifest-written=fail@2",
    "lake.manifests-durable=fail@2",
    "lake.manifests-durable=delay:1500@4",
    "lake.put.before=fail@3",
    "lake.put.before=delay:1500@5",
    "lake.put.after=fail@2",
    "lake.put.after=delay:1500@4",
    "lake.put-durable=fail@3",
    "lake.hint.before=fail@2",
    "publish.before=fail@3",
    "publish.after=fail@5",
    "ask.after=fail@6",
    "check-files.before=fail@4",
    "append-decision.before=fail@3",
    "append-decision.after=fail@4",
    "append-committed.before=fail@3",
    "append-committed.after=fail@4",
    "write-record.after=fail@3",
    "announce.before=fail@3",
    "announce.after=fail@4",
)


async def lake_fails(make: Maker) -> int:
    """Steps of a commit fail, hang, and fail after they have succeeded, in a coordinator that lives on."""
    where: Deployment = await make()
    async with Feed(where) as feed:
        life = where.start(";".join(LAKE_TROUBLES))
        for _ in range(8):
            await feed.batch()
            await exact(where, [feed], life)
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
