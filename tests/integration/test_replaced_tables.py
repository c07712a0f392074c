"""A table that is dropped and made again under its name, on real Paimon and Kafka."""

import os
import shutil
from pathlib import Path

import pytest

from sluicegate.coordinator.telemetry.messages import format_problem
from sluicegate.events.envelope import EventType
from sluicegate.events.problems import Code
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import create_table, read_events, read_ids
from tests.integration.letters import stalled, stalls
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def decisions(place: Place) -> int:
    """The number of decisions in the log."""
    log = await read_events(place.bootstrap, place.topics.events)
    return sum(event.envelope.type is EventType.CUT_DECIDED for event in log)


def put_back(table: Path, away: Path) -> None:
    """Put the old table in the place of the new one, with the data files that were written meanwhile."""
    for written in table.glob("bucket-*/*"):
        target = away / written.relative_to(table)
        target.parent.mkdir(exist_ok=True)
        os.rename(written, target)
    shutil.rmtree(table)
    os.rename(away, table)


async def test_nothing_is_decided_for_a_replaced_table_until_the_former_one_is_back(
    place: Place, impatient: None
) -> None:
    table, away = Path(place.table), place.root / "away"
    async with place.job() as job, running(place.settings()) as service:
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
        os.rename(table, away)
        assert create_table(place.root) == place.table
        await job.run_batch([2])
        problems = await until(lambda: stalls(job))
        assert [each.code for each in problems] == [Code.TABLE_REPLACED]
        assert stalled(service) == Code.TABLE_REPLACED
        assert await decisions(place) == 1
        assert read_ids(place.table) == []
        put_back(table, away)
        await job.committed([1, 2])
        assert await decisions(place) == 2


async def test_a_table_that_was_made_again_before_the_first_commit_needs_a_new_stream(
    place: Place, impatient: None
) -> None:
    """Pending files may be of the former table, whose columns had other ids."""
    table = Path(place.table)
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
        shutil.rmtree(table)
        assert create_table(place.root) == place.table
        async with running(place.settings()) as service:
            await job.run_batch([1])
            problems = await until(lambda: stalls(job))
            assert [each.code for each in problems] == [Code.TABLE_REPLACED]
            assert stalled(service) == Code.TABLE_REPLACED
            assert "If nothing is committed yet, begin with a new stream" in format_problem(
                problems[0], "flights"
            )
    assert read_ids(place.table) == []
    async with place.job("again") as job, running(place.settings("again")):
        await job.register()
        await job.run_batch([1])
        await job.committed([1])
