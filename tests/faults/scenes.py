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
from tests.faults.tables import Inexact
from tests.integration.waiting import until

Maker = Callable[..., Awaitable[Deployment]]
"""Makes a deployment of its own, with its topics; takes the fields that are to differ."""


async def killed(life: Life) -> int:
    """Wait until a life was killed; return 1, the number of kills."""
    await life.killed()
    return 1


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
            kills += await killed(where.start(Plan(point).rule))
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
            kills += await killed(life)
        await feed.batch()
        await conclude(where, [feed])
    return kills


async def frozen(make: Maker, points: Sequence[Failpoint]) -> int:
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
