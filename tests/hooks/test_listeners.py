"""Functions given to `attach`, in a driver of its own: listeners' state, and outcomes of the region."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.events.models import CheckpointCompleted, Position
from sluicegate.events.notifications import Committed
from sluicegate.writer_hooks import BadListenerState
from sluicegate.writer_hooks.spark.batch import _state_of_listeners
from tests.hooks.conftest import Job
from tests.hooks.test_outcomes import _announce

DRIVER = """
import json, sys
from pyspark.sql import SparkSession
from sluicegate.writer_hooks import attach

options, source, told = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]

def tell(outcome):
    with open(told, "a") as file:
        file.write(f"{outcome.decision} {outcome.fell_back}\\n")
    raise ValueError("the user's own mistake")

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
attach(
    spark,
    heartbeat_interval=0.5,
    on_outcome=tell,
    listener_state=lambda batch: {"mark-done": f"after {batch}"},
)
rows = spark.readStream.schema("id long, airport string, at timestamp").option("maxFilesPerTrigger", 1)
query = rows.json(source).writeStream.format("sluicegate").options(**options).start()
# The condition is looked at between two waits for the query's end; the test itself ends a driver that hangs.
while query.isActive:
    try:
        with open(told) as file:
            if "True" in file.read():
                break
    except FileNotFoundError:
        pass
    query.awaitTermination(0.1)
query.processAllAvailable()
query.stop()
"""


@pytest.mark.spark
@pytest.mark.kafka
def test_state_is_frozen_and_outcomes_are_told(job: Job, tmp_path: Path) -> None:
    script, told = tmp_path / "driver.py", tmp_path / "told"
    script.write_text(DRIVER)
    job.feed("a", 3)
    job.feed("b", 3, start=100)
    arguments = [sys.executable, str(script), json.dumps(job.options), str(job.source), str(told)]
    with (tmp_path / "driver.log").open("wb") as output:
        driver = subprocess.Popen(arguments, stdout=output, stderr=output)
        try:
            job.log.wait(
                lambda: len(job.log.of(CheckpointCompleted)) > 1,
                "no completions",
                driver,
                tmp_path / "driver.log",
            )
            at = Position(incarnation=job.incarnation(), checkpoint=0, digest="d")
            decision = 0
            while driver.poll() is None:
                decision += 1
                cut = Committed(
                    decision=decision,
                    cut={"JFK": at},
                    fallbacks={"JFK": at},
                    snapshot=None,
                    watermark=None,
                    files=0,
                )
                asyncio.run(_announce(job.log, job.options["stream"], cut))
            assert driver.returncode == 0, (tmp_path / "driver.log").read_text()[-3000:]
        finally:
            driver.kill()
            driver.wait()
    states = [body.listeners for _, body in job.log.of(CheckpointCompleted)]
    assert states[:2] == [{"mark-done": "after 0"}, {"mark-done": "after 1"}]
    assert told.read_text().splitlines()[0].endswith(" True")
    assert "on_outcome failed" in (tmp_path / "driver.log").read_text()


@pytest.mark.parametrize("found", [{"a/b": "x"}, {"a": 7}, {"a": "x" * 5000}, 7])
def test_what_cannot_be_frozen_is_refused(found: object) -> None:
    with pytest.raises(BadListenerState, match=r"listener_state\(3\) must give texts"):
        _state_of_listeners(lambda _: found, 3)  # type: ignore[arg-type, return-value]


def test_without_a_function_nothing_is_frozen() -> None:
    assert _state_of_listeners(None, 3) == {}
    assert _state_of_listeners(lambda batch: {"a": str(batch)}, 3) == {"a": "3"}
