"""A table that is dropped and made again under its name, on real tables and Kafka."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluicegate.cli import main
from sluicegate.coordinator.telemetry.messages import format_problem
from sluicegate.events.envelope import EventType
from sluicegate.events.problems import Code
from tests.faults import tables
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.job import create_table, read_events, read_ids
from tests.integration.letters import conditions, stalled, stalls
from tests.integration.orders import config_of, sluicegate
from tests.integration.test_limits import decide_and_die
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def decisions(place: Place) -> int:
    """The number of decisions in the log."""
    log = await read_events(place.bootstrap, place.topics.events)
    return sum(event.envelope.type is EventType.CUT_DECIDED for event in log)


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
        shutil.rmtree(table)
        os.rename(away, table)
        await until(lambda: stalled(service), lambda code: code == Code.FILES_EXCLUDED)
        await job.begin("q2")
        await job.run_batch([2])
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


def make_again(place: Place) -> None:
    """Drop the table and make it again, with the data files that were in it."""
    table, away = Path(place.table), place.root / "away"
    os.rename(place.root / table.relative_to(place.root).parts[0], away)
    assert tables.create_table(place.root, "flights", place.lake) == table
    old = away / Path(*table.relative_to(place.root).parts[1:])
    for file in old.rglob("*.parquet"):
        target = table / file.relative_to(old)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)


def forget(place: Place) -> None:
    """Forget the stream, which the settings have under another name now."""
    config = config_of(place)
    config.write_text(config.read_text().replace("[streams.flights]", "[streams.other]"))
    done = CliRunner().invoke(
        main, ("stream", "forget", "--stream", "flights", "--yes"), env={"SLUICEGATE_CONFIG": str(config)}
    )
    assert done.exit_code == 0, done.output


def ids_of(place: Place) -> list[int]:
    table = Path(place.table)
    return sorted(row["id"] for row in tables.kind_of(table).rows(table))


@pytest.mark.parametrize("lake", tables.FORMATS)
async def test_files_of_a_former_table_are_refused_even_if_the_stream_was_forgotten(
    kafka_bootstrap: str, unique: str, tmp_path: Path, impatient: None, lake: str
) -> None:
    """Their columns may have other ids, so that values would appear in the wrong columns."""
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            event = await job.written(job.write_files([1]))
        make_again(place)
        await asyncio.to_thread(forget, place)
        await job.complete(event)
        async with running(place.settings()) as service:
            found = (await until(lambda: conditions(service)))[0]
            assert found["code"] == Code.FILES_EXCLUDED
            assert "written for another table, which was at this place before" in found["arguments"]["detail"]
            assert ids_of(place) == []
            await job.begin("q2")
            await job.run_batch([1, 2])
            await until(lambda: ids_of(place), lambda found: found == [1, 2])


async def test_a_decision_of_a_former_table_is_not_published_in_the_next_one(
    kafka_bootstrap: str, unique: str, tmp_path: Path, impatient: None
) -> None:
    """It was checked and logged before the table was made again, and the stream was forgotten."""
    place = await place_of("paimon", kafka_bootstrap, unique, tmp_path)
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
        await job.complete(await job.written(job.write_files([1])))
        await decide_and_die(place)
        assert await decisions(place) == 1
        make_again(place)
        await asyncio.to_thread(forget, place)
        async with running(place.settings()) as service:
            await until(lambda: stalled(service), lambda code: code == Code.COMMIT_REFUSED)
            assert "written for another table" in conditions(service)[0]["arguments"]["detail"]
            assert ids_of(place) == []
            revert = ("commit", "revert", "--stream", "flights", "--decision", "1", "--region", "r1")
            await sluicegate(place, *revert)
            await until(lambda: stalled(service), lambda code: code != Code.COMMIT_REFUSED)
            await job.begin("q2")
            await job.run_batch([1, 2])
            await until(lambda: ids_of(place), lambda found: found == [1, 2])
