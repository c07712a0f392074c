"""A stream whose table Paimon's own compaction rewrites all the time, while its coordinator is killed."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

from sluicegate.cli.local.process import free_port
from sluicegate.failpoints.names import Failpoint
from tests.faults.compactor import Compactor
from tests.faults.feeds import Feed
from tests.faults.lives import COMMAND, Deployment
from tests.faults.rolling import PUBLISH, Plan, conclude, strike
from tests.faults.scenes import Maker
from tests.faults.tables import Inexact, tally

EAGER: Final = {"compaction.min.file-num": "2"}
"""Two small files are enough for the library to replace them."""
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "unaware": EAGER,
    "fixed": {**EAGER, "bucket": "1", "bucket-key": "id"},
}
"""Options of the tables that are compacted."""
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


def verify(where: Deployment) -> None:
    """Ask the command whether the table differs from the log. Raises Inexact if so."""
    config = where.write_settings(0, free_port())
    command = [*COMMAND, "replay", "verify", "--config", str(config), "--stream", "flights"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=where.folder, check=False)
    if done.returncode:
        raise Inexact(f"replay verify ended with {done.returncode}: {done.stdout}{done.stderr}")
