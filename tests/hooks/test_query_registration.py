"""Registration of a real query: the one question that a driver waits for."""

import asyncio

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.events.models import CheckpointCompleted, FilesWritten, RegionHeartbeat, StreamCommand
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.writer_hooks.region import Event
from tests.hooks.conftest import Job
from tests.hooks.locations import position, told
from tests.hooks.log import refuse, silent
from tests.hooks.test_outcomes import _announce
from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.seam
def test_refusal_fails_the_query_with_the_reason(job: Job) -> None:
    job.log.answer = refuse("the table has a primary key")
    job.feed("a", 1)
    with pytest.raises(StreamingQueryException, match=r"RegistrationRefused.*refused.*has a primary key"):
        job.run()
    assert job.log.of(FilesWritten) == []
    assert job.data_files() == set()
    assert not job.marker.exists()


def test_a_plain_restart_goes_on_without_an_answer(job: Job) -> None:
    job.feed("a", 1)
    job.run()
    first = job.incarnation()
    job.log.answer = silent
    job.feed("b", 1, start=100)
    job.run()
    job.log.wait_completed(1)
    assert len(job.data_files()) == 2
    job.log.answer = None
    job.feed("c", 1, start=200)
    job.run()
    job.log.wait_completed(2)
    assert {envelope.incarnation for envelope, _ in job.log.registrations()} == {first}
    assert len(job.log.probes()) == 1
    assert job.log.judges.commit(job.options["stream"]).cut["JFK"] == position(job.checkpoint, first, 2)


def test_a_restart_that_went_on_ends_when_a_refusal_comes_later(job: Job) -> None:
    """Its location may come from a backup."""
    job.feed("a", 1)
    job.run()
    before = len(job.log.registrations())
    job.log.answer = silent
    query = job.write(processingTime="100 milliseconds")
    try:
        job.feed("b", 1, start=100)
        job.log.wait(lambda: job.log.of(CheckpointCompleted)[-1][0].checkpoint == 1, "it waits")
        reason = refuse("the location is older than the committed position")

        def late(registration: Event) -> RegistrationAnswered:
            return reason(registration).model_copy(update={"live": "another"})

        job.log.answer = late
        answers = [late(Event(*found)) for found in job.log.registrations()[before:]]
        asyncio.run(_announce(job.log, job.options["stream"], *answers, region="JFK"))
        numbers = iter(range(10_000))

        def ended() -> bool:
            job.feed(f"c{(number := next(numbers))}", 1, start=200 + number)
            return bool(query.awaitTermination(1))  # time: a pause between two batches

        with pytest.raises(StreamingQueryException) as caught:
            job.log.wait(ended, "it goes on")
        assert "older than the committed position" in told(caught.value)
    finally:
        query.stop()


@pytest.mark.parametrize("order", [{"command": "close"}, {"command": "discard", "region": "JFK"}])
def test_a_running_query_whose_incarnation_an_order_ends_fails(
    job: Job, order: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """What it completes from then on is in no table."""
    job.feed("a", 1)
    query = job.write(processingTime="100 milliseconds")
    try:
        job.log.wait_completed(0)
        job.log.wait(lambda: job.log.of(RegionHeartbeat), "no heartbeat, so nothing is followed")
        stream = job.options["stream"]
        ended = job.log.judges.order(stream, StreamCommand.model_validate({**order, "number": 0}))
        assert ended.incarnations == {"JFK": job.incarnation()}
        asyncio.run(_announce(job.log, stream, ended))
        numbers = iter(range(10_000))

        def failed() -> bool:
            job.feed(f"b{(number := next(numbers))}", 1, start=100 + number)
            return bool(query.awaitTermination(1))  # time: a pause between two batches

        with pytest.raises(StreamingQueryException) as caught:
            job.log.wait(failed, "it goes on")
        # At the start of a batch, or at its end.
        assert "an operator removed the region, and assignment 0 is over" in told(caught.value)
        assert "Start all queries with the option `assignment` 1, and with the" in told(caught.value)
        assert "start the query again" not in told(caught.value)
    finally:
        query.stop()
    # Spark's own error can be "Writing job failed" alone.
    logged = "this driver does not write the region JFK"
    wait_until(lambda: any(logged in each for each in list(caplog.messages)), what="our error in the log")
