"""Drivers learn the outcomes of commits for their regions while their queries run, without any wait."""

import asyncio
import json
import logging
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Body, CheckpointCompleted, CutReverted, Position
from sluicegate.events.notifications import (
    Committed,
    IncarnationsEnded,
    NotificationType,
    Stalled,
    StreamAdopted,
)
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.clients import started
from sluicegate.writer_hooks import BadListenerState, RegionOutcome
from sluicegate.writer_hooks.commit_feed import Followers, RegionProgress
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.spark.batch import _state_of_listeners
from tests.hooks.conftest import Job
from tests.hooks.log import Log

AT = Position(incarnation="q", checkpoint=4, digest="d")


def _cut(decision: int, checkpoint: int, *, late: bool = False) -> Committed:
    at = AT.model_copy(update={"checkpoint": checkpoint})
    fallbacks = {"JFK": at} if late else {}
    cut = {"JFK": at, "EWR": Position(incarnation="e", checkpoint=decision, digest="d")}
    return Committed(decision=decision, cut=cut, fallbacks=fallbacks, snapshot=None, watermark=None, files=1)


def test_one_warning_when_it_falls_back_and_one_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    progress = RegionProgress("flights", "JFK")
    with caplog.at_level(logging.WARNING):
        found = [
            progress.apply(_cut(1, 4)),
            progress.apply(_cut(2, 4, late=True)),
            progress.apply(_cut(3, 4, late=True)),
            progress.apply(_cut(4, 4)),
            progress.apply(_cut(5, 6)),
            progress.apply(Stalled(problem=Problem(code=Code.PAUSED), reason="no matter")),
        ]
    outcomes = [(each.fell_back, each.consecutive) for each in found if each is not None]
    assert outcomes == [(False, 0), (True, 1), (True, 2), (False, 2), (False, 0)]
    assert found[2] == RegionOutcome("flights", "JFK", 3, AT, True, 2, reverted=False)
    assert [message for message in caplog.messages if message.startswith("region JFK of flights")] == [
        "region JFK of flights fell back in commit 2, at checkpoint 4 of q; the other regions were committed",
        "region JFK of flights is included again in commit 5, up to checkpoint 6 of q, after 2 without it",
    ]


def test_each_decision_has_one_outcome_also_if_a_coordinator_repeats_it() -> None:
    progress = RegionProgress("flights", "JFK")
    of_two, of_three = _cut(2, 4, late=True), _cut(3, 6)
    found = [progress.apply(each) for each in (of_two, of_two, of_three, of_two, of_three)]
    told = [(each.decision, each.consecutive, each.committed) for each in found if each is not None]
    assert told == [(2, 1, AT), (3, 0, AT.model_copy(update={"checkpoint": 6}))]
    reverted = CutReverted(decision=4, digest="d", table="t")
    assert progress.apply(reverted) is not None
    assert progress.apply(reverted) is None
    # After an adoption, the numbers are used again.
    assert progress.apply(StreamAdopted(decision=1, snapshot=None)) is None
    again = progress.apply(_cut(2, 4))
    assert again is not None
    assert (again.decision, again.committed) == (2, AT)


def test_the_committed_position_is_known_before_the_first_outcome() -> None:
    """A revert moves nothing: a region that continues at a position still has it."""
    progress = RegionProgress("flights", "JFK")
    progress.begin(AT)
    outcome = progress.apply(CutReverted(decision=7, digest="d", table="t"))
    assert outcome == RegionOutcome("flights", "JFK", 7, AT, False, 0, reverted=True)
    # A late answer is older than an outcome.
    progress.begin(None)
    again = progress.apply(CutReverted(decision=8, digest="d", table="t"))
    assert again is not None
    assert again.committed == AT


def test_a_revert_and_the_stall_of_a_region_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    progress = RegionProgress("flights", "JFK")
    progress.apply(_cut(6, 4))
    outcome = progress.apply(CutReverted(decision=7, digest="d", table="t"))
    assert outcome == RegionOutcome("flights", "JFK", 7, AT, False, 0, reverted=True)
    stall = Stalled(
        problem=Problem(code=Code.REVERTED, region="JFK"), reason="Reset it: sluicegate region reset"
    )
    assert progress.apply(stall) is None
    assert RegionProgress("flights", "EWR").apply(stall) is None
    assert progress.apply(stall.model_copy(update={"ended": True})) is None
    assert caplog.messages == ["region JFK of flights is stalled. Reset it: sluicegate region reset"]


async def _announce(log: Log, stream: str, *bodies: Body, region: str = "") -> None:
    of = Envelope(str(uuid.uuid4()), EventType.REGION_HEARTBEAT, stream, region)
    async with started(AIOKafkaProducer(bootstrap_servers=log.bootstrap)) as producer:
        for body in bodies:
            kind = NotificationType.REGISTRATION_ANSWERED
            if isinstance(body, Committed):
                partial = NotificationType.PARTIALLY_COMMITTED
                kind = partial if body.fallbacks else NotificationType.COMMITTED
            elif isinstance(body, IncarnationsEnded):
                kind = NotificationType.ENDED
            elif isinstance(body, CutReverted):
                kind = NotificationType.REVERTED
            await log.announce(producer, of, kind, body)


@pytest.mark.seam
@pytest.mark.kafka
def test_followers_end_with_the_last_region(job: Job) -> None:
    outcomes = Followers()
    one = SinkOptions.parse(job.options).region
    outcomes.follow(one, "q")
    outcomes.follow(one, "q")
    outcomes.follow(one, "p")
    outcomes.leave(one, "q")
    outcomes.leave(one, "q")
    assert len(outcomes._followers) == 1
    outcomes.leave(one, "p")
    assert outcomes._followers == {}
    outcomes.stop()


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
