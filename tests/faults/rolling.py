"""A stream that is committed while its coordinator is killed at one place after the other."""

import asyncio
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Final, NamedTuple

from sluicegate.failpoints.names import Failpoint
from tests.faults.feeds import Feed
from tests.faults.lives import Deployment, Life
from tests.faults.tables import Inexact, Tally, head, rows_told, tally
from tests.integration.waiting import tail, until

COMMITS: Final = 40
"""A life with so many commits does not get to its place any more: an ordinary commit passes every one."""
_BETWEEN: Final = 0.25
"""Seconds between two batches while a kill is waited for."""


class Plan(NamedTuple):
    """Kill the coordinator the `turn`-th time that it gets to a place."""

    point: Failpoint
    turn: int = 1

    @property
    def rule(self) -> str:
        return f"{self.point}=kill@{self.turn}"


# What every start passes, and every commit.
START: Final = (
    Failpoint.ASSIGNED,
    Failpoint.READ_RECORDS_BEFORE,
    Failpoint.READ_RECORDS_AFTER,
    Failpoint.TAKE_OVER_BEFORE,
    Failpoint.TAKE_OVER_AFTER,
    Failpoint.INSPECT_TABLE_BEFORE,
    Failpoint.INSPECT_TABLE_AFTER,
    Failpoint.FETCH_END_BEFORE,
    Failpoint.FETCH_END_AFTER,
    Failpoint.BATCH_BEFORE,
    Failpoint.BATCH_AFTER,
)
PUBLISH: Final = (
    Failpoint.ASK_BEFORE,
    Failpoint.ASK_AFTER,
    Failpoint.PUBLISH_BEFORE,
    Failpoint.LAKE_MANIFEST_WRITTEN,
    Failpoint.LAKE_MANIFESTS_DURABLE,
    Failpoint.LAKE_PUT_BEFORE,
    Failpoint.LAKE_PUT_AFTER,
    Failpoint.LAKE_PUT_DURABLE,
    Failpoint.LAKE_HINT_BEFORE,
    Failpoint.LAKE_HINT_AFTER,
    Failpoint.PUBLISH_AFTER,
    Failpoint.APPEND_COMMITTED_BEFORE,
    Failpoint.APPEND_COMMITTED_AFTER,
    Failpoint.WRITE_RECORD_BEFORE,
)
COMMIT: Final = (
    Failpoint.CHECK_FILES_BEFORE,
    Failpoint.CHECK_FILES_AFTER,
    Failpoint.APPEND_DECISION_BEFORE,
    Failpoint.APPEND_DECISION_AFTER,
    *PUBLISH,
    Failpoint.WRITE_RECORD_AFTER,
    Failpoint.ANNOUNCE_BEFORE,
    Failpoint.ANNOUNCE_AFTER,
    Failpoint.WRITE_VIEW_BEFORE,
    Failpoint.WRITE_VIEW_AFTER,
    Failpoint.RELEASE_OFFSETS_BEFORE,
    Failpoint.RELEASE_OFFSETS_AFTER,
)
ONCE: Final = (Failpoint.APPEND_POLICY_BEFORE, Failpoint.APPEND_POLICY_AFTER)
"""Passed in a stream's first life only."""
AGAIN: Final = (Failpoint.EVICT_BEFORE, Failpoint.EVICT_AFTER)
"""Passed after a kill only."""


async def strike(where: Deployment, feeds: Sequence[Feed], plan: Plan, troubles: str = "") -> bool:
    """Begin a life and feed it until it is killed at its place; False if it had to be killed elsewhere."""
    life = where.start(f"{plan.rule};{troubles}")
    table = where.tables[feeds[0].stream]
    last = head(table) + plan.turn + COMMITS

    async def outcome() -> str:
        for feed in feeds:
            # A life may be killed before it can answer, and the next one has to.
            if feed.registered:
                await feed.batch()
        if await life.killed_meanwhile(_BETWEEN):
            return "here"
        return "elsewhere" if head(table) > last else ""

    where_killed = await until(
        outcome, log=life.log_file, what=f"{plan.rule}, or {COMMITS} commits without it"
    )
    life.kill()
    return where_killed == "here"


async def roll(where: Deployment, plans: Sequence[Plan], chance: Random | None = None) -> list[Plan]:
    """One stream through all plans, each life right after the one before; returns what was not reached.

    With a `chance`, steps of commits fail or are held up in each life before it is killed.

    Raises Inexact if the table is not exact in the end.
    """
    missed: list[Plan] = []
    async with Feed(where) as feed:
        for plan in plans:
            if not await strike(where, [feed], plan, "" if chance is None else troubles(chance)):
                missed.append(plan)
        await conclude(where, [feed])
    return missed


def troubles(chance: Random) -> str:
    """Steps of commits that fail, also after they have succeeded, or take long."""
    points = chance.sample(COMMIT, 4)
    actions = chance.choices(("fail", "fail", "delay:300"), k=len(points))
    return ";".join(
        f"{point}={action}@{chance.randint(1, 3)}" for point, action in zip(points, actions, strict=True)
    )


async def conclude(where: Deployment, feeds: Sequence[Feed]) -> Tally:
    """A last life without failpoints brings everything into the table. Raises Inexact."""
    life = where.start()
    try:
        return await exact(where, feeds, life)
    finally:
        life.end()


async def exact(where: Deployment, feeds: Sequence[Feed], life: Life | None = None) -> Tally:
    """Wait until the table of the feeds' stream has as many rows as it must, and read it. Raises Inexact."""
    stream = feeds[0].stream
    table = where.tables[stream]
    wanted = [each for feed in feeds for each in (*feed.ids, *feed.foreign)]
    log = None if life is None else life.log_file
    await until(
        partial(rows_told, table),
        lambda rows: rows >= len(wanted),
        by=life,
        log=log,
        what=f"{len(wanted)} rows",
    )
    found = await asyncio.to_thread(tally, table, wanted, where.user(stream), compacted=where.compacted)
    if not found.exact:
        raise Inexact(f"{table}: {found}{tail(log)}")
    return found
