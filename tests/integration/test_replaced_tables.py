"""A table that is dropped and made again under its name, on real Paimon and Kafka."""

import os
import shutil
from pathlib import Path

import pytest

from sluicegate.events.envelope import EventType
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import create_table, read_ids, read_topic
from tests.integration.letters import stalls
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def decisions(place: Place) -> int:
    """The number of decisions in the log."""
    log = await read_topic(place.bootstrap, place.topics.events)
    return sum(event.envelope.type is EventType.CUT_DECIDED for event in log)


def put_back(table: Path, away: Path) -> None:
    """Put the old table in the place of the new one, with the data files that were written meanwhile."""
    for written in table.glob("bucket-*/*"):
        target = away / written.relative_to(table)
        target.parent.mkdir(exist_ok=True)
        os.rename(written, target)
    shutil.rmtree(table)
    os.rename(away, table)


async def test_no_decision_is_taken_against_it_and_the_old_one_is_gone_on_with(
    place: Place, impatient: None
) -> None:
    table, away = Path(place.table), place.root / "away"
    async with place.job() as job, running(place.settings()) as service:
        await job.open()
        await job.run_batch([1])
        await job.committed([1])
        os.rename(table, away)
        assert create_table(place.root) == place.table
        await job.run_batch([2])
        reasons = await until(lambda: stalls(job))
        assert len(reasons) == 1
        assert reasons[0].startswith("the table was replaced: it is ")
        assert "Put the old table back" in reasons[0]
        assert "sluicegate replay --stream flights --into TABLE" in reasons[0]
        assert service.status()["streams"]["flights"]["stalled"] == reasons[0]
        assert await decisions(place) == 1
        assert read_ids(place.table) == []
        put_back(table, away)
        await job.committed([1, 2])
        assert await decisions(place) == 2
