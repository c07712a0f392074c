"""Asynchronous uploads of plain Python writers, with a real coordinator: exact over kills and losses."""

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from sluicegate.failpoints import points
from sluicegate.writer_hooks import AsyncRegionDriver, BadOption, Job, UploadGivenUp
from sluicegate.writer_hooks.upload.spool import Spool
from tests.faults.tables import kind_of
from tests.integration.conftest import Place, place_of
from tests.integration.coordinator import running
from tests.integration.job import read_ids, read_notifications
from tests.integration.test_python_driver import options_of, put, rows
from tests.integration.uploading import killed_at, nobody_uploads, run_uploader, spool
from tests.integration.waiting import until

pytestmark = pytest.mark.kafka

__all__ = ["spool"]


def uploading(place: Place, spool: Spool, **more: str) -> dict[str, str]:
    table = {f"table.{name}": value for name, value in place.lake_options.items()}
    return options_of(place, **table, **{"upload": "async", "upload.spool": spool.folder, **more})


@pytest.mark.parametrize("lake", ["paimon", "iceberg", "delta"])
async def test_an_uploader_of_its_own_process_brings_files_and_events(
    lake: str, kafka_bootstrap: str, unique: str, tmp_path: Path, spool: Spool
) -> None:
    place = await place_of(lake, kafka_bootstrap, unique, tmp_path)
    async with running(place.settings()), AsyncRegionDriver(uploading(place, spool)) as driver:
        await put(driver, 1, 2)
        await driver.await_commit(await put(driver, 3))
    found = [row["id"] for row in kind_of(Path(place.table)).rows(Path(place.table))]
    assert sorted(found) == [1, 2, 3]
    await until(lambda: list((Path(spool.folder) / "files").iterdir()), lambda left: not left)
    assert spool.names() == []


async def test_an_uploader_that_is_killed_anywhere_is_continued_by_the_next(
    place: Place, spool: Spool
) -> None:
    steps = ("upload.put.before", "upload.put.after", "upload.publish.before", "upload.publish.after")
    async with running(place.settings()), AsyncRegionDriver(uploading(place, spool)) as driver:
        for number, point in enumerate((*steps, "upload.removed")):
            with nobody_uploads(spool):
                newest = await put(driver, number)
            await asyncio.to_thread(killed_at, spool, point)
        run_uploader(spool)
        await driver.await_commit(newest)
    assert read_ids(place.table) == [0, 1, 2, 3, 4]
    assert len(list(Path(place.table).rglob("*.parquet"))) == 5, "no file was uploaded under two names"
    await until(lambda: list((Path(spool.folder) / "files").iterdir()), lambda left: not left)
