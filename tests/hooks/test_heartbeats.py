"""What the listener tells of a query: alive, idle, at its end."""

import threading
from itertools import count

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.events.models import RegionClosed, RegionHeartbeat
from sluicegate.writer_hooks import BatchUnfinished, close_region
from sluicegate.writer_hooks.region import Live, Registered
from sluicegate.writer_hooks.spark.heartbeats import Run
from sluicegate.writer_hooks.spark.listener import RegionListener
from tests.hooks.conftest import Job
from tests.hooks.log import refuse

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.seam
def test_idle_when_the_source_has_nothing_new(job: Job) -> None:
    job.feed("a", 1)
    query = job.write(processingTime="100 milliseconds")

    def beats() -> list[bool]:
        return [body.idle for _, body in job.log.of(RegionHeartbeat)]

    numbers = count()

    def is_busy_again() -> bool:
        # A batch may end before a heartbeat is due, so there is another one until a heartbeat has met one.
        job.feed(f"b{next(numbers)}", 1, start=100)
        return False in beats()[beats().index(True) :]

    try:
        job.log.wait(lambda: True in beats(), "never idle")
        job.log.wait(is_busy_again, "idle for ever")
        seen = len(beats())
        job.log.wait(lambda: len(beats()) >= seen + 2, "no heartbeat on the timer")
        # A region with an unfinished batch is not idle at its end.
        query.processAllAvailable()
    finally:
        query.stop()
        query.awaitTermination()
    assert job.log.of(RegionClosed) == [], "an unbounded region stays open"
    beaten = job.log.of(RegionHeartbeat)
    assert {envelope.incarnation for envelope, _ in beaten} == {job.incarnation()}
    assert {body.run for _, body in beaten} == {job.log.registrations()[-1][0].id}
    region = job.log.judges.replica(job.options["stream"]).state.regions["JFK"]
    job.log.wait(lambda: region.idle, "not idle at its end")


def test_bounded_source_is_closed_at_its_end(job: Job) -> None:
    job.options["bounded"] = "true"
    job.feed("a", 1)
    job.feed("b", 1, start=100)
    job.run()
    job.log.wait(lambda: job.log.of(RegionClosed), "not closed")
    ((envelope, body),) = job.log.of(RegionClosed)
    assert (envelope.incarnation, body.final) == (job.incarnation(), 1)
    assert body.run == job.log.registrations()[-1][0].id
    assert all(registered.bounded for _, registered in job.log.registrations())
    region = job.log.judges.replica(job.options["stream"]).state.regions["JFK"]
    assert (region.phase, region.final) == ("closed", 1)
    assert job.log.events[-1].envelope.id == envelope.id


def test_unfinished_batch_cannot_be_closed(job: Job) -> None:
    job.options["bounded"] = "true"
    job.log.answer = refuse("not today")
    job.feed("a", 1)
    with pytest.raises(StreamingQueryException):
        job.run()
    with pytest.raises(BatchUnfinished, match=r"planned batch 0 and completed none"):
        close_region(job.options)
    assert job.log.of(RegionClosed) == []


def test_a_region_that_is_closed_before_spark_reports_the_end_warns_of_nobody(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The closing registers once more, and its own driver reads the answer to that."""
    reported = threading.Event()
    contradictions: list[Live] = []
    report, compare = RegionListener.onQueryTerminated, Run.contradicted

    def late(listener: RegionListener, event: object) -> None:
        reported.wait()
        report(listener, event)

    def noted(run: Run, registered: Registered) -> Live | None:
        found = compare(run, registered)
        contradictions.extend([found] if found else [])
        return found

    monkeypatch.setattr(RegionListener, "onQueryTerminated", late)
    monkeypatch.setattr(Run, "contradicted", noted)
    job.feed("a", 1)
    query = job.write(processingTime="100 milliseconds")
    try:
        job.log.wait_completed(0)
        job.log.wait((job.checkpoint / "commits" / "0").exists, "the batch does not end")
        job.log.wait(lambda: job.log.of(RegionHeartbeat), "no heartbeat, so the answers are not followed")
        query.stop()
        query.awaitTermination()
        assert close_region(job.options) == 0
        job.log.wait(lambda: contradictions, "the answer is not read")
        seen = len(job.log.of(RegionHeartbeat))
        # The heartbeat that follows the comparison.
        job.log.wait(lambda: len(job.log.of(RegionHeartbeat)) > seen, "no further heartbeat")
    finally:
        reported.set()
    assert "the newest answer of the coordinator names" not in caplog.text
