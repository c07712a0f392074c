"""Drivers learn the outcomes of commits for their regions while their queries run, without any wait."""

import asyncio
import logging
import uuid

import pytest
from aiokafka import AIOKafkaProducer

from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Body, CutReverted, Position
from sluicegate.events.notifications import (
    Committed,
    IncarnationsEnded,
    NotificationType,
    Stalled,
)
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.clients import started
from sluicegate.writer_hooks import RegionOutcome
from sluicegate.writer_hooks.commit_feed import Follower, Outcomes, RegionProgress
from sluicegate.writer_hooks.options import SinkOptions
from tests.hooks.conftest import Job
from tests.hooks.log import Log
from tests.integration.waiting import wait_until

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


@pytest.mark.kafka
def test_outcomes_are_read_from_now_on_and_a_callback_that_fails_ends_nothing(job: Job) -> None:
    stream, region = job.options["stream"], SinkOptions.parse(job.options).region
    asyncio.run(_announce(job.log, stream, _cut(1, 4)))
    told: list[RegionOutcome] = []

    def tell(outcome: RegionOutcome) -> None:
        told.append(outcome)
        raise ValueError("mine")

    follower = Follower(region.kafka, region.commits_topic, tell)
    try:
        follower.follow(region, "q")
        decision = 1

        def announce_another() -> bool:
            nonlocal decision
            decision += 1
            asyncio.run(_announce(job.log, stream, _cut(decision, 4, late=True)))
            return bool(told)

        wait_until(announce_another)
        seen = len(told)
        asyncio.run(_announce(job.log, "another", _cut(99, 9)))
        asyncio.run(_announce(job.log, stream, _cut(decision + 1, 5)))
        wait_until(lambda: told and not told[-1].fell_back)
        assert [each.decision for each in told] == sorted(each.decision for each in told)
        assert 1 not in [each.decision for each in told]
        assert 99 not in [each.decision for each in told]
        assert len(told) > seen
        assert follower.leave(region, "q")
    finally:
        follower.stop()


@pytest.mark.seam
@pytest.mark.kafka
def test_followers_end_with_the_last_region(job: Job) -> None:
    outcomes = Outcomes()
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
