"""Replay, orphans and the janitor on a real log and a real table of each format."""

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluicegate.lakes.capabilities import ReadsHistory
from sluicegate.lakes.registry import adapter
from tests.faults import tables
from tests.faults.tables import FORMATS
from tests.integration.conftest import LAKES, Place, neighbour, place_of
from tests.integration.coordinator import running
from tests.integration.job import Job
from tests.integration.orders import invoke_here
from tests.integration.test_orphans import AT_ONCE, announced, commit_with_loser
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
STREAM = ("--stream", "flights")
USER = "sluicegate-flights"


@pytest.fixture(params=LAKES)
async def place(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str, tmp_path: Path) -> Place:
    """Topics, and a partitioned table of a format."""
    return await place_of(str(request.param), kafka_bootstrap, unique, tmp_path)


def holds(place: Place, *ids: int, table: str = "") -> None:
    """Check the rows, with a reader that shares no code with the product."""
    found = tables.tally(Path(table or place.table), ids, USER)
    assert (found.missing, found.doubled, found.foreign, found.rows) == ((), (), (), len(ids)), found


async def commit(job: Job, *ids: int) -> None:
    await job.run_batch(ids)
    await announced(job)


async def printed(place: Place, *arguments: str, status: int = 0) -> dict[str, Any]:
    """Return what a command printed, in JSON."""
    result = await invoke_here(place, *arguments, "--json")
    assert result.exit_code == status, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


async def test_the_janitor_deletes_on_its_timer_while_commits_continue(place: Place) -> None:
    options = {"janitor": {"enabled": True, "grace": "1ms", "interval": "500ms"}}
    root = Path(place.table)
    with capture_logs() as logged:
        async with place.job() as job, running(place.settings(options=options)):
            await job.register()
            losers = [await commit_with_loser(job, number) for number in range(1, 4)]
            await until(lambda: sum(line.get("deleted", 0) for line in logged), lambda count: count >= 3)
            assert not [path for path in losers if (root / path).exists()]
            await commit(job, 4)
    holds(place, 1, 2, 3, 4)


def history(place: Place, table: str) -> list[tuple[int, int]]:
    """Return decisions and positions of a table's commits by the stream, the newest first."""
    lake = adapter(place.lake)
    maintenance = lake.open_maintenance(lake.parse_table(table, place.lake_options))
    assert isinstance(maintenance, ReadsHistory)
    return [(each.decision, each.ref.id) for each in maintenance.history().commits]


@pytest.mark.parametrize("same", [True, False], ids=["same partition", "other partition"])
async def test_an_event_cannot_name_a_file_of_another_stream(place: Place, same: bool) -> None:
    """The log of the other stream, which says that the file waits, may be in another partition."""
    other = neighbour("flights", same=same)
    async with place.job(other) as job, place.job() as liar:
        async with running(place.settings("flights", other)):
            assert (await job.register()).accepted
            assert (await liar.register()).accepted
            await commit(job, 1)
            await commit(liar, 2)
            waiting = job.write_files([3])
            event = await job.written(waiting)
            await liar.written(waiting)
            # The end of its incarnation makes an orphan of the event.
            await liar.begin("q2")
        done = await printed(place, "orphans", "delete", *STREAM, *AT_ONCE)
        assert done["files"] == []
        async with running(place.settings("flights", other)):
            await job.complete(event)
            await announced(job)
    assert sorted(row["id"] for row in FORMATS[place.lake].rows(Path(place.table))) == [1, 2, 3]
