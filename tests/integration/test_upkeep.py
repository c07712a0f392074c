"""Replay, orphans and the janitor on a real log and a real table of each format."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from structlog.testing import capture_logs

from sluicegate.events.models import FilesWritten
from sluicegate.events.notifications import Committed
from sluicegate.lakes.capabilities import ReadsHistory, evolving
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import CommitRequest, Published
from sluicegate.lakes.registry import adapter
from tests.faults import iceberg_tables, tables
from tests.faults.tables import FORMATS
from tests.integration.conftest import Place, neighbour, place_of
from tests.integration.coordinator import running
from tests.integration.job import Job
from tests.integration.orders import invoke_here
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka
STREAM = ("--stream", "flights")
AT_ONCE = ("--grace", "1ms")
USER = "sluicegate-flights"


@pytest.fixture(params=["paimon", "iceberg", "delta"])
async def place(request: pytest.FixtureRequest, kafka_bootstrap: str, unique: str, tmp_path: Path) -> Place:
    """Topics, and a partitioned table of a format."""
    return await place_of(str(request.param), kafka_bootstrap, unique, tmp_path)


def path_of(files: FilesWritten) -> str:
    return files.files[0].path


def holds(place: Place, *ids: int, table: str = "") -> None:
    """Check the rows, with a reader that shares no code with the product."""
    found = tables.tally(Path(table or place.table), ids, USER)
    assert (found.missing, found.doubled, found.foreign, found.rows) == ((), (), (), len(ids)), found


async def announced(job: Job) -> None:
    """Wait until the newest checkpoint is announced as committed."""

    def newest(body: object) -> bool:
        return isinstance(body, Committed) and body.cut.get(job.region) == job.previous

    await until(job.notifications, lambda seen: any(newest(each.body) for each in seen))


async def commit(job: Job, *ids: int) -> None:
    await job.run_batch(ids)
    await announced(job)


async def commit_with_loser(job: Job, *ids: int) -> str:
    """Commit a batch of which another attempt was written too; return that one's path."""
    loser = job.write_files([100 + ids[-1]])
    await job.written(loser)
    await job.complete(await job.written(job.write_files(ids)))
    await announced(job)
    return path_of(loser)


async def printed(place: Place, *arguments: str, status: int = 0) -> dict[str, Any]:
    """Return what a command printed, in JSON."""
    result = await invoke_here(place, *arguments, "--json")
    assert result.exit_code == status, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


async def test_orphans_are_listed_and_deleted_and_nothing_else(place: Place) -> None:
    root = Path(place.table)
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            loser = await commit_with_loser(job, 1)
            unnamed, waiting = job.write_files([202]), job.write_files([2])
            event = await job.written(waiting)
        found = await printed(place, "orphans", "list", *STREAM)
        assert (found["files"], found["younger"]) == ([], 1)
        found = await printed(place, "orphans", "list", *STREAM, *AT_ONCE)
        assert [each["path"] for each in found["files"]] == [loser]
        done = await printed(place, "orphans", "delete", *STREAM, *AT_ONCE)
        assert [(each["path"], each["status"]) for each in done["files"]] == [(loser, "deleted")]
        there = [loser, path_of(unnamed), path_of(waiting)]
        assert [(root / path).exists() for path in there] == [False, True, True]
        async with running(place.settings()):
            await job.complete(event)
            await announced(job)
        holds(place, 1, 2)
        found = await printed(place, "orphans", "list", *STREAM, *AT_ONCE)
        assert (found["files"], found["gone"]) == ([], 1)


async def test_an_orphan_that_another_product_has_committed_is_kept(place: Place) -> None:
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            taken = job.write_files([101])
            await job.written(taken)
            await commit(job, 1)
        lake = adapter(place.lake)
        other = lake.open_committer(lake.parse_table(place.table, place.lake_options), "another-product")
        other.check([taken])
        made = other.publish(CommitRequest(1, "x", other.inspect().head, None, [taken]))
        assert isinstance(made, Published)
        done = await printed(place, "orphans", "delete", *STREAM, *AT_ONCE)
        assert (done["files"], done["kept"]) == ([], 1)
    holds(place, 1, 101)


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


async def three_commits(place: Place, job: Job) -> None:
    async with running(place.settings()):
        assert (await job.register()).accepted
        for number in (1, 2, 3):
            await commit(job, number)


