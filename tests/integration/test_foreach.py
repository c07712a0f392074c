"""Queries that write with ForeachBatch, and a real coordinator."""

import asyncio
import json
import os
import signal
import sys

import pytest

from sluicegate.failpoints.points import VARIABLE
from tests.integration.conftest import Place
from tests.integration.coordinator import running
from tests.integration.job import read_ids
from tests.integration.sparkjob import SparkJob, SparkThread
from tests.integration.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

DRIVER = """
import json, os, sys
from pyspark.sql import SparkSession
from sluicegate.writer_hooks import ForeachBatch, attach

columns, source, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
attach(spark)
rows = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(source)
writer = rows.writeStream.foreachBatch(ForeachBatch(options))
location = options["checkpointLocation"]
writer.option("checkpointLocation", location).trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.old_spark
async def test_rows_are_exact_when_a_driver_is_killed_after_its_completion(
    place: Place, spark: SparkThread
) -> None:
    """Spark has not noted the batch, so the next driver writes it again, into other files."""
    job = SparkJob(spark, place, foreach=True)
    job.feed([1, 2], [3, 4], [5])
    async with running(place.settings()):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", DRIVER, job.columns, str(job.source), json.dumps(job.sink_options)),
            env={**os.environ, VARIABLE: "hook.completion.after=kill@2"},
        )
        assert await process.wait() == -signal.SIGKILL
        assert (job.names("offsets"), job.names("commits")) == (["0", "1"], ["0"])
        await until(lambda: read_ids(place.table), lambda found: found == [1, 2, 3, 4])
        await job.run()
        await until(lambda: read_ids(place.table), lambda found: found == [1, 2, 3, 4, 5])
