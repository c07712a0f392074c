"""Time without commits after the death of a coordinator.

    python -m tools.bench.recovery [--rounds 20] [--takeovers 5] [--session 10]
        [--rebalance-delay 3000] [--json]

Kafka and the coordinators are processes of their own, with the session timeout that is the default of the
settings. A restart: the coordinator has committed, is killed with SIGKILL and started again at once, while a
batch is published. The figure is the time from the kill until that batch is in the newest snapshot.

A takeover: a second coordinator stands by; the owner is frozen (SIGSTOP, as the group does not notice that)
until the batch is in the table; then it is woken up. In the end the table must be exact. The broker waits
`--rebalance-delay` milliseconds with the first rebalance of an empty group, as brokers do by default (3000).
"""

import argparse
import asyncio
import json
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from sluicegate.cli.local.servers import EmbeddedKafka
from tests.faults.feeds import Feed
from tests.faults.lives import Deployment, Life
from tests.faults.tables import head, tally

PATIENCE = 60.0


async def _batch_visible(feed: Feed, table: Path) -> None:
    """Publish a batch and wait until a snapshot follows the one that was newest."""
    before = head(table)
    await feed.batch()
    deadline = time.monotonic() + PATIENCE
    while head(table) == before:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no commit in {table}")
        await asyncio.sleep(0.005)


async def restarts(where: Deployment, rounds: int) -> list[float]:
    """Seconds from SIGKILL, with an immediate restart, to the next commit."""
    table = where.tables["flights"]
    seconds: list[float] = []
    async with Feed(where) as feed:
        life = where.start()
        await _batch_visible(feed, table)
        for _ in range(rounds):
            # What follows a commit is over, so that the kill finds a coordinator at rest, as most kills do.
            await asyncio.sleep(0.5)
            killed = time.monotonic()
            life.kill()
            life = where.start()
            await _batch_visible(feed, table)
            seconds.append(time.monotonic() - killed)
        life.end()
        _judge(where, feed)
    return seconds


async def takeovers(where: Deployment, rounds: int) -> list[float]:
    """Seconds from the owner's last sign of life to the standby's first commit."""
    table = where.tables["flights"]
    seconds: list[float] = []
    async with Feed(where) as feed:
        owner = where.start()
        await _batch_visible(feed, table)
        for _ in range(rounds):
            standby = where.start()
            await _settled(standby)
            await _batch_visible(feed, table)
            owner = await _take_over(feed, table, owner, standby, seconds)
        owner.end()
        _judge(where, feed)
    return seconds


async def _take_over(feed: Feed, table: Path, first: Life, second: Life, seconds: list[float]) -> Life:
    """Freeze whichever owns the stream; returns the one that has it then."""
    owner, other = (first, second) if await _owns(first) else (second, first)
    frozen = time.monotonic()
    owner.send(signal.SIGSTOP)
    await _batch_visible(feed, table)
    seconds.append(time.monotonic() - frozen)
    owner.send(signal.SIGCONT)
    await _batch_visible(feed, table)
    owner.end()
    await _batch_visible(feed, table)
    return other


async def _settled(life: Life) -> None:
    deadline = time.monotonic() + PATIENCE
    while (await _status(life)) is None or not (await _status(life) or {}).get("epoch"):
        if time.monotonic() > deadline:
            raise TimeoutError(life.tail())
        await asyncio.sleep(0.1)


async def _owns(life: Life) -> bool:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        status = await _status(life)
        if status is not None:
            return "flights" in status["streams"]
        await asyncio.sleep(0.1)
    raise TimeoutError(life.tail())


async def _status(life: Life) -> dict[str, Any] | None:
    found: dict[str, Any] | None = await life.get("/status")
    return found


def _judge(where: Deployment, feed: Feed) -> None:
    found = tally(where.tables["flights"], feed.ids, where.user("flights"))
    if not found.exact:
        raise SystemExit(f"the table is not exact: {found}")


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    delay = {"group.initial.rebalance.delay.ms": str(options.rebalance_delay)}
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(settings=delay) as kafka:
        root = Path(name)
        found: dict[str, Any] = {"session": options.session, "rebalance_delay_ms": options.rebalance_delay}
        if options.rounds:
            where = Deployment(kafka.bootstrap, root, session=options.session)
            await where.prepare()
            found["restart"] = _summary(await restarts(where, options.rounds))
        if options.takeovers:
            where = Deployment(kafka.bootstrap, root, session=options.session)
            await where.prepare()
            found["takeover"] = _summary(await takeovers(where, options.takeovers))
    return found


def _summary(seconds: list[float]) -> dict[str, Any]:
    return {
        "rounds": len(seconds),
        "median_s": round(statistics.median(seconds), 2),
        "worst_s": round(max(seconds), 2),
        "all_s": [round(each, 2) for each in seconds],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--takeovers", type=int, default=5)
    parser.add_argument("--session", type=float, default=10.0)
    parser.add_argument("--rebalance-delay", type=int, default=3000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(measure(options))
    if not options.json:
        for name, value in found.items():
            print(f"{name}: {value}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
