"""A table that is dropped and made again under its name, on real tables and Kafka."""

import os
import re
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from sluicegate.events.envelope import EventType
from sluicegate.events.problems import Code
from tests.faults import iceberg_tables, tables
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.job import create_table, read_events, read_ids
from tests.integration.letters import stalled, stalls
from tests.integration.orders import ADOPTION, invoke_here
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka


async def committed(place: Place) -> int:
    """The number of outcomes in the log."""
    log = await read_events(place.bootstrap, place.topics.events)
    return sum(event.envelope.type is EventType.CUT_COMMITTED for event in log)


async def decisions(place: Place) -> int:
    """The number of decisions in the log."""
    log = await read_events(place.bootstrap, place.topics.events)
    return sum(event.envelope.type is EventType.CUT_DECIDED for event in log)


@pytest.mark.seam
async def test_nothing_is_decided_for_a_replaced_table_until_the_former_one_is_back(
    place: Place, impatient: None
) -> None:
    table, away = Path(place.table), place.root / "away"
    async with place.job() as job, running(place.settings()) as service:
        await job.begin_with_a_commit()
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
        await job.commit([2], [1, 2])
        assert await decisions(place) == 2


def ids_of(place: Place) -> list[int]:
    table = Path(place.table)
    return sorted(row["id"] for row in tables.kind_of(table).rows(table))


def metadata_of(place: Place) -> dict[Path, Path]:
    """Return the files or folders that hold the metadata of a table, each with a place for its copy."""
    table, kept = Path(place.table), place.root / "kept"
    kept.mkdir(exist_ok=True)
    names = {
        "iceberg": [table.parents[1] / iceberg_tables.DATABASE],
        "paimon": [table / "schema", table / "snapshot"],
        "delta": [table / "_delta_log"],
    }
    return {each: kept / each.name for each in names[place.lake]}


def local_of(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


@pytest.mark.parametrize("lake", tables.FORMATS)
@pytest.mark.parametrize("restored", [True, False], ids=["restored", "read again"])
async def test_what_the_table_lost_with_its_files_is_not_committed_again(
    kafka_bootstrap: str, unique: str, tmp_path: Path, impatient: None, lake: str, restored: bool
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    async with place.job() as job:
        async with running(place.settings()):
            await job.register()
            await job.run_batch([1])
            await until(lambda: ids_of(place), lambda found: found == [1])
            for each, kept in metadata_of(place).items():
                copy(each, kept)
            files = job.write_files([2])
            await job.complete(await job.written(files))
            await until(lambda: ids_of(place), lambda found: found == [1, 2])
            await until(lambda: committed(place), lambda found: found == 2)
        for each, kept in metadata_of(place).items():
            copy(kept, each)
        lost = local_of(files.location) / files.files[0].path
        lost.rename(tmp_path / "lost.parquet")
        repair = ("replay", "repair", "--stream", "flights")
        for command in ((*repair, "--dry-run"), repair):
            refused = await invoke_here(place, *command)
            assert refused.exit_code == 2, refused.output
            assert "decision 2 cannot be committed: " in refused.stderr
            assert "Restore what is missing. If it is gone, stop the coordinators" in refused.stderr
        if restored:
            (tmp_path / "lost.parquet").rename(lost)
            assert (await invoke_here(place, *repair)).exit_code == 0
            assert ids_of(place) == [1, 2]
            return
        (adopt,) = ADOPTION.findall(refused.stderr)
        told = await invoke_here(place, *adopt.split())
        assert told.exit_code == 2, told.output
        (given_up,) = re.findall(r"repeat this command with (--give-up \d+)", told.stderr)
        adopted = await invoke_here(place, *adopt.split(), *given_up.split())
        assert adopted.exit_code == 0, adopted.output
        async with running(place.settings()):
            assert (await job.begin("after-the-adoption")).accepted
            await job.run_batch([2])
            await until(lambda: ids_of(place), lambda found: found == [1, 2])
