"""Scenes that lead to the places which an ordinary commit does not pass, with a kill at each of them.

Every scene ends with an exact table, and returns how many processes it has killed.
"""

import signal
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from sluicegate.events.envelope import EventType
from sluicegate.events.models import StreamCommand
from sluicegate.failpoints.names import Failpoint
from tests.faults.feeds import Feed
from tests.faults.foreign import append_elsewhere
from tests.faults.lives import Deployment, Life, stopped
from tests.faults.rolling import Plan, conclude, exact
from tests.faults.tables import Inexact, head, rows_told
from tests.integration.job import read_ids
from tests.integration.waiting import until

Maker = Callable[..., Awaitable[Deployment]]
"""Makes a deployment of its own, with its topics; takes the fields that are to differ."""
Scene = Callable[[Maker], Awaitable[int]]
PARTIAL: Final = {"partial": "allow", "alignment_timeout": "300ms", "max_consecutive_fallbacks": 1}
"""A region that stays behind once forces the next cut to be full; that is abandoned soon."""


async def _killed(life: Life) -> int:
    await life.killed()
    return 1


async def _fed_until_killed(feed: Feed, life: Life) -> bool:
    await feed.batch()
    return await life.killed_meanwhile(1.0)


async def abandoned(make: Maker) -> int:
    """A forced cut is given up; killed before and behind the event that says so."""
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


async def reverted(make: Maker) -> int:
    """A decision that nobody can publish is given up; killed before and after the event that records it."""
    where = await make()
    async with Feed(where) as feed:
        life = where.start()
        await feed.batch()
        await exact(where, [feed], life)
        life.kill()
        life = where.start("publish.before=fail")
        held_out = await feed.batch()
        await reached(where, Failpoint.PUBLISH_BEFORE, 1, life)
        life.kill()
        order = StreamCommand(command="revert", decision=2, region="r1")
        await feed.job.send(EventType.STREAM_COMMAND, order)
        kills = 2
        for point in (Failpoint.APPEND_REVERTED_BEFORE, Failpoint.APPEND_REVERTED_AFTER):
            kills += await _killed(where.start(Plan(point).rule))
        life = where.start()
        try:
            answer = await feed.job.begin("q2")
            if not answer.accepted:
                raise Inexact(answer.reason)
            await feed.again(held_out)
            await exact(where, [feed], life)
        finally:
            life.end()
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
            kills += await _killed(where.start(Plan(point).rule))
        await feed.batch()
        await conclude(where, [feed])
    return kills


async def revoked(make: Maker) -> int:
    """A second member joins; the owner is killed before and behind it gives its partitions up."""
    where = await make()
    kills = 0
    async with Feed(where) as feed:
        for point in (Failpoint.REVOKED_BEFORE, Failpoint.REVOKED_AFTER):
            # The first time is the owner's own joining, when there is nothing to give up.
            owner = where.start(Plan(point, 2).rule)
            await feed.batch()
            await exact(where, [feed], owner)
            other = where.start()
            kills += await _killed(owner)
            await feed.batch()
            await exact(where, [feed], other)
            other.end()
        await conclude(where, [feed])
    return kills


async def last_record(make: Maker) -> int:
    """Killed before and behind the record that a graceful stop leaves."""
    where = await make()
    kills = 0
    async with Feed(where) as feed:
        for point in (Failpoint.LAST_RECORD_BEFORE, Failpoint.LAST_RECORD_AFTER):
            life = where.start(Plan(point).rule)
            await feed.batch()
            await exact(where, [feed], life)
            life.send(signal.SIGTERM)
            kills += await _killed(life)
            await feed.batch()
        await conclude(where, [feed])
    return kills


_CLEAN_UP: Final = (Failpoint.LAKE_DISCARD_BEFORE, Failpoint.LAKE_DISCARD_AFTER)


async def conflict(make: Maker) -> int:
    """Another writer is first; killed before and behind the clean-up of what was written in vain.

    A format without a clean-up is killed around the next try of the publication.
    """
    where = await make()
    cleaned = Failpoint.LAKE_DISCARD_BEFORE not in where.lacking
    points = _CLEAN_UP if cleaned else (Failpoint.PUBLISH_AFTER, Failpoint.LAKE_PUT_AFTER)
    table = where.tables["flights"]
    kills = 0
    async with Feed(where) as feed:
        for number, point in enumerate(points):
            go = where.folder / f"go-{number}"
            life = where.start(f"lake.put.before=hang:{go}@1;{Plan(point).rule}")
            await feed.batch()
            await reached(where, Failpoint.LAKE_PUT_BEFORE, 1, life)
            foreign = -1 - number
            await append_elsewhere(table, [foreign])
            feed.foreign.append(foreign)
            go.touch()
            kills += await _killed(life)
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
            kills += await _killed(life)
        life = where.start()
        await feed.batch()
        await until(lambda: len(read_ids(str(table))) == len(feed.ids))
        life.end()
    if read_ids(str(table)) != sorted(feed.ids):
        raise Inexact(f"{table}: not the ids that were written")
    return kills


FREEZES: Final = (Failpoint.PUBLISH_BEFORE, Failpoint.LAKE_PUT_BEFORE, Failpoint.ASK_AFTER)


async def frozen(make: Maker, points: Sequence[Failpoint] = FREEZES) -> int:
    """The owner is frozen between asking and publishing, another takes over, and the owner wakes up."""
    where = await make(session=1.5)
    async with Feed(where) as feed:
        for point in points:
            ticket = where.folder / f"ticket-{point}"
            owner = where.start(f"{point}=stop?{ticket}")
            await feed.batch()
            await exact(where, [feed], owner)
            ticket.touch()
            await feed.batch()
            await until(partial(stopped, owner.pid))
            successor = where.start()
            await exact(where, [feed], successor)
            await feed.batch()
            await exact(where, [feed], successor)
            owner.send(signal.SIGCONT)
            await feed.batch()
            # What the owner had begun comes to its end in this time; it must not do anything.
            await reached(where, Failpoint.ASSIGNED, 2, owner)
            await exact(where, [feed], successor)
            owner.end()
            successor.end()
        await conclude(where, [feed])
    return 0


async def reached(where: Deployment, point: Failpoint, times: int, life: Life) -> None:
    """Wait until a life has got to a place so many times."""
    mark = f"{life.pid} {point} {times} "
    await until(lambda: mark in where.noted(), by=life, log=life.log_file, what=mark)


SCENES: Final[dict[str, Scene]] = {
    "abandoned": abandoned,
    "reverted": reverted,
    "silent": silent,
    "revoked": revoked,
    "last record": last_record,
    "conflict": conflict,
    "withdrawn": withdrawn,
    "frozen": frozen,
}
OF_PAIMON: Final = ("withdrawn",)
"""Scenes of places that only this format has."""