async def test_a_table_is_verified_and_one_that_was_rolled_back_is_repaired(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
        found = await printed(place, "replay", "verify", *STREAM)
        assert (found["counts"]["there"], found["different"], found["history_whole"]) == (3, False, True)
        roll_back(place, to=1)
        holds(place, 1)
        found = await printed(place, "replay", "verify", *STREAM, status=1)
        assert (found["counts"]["there"], found["counts"]["missing"]) == (1, 2)
        dry = await printed(place, "replay", "repair", *STREAM, "--dry-run")
        assert [each["decision"] for each in dry["committed"]] == [2, 3]
        holds(place, 1)
        await printed(place, "replay", "repair", *STREAM)
        holds(place, 1, 2, 3)
        assert (await printed(place, "replay", "verify", *STREAM))["counts"]["there"] == 3
        async with running(place.settings()):
            await commit(job, 4)
        holds(place, 1, 2, 3, 4)


def roll_back(place: Place, to: int) -> None:
    """Take the newest commits out of the table, as the means of its format allow."""
    root = Path(place.table)
    if place.lake == "paimon":
        for number in range(to + 1, tables.head(root) + 1):
            (root / "snapshot" / f"snapshot-{number}").unlink()
        (root / "snapshot" / "LATEST").unlink(missing_ok=True)
    elif place.lake == "delta":
        for number in range(to + 1, tables.head(root) + 1):
            (root / "_delta_log" / f"{number:020d}.json").unlink()
    else:
        iceberg_tables.roll_back(root, to)


async def test_a_fresh_table_has_the_same_commits(place: Place) -> None:
    # Without the name of the stream's own table, the name follows from the folder.
    place.lake_options.pop("identifier", None)
    target = str(Path(place.table).with_name("again"))
    async with place.job() as job:
        await three_commits(place, job)
    rebuild = ("replay", "rebuild", *STREAM, "--into", target)
    dry = await printed(place, *rebuild, "--dry-run")
    assert dry["commits"] == 3
    assert not content(target)
    made = await printed(place, *rebuild)
    assert (made["commits"], made["files"]) == (3, 3)
    holds(place, 1, 2, 3, table=target)
    assert history(place, target) == history(place, place.table) == [(3, 3), (2, 2), (1, 1)]
    again = await printed(place, *rebuild)
    assert (again["commits"], again["found"]) == (0, 3)
    holds(place, 1, 2, 3)


async def test_a_fresh_table_takes_files_from_before_a_new_column(place: Place) -> None:
    place.lake_options.pop("identifier", None)
    target, lake = str(Path(place.table).with_name("again")), adapter(place.lake)
    table = lake.parse_table(place.table, place.lake_options)
    wider = evolving(lake).read_columns(table).schema.append(pa.field("note", pa.string()))
    async with place.job() as job, running(place.settings()):
        await job.register()
        await commit(job, 1)
        await asyncio.to_thread(evolve, lake, table, wider)
        await commit(job, 2)
    rebuild = ("replay", "rebuild", *STREAM, "--into", target)
    dry = await printed(place, *rebuild, "--dry-run")
    assert (dry["commits"], content(target)) == (2, [])
    made = await printed(place, *rebuild)
    assert (made["commits"], made["files"]) == (2, 2)
    assert [decision for decision, _ in history(place, target)] == [2, 1]
    rows = FORMATS[place.lake].rows(Path(target))
    assert sorted((row["id"], row["note"]) for row in rows) == [(1, None), (2, None)]
    assert (await printed(place, *rebuild))["found"] == 2


@pytest.mark.parametrize("place", ["delta"], indirect=True)
async def test_a_table_with_commits_of_nobody_by_name_is_not_empty(place: Place) -> None:
    async with place.job() as job:
        await three_commits(place, job)
    target = str(Path(place.table).with_name("again"))
    DeltaTable.create(target, DeltaTable(place.table).schema(), partition_by=["origin"])
    DeltaTable(target).alter.set_table_properties({"delta.appendOnly": "true"})
    refused = await invoke_here(place, "replay", "rebuild", *STREAM, "--into", target)
    assert refused.exit_code == 2
    assert "is not empty: it has commits of writers that give no name. Name a fresh table" in refused.stderr


def content(folder: str) -> list[Path]:
    """Return all that is in a folder."""
    return list(Path(folder).rglob("*"))


def history(place: Place, table: str) -> list[tuple[int, int]]:
    """Return decisions and positions of a table's commits by the stream, the newest first."""
    lake = adapter(place.lake)
    maintenance = lake.open_maintenance(lake.parse_table(table, place.lake_options))
    assert isinstance(maintenance, ReadsHistory)
    return [(each.decision, each.ref.id) for each in maintenance.history().commits]


@pytest.mark.parametrize("place", ["iceberg"], indirect=True)
async def test_the_fresh_table_of_a_named_one_gets_a_name_of_its_own(place: Place) -> None:
    """The option `identifier` names the stream's own table."""
    place.lake_options["identifier"] = "db.flights"
    target = str(Path(place.table).with_name("again"))
    async with place.job() as job:
        await three_commits(place, job)
    rebuild = ("replay", "rebuild", *STREAM, "--into", target)
    refused = await invoke_here(place, *rebuild)
    assert (refused.exit_code, content(target)) == (2, [])
    assert "the table db.flights keeps its data in" in refused.stderr
    made = await printed(place, *rebuild, "--option", "identifier=db.again")
    assert made["commits"] == 3
    holds(place, 1, 2, 3, table=target)
    holds(place, 1, 2, 3)


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
