"""Asynchronous uploads of queries of Spark, and a real coordinator."""

import shutil
from pathlib import Path

import pytest

from sluicegate.writer_hooks.upload.spool import Spool
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.orders import sluicegate
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.test_region_reset import resetting
from tests.integration.test_uploads import losses
from tests.integration.uploading import end_uploader, nobody_uploads, spool
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

__all__ = ["spool"]


@pytest.mark.parametrize("foreach", [False, True], ids=["data source", "foreachBatch"])
async def test_rows_are_exact_over_the_loss_of_a_machine(
    place: Place, spark: SparkThread, spool: Spool, foreach: bool
) -> None:
    """A batch ends while its files wait. They are lost with their machine, and read again after a reset."""
    job = SparkJob(spark, place, foreach=foreach)
    asynchronous = {"upload": "async", "upload.spool": spool.folder}
    job.options = asynchronous
    job.feed([1, 2], [3])
    async with running(place.settings()):
        await job.run()
        await until(lambda: read_ids(place.table), lambda found: found == [1, 2, 3])
        await until(lambda: list((Path(spool.folder) / "files").iterdir()), lambda left: not left)
        end_uploader(spool)
        job.options = {**asynchronous, "upload.timeout": "0.5"}
        with nobody_uploads(spool):
            query = await spark.call(lambda: job.start(processingTime="100 milliseconds"))
            try:
                job.feed([4])
                await until(lambda: "2" in job.names("commits"))
                shutil.rmtree(spool.folder)
                assert "its machine is lost" in (await until(lambda: losses(place)))[0]
            finally:
                await spark.call(query.stop)
        job.options = asynchronous
        await sluicegate(place, *resetting(job))
        await job.run()
        await until(lambda: read_ids(place.table), lambda found: found == [1, 2, 3, 4])
