"""A sample of the fault campaign with Delta and Iceberg tables, which DuckDB's reader judges in the end."""

from functools import partial
from typing import cast

import pytest

from sluicegate.failpoints.names import Failpoint
from tests.faults.feeds import Feed
from tests.faults.outages import lake_fails
from tests.faults.rolling import Plan, conclude, roll
from tests.faults.scenes import Maker, frozen, reached, reverted
from tests.faults.tables import kind_of

pytestmark = [pytest.mark.kafka, pytest.mark.redis]


@pytest.fixture(params=["delta", "iceberg"])
def make_lake(request: pytest.FixtureRequest, make: Maker) -> Maker:
    """Deployments whose tables are of one format."""
    return cast(Maker, partial(make, lake=request.param))


async def test_killed_at_one_place_after_the_other_the_table_is_exact(make_lake: Maker) -> None:
    where = await make_lake()
    plans = [
        Plan(Failpoint.CHECK_FILES_AFTER),
        Plan(Failpoint.APPEND_DECISION_AFTER),
        Plan(Failpoint.ASK_AFTER),
        Plan(Failpoint.LAKE_PUT_BEFORE),
        Plan(Failpoint.LAKE_PUT_AFTER),
        Plan(Failpoint.LAKE_PUT_DURABLE, 2),
        Plan(Failpoint.PUBLISH_AFTER),
        Plan(Failpoint.APPEND_COMMITTED_BEFORE),
        Plan(Failpoint.WRITE_RECORD_AFTER),
    ]
    assert await roll(where, plans) == []


async def test_an_owner_that_was_frozen_before_its_publication_does_no_harm(make_lake: Maker) -> None:
    await frozen(make_lake, [Failpoint.LAKE_PUT_BEFORE])


async def test_a_decision_is_reverted_whatever_is_killed_meanwhile(make_lake: Maker) -> None:
    assert await reverted(make_lake) == 4


async def test_steps_that_fail_or_succeed_unnoticed_are_repeated(make_lake: Maker) -> None:
    await lake_fails(make_lake)


async def test_another_writer_is_first_and_the_coordinator_is_killed_then(make_lake: Maker) -> None:
    where = await make_lake()
    table = where.tables["flights"]
    async with Feed(where) as feed:
        for number, point in enumerate((Failpoint.PUBLISH_AFTER, Failpoint.LAKE_PUT_AFTER)):
            go = where.folder / f"go-{number}"
            life = where.start(f"lake.put.before=hang:{go}@1;{Plan(point).rule}")
            await feed.batch()
            await reached(where, Failpoint.LAKE_PUT_BEFORE, 1, life)
            feed.foreign.append(-1 - number)
            kind_of(table).append(table, [-1 - number])
            go.touch()
            await life.killed()
        await feed.batch()
        found = await conclude(where, [feed])
    assert found.others == 2
