"""Drafts of a dead coordinator: of a decision that another one publishes, and of one that is reverted."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.table import StaticTable

from sluicegate.events.envelope import EventType
from sluicegate.events.models import CutReverted, StreamCommand
from sluicegate.lakes.drafts import COORDINATOR, stated_draft
from tests.faults import iceberg_tables, stores, tables
from tests.integration.conftest import LAKES, Place, place_of
from tests.integration.coordinator import running
from tests.integration.job import make_topics, read_events
from tests.integration.orders import die_at
from tests.integration.test_orphans import AT_ONCE, DELETE, LIST, announced, printed
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


def dead_drafts(place: Place, decision: int) -> set[str]:
    """Return the names of the drafts that a dead coordinator left."""
    found = {path.name: stated_draft(path.name) for path in Path(place.table).rglob("*")}
    ours = {name: stated for name, stated in found.items() if stated and stated.decision == decision}
    return {name for name, stated in ours.items() if not COORDINATOR.startswith(stated.coordinator)}


@pytest.mark.parametrize("lake", LAKES)
async def test_a_dead_coordinator_leaves_no_draft_after_the_grace_period(
    lake: str, kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await announced(job)
        await job.run_batch([2])
        await die_at(place, "lake.put.before")
        published = dead_drafts(place, 2)
        assert published
        # The decision is open: the next coordinator could be about to publish them.
        done = await printed(place, *DELETE, *AT_ONCE)
        kept = {each["path"].rpartition("/")[2]: each for each in done["unnamed"]}
        assert {name for name in kept if stated_draft(name) is not None} == published
        assert {(kept[name]["deletable"], kept[name]["since"]) for name in published} == {(False, None)}
        assert dead_drafts(place, 2) == published
        async with running(place.settings()):
            await announced(job)
        await job.run_batch([3])
        await die_at(place, "lake.put.before")
        reverted = dead_drafts(place, 3)
        assert reverted
        order = StreamCommand(command="revert", decision=3, region="r1")
        await job.send(EventType.STREAM_COMMAND, order)
        async with running(place.settings()):
            await until(
                lambda: read_events(place.bootstrap, place.topics.events),
                lambda log: any(isinstance(record.body, CutReverted) for record in log),
            )
        found = await printed(place, *LIST)
        listed = {each["path"].rpartition("/")[2] for each in found["unnamed"] if not each["deletable"]}
        assert listed >= published | reverted, "younger than a day"
        done = await printed(place, *DELETE, *AT_ONCE)
        deleted = {each["path"].rpartition("/")[2] for each in done["unnamed"] if each["status"] == "deleted"}
        assert {name for name in deleted if stated_draft(name) is not None} == published | reverted
        assert dead_drafts(place, 2) | dead_drafts(place, 3) == set()
        seen = tables.tally(Path(place.table), (1, 2), "sluicegate-flights")
        assert (seen.missing, seen.doubled, seen.foreign, seen.rows) == ((), (), (), 2), seen


async def test_metadata_of_a_table_that_was_renamed_is_no_draft_of_its_successor(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    """A catalog may give a new table the folder that a renamed one keeps. Its log begins with 1 again."""
    place = await place_of("iceberg", kafka_bootstrap, f"{unique}-trial", tmp_path)
    async with place.job() as job, running(place.settings()):
        await job.register()
        for number in (1, 2):
            await job.run_batch([number])
            await announced(job)
    with closing(iceberg_tables.catalog_of(Path(place.table))) as catalog:
        trial = catalog.rename_table("db.flights", "db.trial")
        catalog.create_table("db.flights", trial.schema(), trial.location(), trial.spec())
        place = replace(place, prefix=unique, topics=await make_topics(kafka_bootstrap, unique))
        async with place.job() as job, running(place.settings()):
            await job.register()
            for number in (3, 4, 5):
                await job.run_batch([number])
                await announced(job)
        done = await printed(place, *DELETE, *AT_ONCE)
        assert [each["path"] for each in done["unnamed"] if each["status"] == "deleted"] == []
        for name, ids in (("db.trial", [1, 2]), ("db.flights", [3, 4, 5])):
            rows = catalog.load_table(name).scan().to_arrow()
            assert sorted(rows.column("id").to_pylist()) == ids


def list_newest_alone(table: Path) -> None:
    """Let the table's metadata have no history, as a catalog answers it that keeps versions of its own."""
    before = iceberg_tables.metadata_location(table)
    fields = json.loads(stores.local(before).read_bytes())
    newest = [each for each in fields["snapshots"] if each["snapshot-id"] == fields["current-snapshot-id"]]
    fields |= {"snapshots": newest, "snapshot-log": [], "metadata-log": []}
    after = f"{before.rpartition('/')[0]}/99999-{uuid4()}.metadata.json"
    stores.local(after).write_text(json.dumps(fields))
    with closing(sqlite3.connect(table.parents[1] / iceberg_tables.DATABASE)) as connection, connection:
        connection.execute("UPDATE iceberg_tables SET metadata_location = ?", (after,))


async def test_what_the_log_names_as_published_is_no_draft(
    kafka_bootstrap: str, unique: str, tmp_path: Path
) -> None:
    """A branch or a tag of the catalog itself may have a snapshot that the table's metadata lists no more."""
    place = await place_of("iceberg", kafka_bootstrap, unique, tmp_path)
    table = Path(place.table)
    with (
        closing(iceberg_tables.catalog_of(table)) as catalog,
        catalog.load_table("db.flights").transaction() as change,
    ):
        # A manifest that was merged is in no later list.
        change.set_properties({"commit.manifest.min-count-to-merge": "2"})
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await announced(job)
            tagged = iceberg_tables.metadata_location(table)
        await job.run_batch([2])
        await die_at(place, "lake.put.before")
        dead = dead_drafts(place, 2)
        async with running(place.settings()):
            await announced(job)
            list_newest_alone(table)
            await job.run_batch([3])
            await announced(job)
    list_newest_alone(table)
    done = await printed(place, *DELETE, *AT_ONCE)
    deleted = {each["path"].rpartition("/")[2] for each in done["unnamed"] if each["status"] == "deleted"}
    assert deleted == dead
    version = StaticTable.from_metadata(tagged)
    assert version.scan().to_arrow().column("id").to_pylist() == [1]
