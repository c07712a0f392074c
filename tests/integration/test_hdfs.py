"""A table in HDFS with a real coordinator: exact over a cluster that is killed, and over uploads."""

import asyncio
from pathlib import Path

import pytest

from sluicegate.cli.local.servers import EmbeddedHdfs
from sluicegate.writer_hooks.upload.spool import Spool
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.coroutines import AsyncRegionDriver
from tests.integration.job import create_table, make_topics, read_ids
from tests.integration.test_python_driver import put
from tests.integration.test_uploads import alone, uploading
from tests.integration.uploading import nobody_uploads, spool, upload_all

pytestmark = [pytest.mark.kafka, pytest.mark.hdfs]

__all__ = ["alone", "spool"]


@pytest.mark.usefixtures("impatient", "alone")
async def test_uploads_and_commits_wait_for_the_cluster_and_nothing_is_lost(
    kafka_bootstrap: str, own_hdfs: EmbeddedHdfs, unique: str, tmp_path: Path, spool: Spool
) -> None:
    topics = await make_topics(kafka_bootstrap, unique)
    table = await asyncio.to_thread(create_table, f"{own_hdfs.uri}/lake")
    place = Place(kafka_bootstrap, unique, topics, tmp_path, table)
    async with running(place.settings()), AsyncRegionDriver(uploading(place, spool)) as driver:
        with nobody_uploads(spool):
            first = await put(driver, 1, 2)
            await asyncio.to_thread(upload_all, spool)
            await driver.await_commit(first)
            second = await put(driver, 3, 4)
        own_hdfs.kill()
        uploads = asyncio.create_task(asyncio.to_thread(upload_all, spool))
        await asyncio.to_thread(own_hdfs.start)
        await uploads
        await driver.await_commit(second)
    assert await asyncio.to_thread(read_ids, table) == [1, 2, 3, 4]
