"""Drivers are told what commits made of their regions, while their queries run, and never held up by it."""

import asyncio
import logging
import uuid

import pytest
from aiokafka import AIOKafkaProducer

from sluicegate.events.encoding import encode
from sluicegate.events.envelope import Envelope, EventType
from sluicegate.events.models import Body, CutCommitted, CutVoided, Event, Position, StreamStalled
from sluicegate.events.partitioning import partition_of
from sluicegate.writer_hooks import RegionOutcome
from sluicegate.writer_hooks.outcomes import Follower, Outcomes, Standing
from sluicegate.writer_hooks.spark.options import SinkOptions
from tests.hooks.conftest import Job
from tests.hooks.log import PARTITIONS, Log
from tests.integration.waiting import wait_until

AT = Position(lineage="q.0", checkpoint=4)


def _cut(decision: int, checkpoint: int, *, late: bool = False, forced: bool = False) -> CutCommitted:
    at = Position(lineage="q.0", checkpoint=checkpoint)
    fallbacks = {"JFK": at} if late else {}
    cut = {"JFK": at, "EWR": Position(lineage="e.0", checkpoint=decision)}
    return CutCommitted(
        decision=decision, cut=cut, fallbacks=fallbacks, forced=forced, snapshot=1, watermark=None, files=1
    )


def test_one_warning_when_it_falls_back_and_one_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    standing = Standing("flights", "JFK")
    with caplog.at_level(logging.WARNING):
        found = [
            standing.take(_cut(1, 4)),
            standing.take(_cut(2, 4, late=True)),
            standing.take(_cut(3, 4, late=True)),
            standing.take(_cut(4, 4)),
            standing.take(_cut(5, 6, forced=True)),
            standing.take(StreamStalled(reason="no matter")),
        ]
    told = [(each.fell_back, each.consecutive, each.forced) for each in found if each is not None]
    assert told == [
        (False, 0, False),
        (True, 1, False),
        (True, 2, False),
        (False, 2, False),
        (False, 0, True),
    ]
    assert found[2] == RegionOutcome("flights", "JFK", 3, AT, True, 2, False, False)
    assert [message for message in caplog.messages if message.startswith("region JFK of flights")] == [
        "region JFK of flights stayed behind in commit 2, at checkpoint 4 of q.0; the others go on",
        "region JFK of flights is included again in commit 5, up to checkpoint 6 of q.0, after 2 without it",
    ]


def test_a_void_concerns_only_its_region(caplog: pytest.LogCaptureFixture) -> None:
    body = CutVoided(decision=7, region="JFK", checkpoint=5)
    assert Standing("flights", "EWR").take(body) is None
    outcome = Standing("flights", "JFK").take(body)
    assert outcome is not None
    assert (outcome.voided, outcome.decision) == (True, 7)
    assert "sluicegate rewind" in caplog.text


async def _announce(log: Log, stream: str, *bodies: Body) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=log.bootstrap)
    await producer.start()
    try:
        for body in bodies:
            late = isinstance(body, CutCommitted) and body.fallbacks
            kind = EventType.CUT_PARTIALLY_COMMITTED if late else EventType.CUT_COMMITTED
            message = encode(Event(Envelope(str(uuid.uuid4()), kind, stream), body))
            partition = partition_of(stream, PARTITIONS)
            await producer.send_and_wait(
                log.names.commits,
                message.value,
                key=message.key,
                headers=message.headers,
                partition=partition,
            )
    finally:
        await producer.stop()


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
