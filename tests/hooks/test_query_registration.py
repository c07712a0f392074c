"""Registration of a real query: the one question that a driver waits for."""

import asyncio

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.events.envelope import Envelope
from sluicegate.events.models import (
    CheckpointCompleted,
    FilesWritten,
    RegionHeartbeat,
    RegionRegistered,
    StreamCommand,
)
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.writer_hooks import BadCheckpointLocation, start_incarnation
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import Event
from sluicegate.writer_hooks.spark.incarnation import check_location, register_query
from tests.hooks.conftest import Job
from tests.hooks.locations import position
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


def test_no_answer_says_what_to_check(job: Job) -> None:
    job.log.answer = silent
    job.options["registration.timeout"] = "2"
    job.feed("a", 1)
    with pytest.raises(StreamingQueryException, match=r"no coordinator answered.*within 2 s.*Check that"):
        job.run()
    assert len(job.log.of(RegionRegistered)) == 1


def test_missing_topics_are_named(job: Job) -> None:
    job.options["topic.prefix"] = "absent"
    job.feed("a", 1)
    with pytest.raises(StreamingQueryException, match=r"absent\.\w+ does not exist"):
        job.run()


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


def test_a_restart_without_a_completed_batch_waits(job: Job) -> None:
    """Nobody knows if a coordinator has ever accepted it."""
    job.feed("a", 1)
    job.run()
    (job.checkpoint / "commits" / "0").unlink()
    job.log.answer = silent
    job.options["registration.timeout"] = "3"
    files = job.data_files()
    with pytest.raises(StreamingQueryException, match="no coordinator answered the registration"):
        job.run()
    assert job.data_files() == files


def test_a_running_query_whose_location_another_driver_runs_ends(job: Job) -> None:
    job.feed("a", 1)
    query = job.write(processingTime="100 milliseconds")
    try:
        job.log.wait_completed(0)
        job.log.wait((job.checkpoint / "commits" / "0").exists, "the batch does not end")
        # Another driver starts in the same location; the coordinator answers it, and this driver reads that.
        job.log.wait(lambda: job.log.of(RegionHeartbeat), "no heartbeat, so the answers are not followed")
        register_query(SinkOptions.parse(job.options))
        numbers = iter(range(10_000))

        def ended() -> bool:
            job.feed(f"b{(number := next(numbers))}", 1, start=100 + number)
            return bool(query.awaitTermination(1))  # time: a pause between two batches

        with pytest.raises(StreamingQueryException) as caught:
            job.log.wait(ended, "it goes on")
        # At the start of a batch, or at its end.
        assert "another process runs its checkpoint location" in told(caught.value)
    finally:
        query.stop()


def told(error: BaseException | None) -> str:
    """The messages of an error and of its causes: of a batch's end, Spark's own names none."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or getattr(error, "_cause", None)
    return "\n".join(texts)


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


def test_an_idle_query_whose_incarnation_an_order_ends_fails(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    """A query whose source has no new rows plans no batch that could fail."""
    job.feed("a", 1)
    query = job.write(processingTime="100 milliseconds")
    try:
        job.log.wait_completed(0)
        job.log.wait(lambda: any(beat.idle for _, beat in job.log.of(RegionHeartbeat)), "not idle")
        stream = job.options["stream"]
        decided = job.log.judges.commit(stream).decision
        ended = job.log.judges.order(stream, StreamCommand(command="remove", region="JFK", number=0))
        asyncio.run(_announce(job.log, stream, ended))
        advice = r"Start all queries with the option `assignment` 1, and with the `assignment\.after` that"
        with pytest.raises(
            StreamingQueryException, match=rf"an operator removed the region.*{advice}"
        ) as caught:
            query.awaitTermination()
    finally:
        query.stop()
    assert "start the query again" not in str(caught.value)
    assert any("its incarnation has ended" in each for each in caplog.messages)
    job.options |= {"assignment": "1", "assignment.after": str(decided)}
    job.feed("b", 1, start=100)
    job.run()
    job.log.wait_completed(1)
    assert job.log.judges.commit(stream).cut["JFK"].incarnation == job.incarnation()


def _repeat_answer(job: Job, registration: Envelope) -> None:
    """Answer a registration of the region once more, as a coordinator does that recovers."""
    identity = registration.id
    answer = RegistrationAnswered(
        registration=identity, accepted=True, live=registration.incarnation, run=identity
    )
    asyncio.run(_announce(job.log, job.options["stream"], answer, region="JFK"))


def test_a_running_query_goes_on_after_an_old_answer_was_repeated(job: Job) -> None:
    """A coordinator that recovers may repeat answers; they state an older run, and decide nothing."""
    job.feed("a", 1)
    job.run()
    (older, registered), *_ = job.log.registrations()
    job.feed("b", 1, start=100)
    query = job.write(processingTime="100 milliseconds")
    try:
        job.log.wait_completed(1)
        job.log.wait(lambda: len({beat.run for _, beat in job.log.of(RegionHeartbeat)}) > 1, "no heartbeat")
        _repeat_answer(job, older)
        probes = len(job.log.probes())
        numbers = iter(range(10_000))

        def feed() -> None:
            job.feed(f"c{(number := next(numbers))}", 1, start=200 + number)
            query.awaitTermination(1)  # time: a pause between two batches

        def asked() -> bool:
            feed()
            return len(job.log.probes()) > probes

        job.log.wait(asked, "it does not ask")
        # The batch that asked may be completed already.
        asked_at = len(job.log.of(CheckpointCompleted))

        def goes_on() -> bool:
            feed()
            return len(job.log.of(CheckpointCompleted)) > asked_at

        job.log.wait(goes_on, "it does not go on")
    finally:
        query.stop()
        query.awaitTermination()
    assert registered.base is None


def test_a_location_goes_on_in_the_next_assignment(job: Job) -> None:
    job.feed("a", 1)
    job.run()
    job.log.wait_completed(0)
    stream, old = job.options["stream"], job.incarnation()
    job.log.judges.commit(stream)
    job.options |= {"assignment": "1", "regions": "JFK, LGA"}
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException, match=r"RegistrationRefused.*assignment-open"):
        job.run()
    assert job.incarnation() == old
    job.log.judges.order(stream, StreamCommand(command="close", number=0))
    with pytest.raises(StreamingQueryException, match=r"then set `assignment.after` to 1"):
        job.run()
    assert job.incarnation() == old
    job.options["assignment.after"] = "1"
    job.run()
    job.log.wait_completed(1)
    new = job.incarnation()
    assert new != old
    ((_, completion),) = job.log.of(CheckpointCompleted, new)
    assert completion.predecessor == position(job.checkpoint, old, 0)


def test_the_table_is_told_and_another_one_is_asked_for(job: Job) -> None:
    job.feed("a", 1)
    job.run()
    job.log.wait(lambda: job.log.of(FilesWritten), "no files")
    ((_, written),) = job.log.of(FilesWritten)
    assert {body.table for _, body in job.log.of(RegionRegistered)} == {written.location}
    job.log.answer = refuse("the job writes elsewhere")
    job.options["table"] = str(job.folder / "elsewhere")
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException, match="the job writes elsewhere"):
        job.run()


def test_numbering_that_began_elsewhere_needs_a_word(job: Job) -> None:
    """A query that wrote to another sink before must not seem to have lost its first batches."""
    job.feed("a", 1)
    job.run()
    job.marker.unlink()
    job.options["stream"] = other = f"{job.options['stream']}-other"
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException, match=r"BadCheckpointLocation.*batch 1 is planned.*first=2"):
        job.run()

    with pytest.raises(
        BadCheckpointLocation, match=r"the former sink does not have batch 1, add unwritten=True"
    ):
        start_incarnation(str(job.checkpoint), first=1)
    incarnation = start_incarnation(str(job.checkpoint), first=1, unwritten=True)
    job.run()
    job.log.wait_completed(1)
    ((envelope, completion),) = job.log.of(CheckpointCompleted, incarnation)
    assert (envelope.stream, envelope.checkpoint, completion.predecessor) == (other, 1, None)
    assert job.log.judges.commit(other).cut["JFK"] == position(job.checkpoint, incarnation, 1)
    with pytest.raises(BadCheckpointLocation, match="from batch 1 on"):
        start_incarnation(str(job.checkpoint), first=0)


def test_a_location_of_another_region_is_refused(job: Job) -> None:
    """Its rows are that region's: the new one would go on without them, or have them twice."""
    job.feed("a", 1)
    job.run()
    job.options["region"] = "EWR"
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException, match=r"wrote the region JFK of the stream .* not EWR"):
        job.run()
    job.options["region"] = "JFK"
    job.run()
    job.log.wait_completed(1)
    assert {envelope.region for envelope, _ in job.log.of(CheckpointCompleted)} == {"JFK"}


def test_a_location_of_another_stream_is_refused_and_can_be_taken_along(job: Job) -> None:
    """Each text is followed; the old stream commits late."""
    job.feed("a", 1)
    job.run()
    old = job.options["stream"]
    moved = job.options | {"stream": f"{old}-moved"}
    with pytest.raises(BadCheckpointLocation, match=rf"wrote to the stream {old} so far.*first=1\)"):
        check_location(SinkOptions.parse(moved))
    start_incarnation(str(job.checkpoint), first=1)
    job.options = moved | {"registration.timeout": "3"}
    job.feed("b", 1, start=100)
    early = rf"of its region JFK, the stream {old} has committed nothing.*shows checkpoint 0 as committed"
    with pytest.raises(StreamingQueryException, match=early):
        job.run()
    assert {envelope.stream for envelope, _ in job.log.registrations()} == {old}
    job.log.judges.commit(old)
    job.options = moved
    job.run()
    job.log.wait_completed(1)
    ((envelope, completion),) = job.log.of(CheckpointCompleted, job.incarnation())
    assert (envelope.stream, envelope.checkpoint) == (moved["stream"], 1)
    assert completion.predecessor is None


def test_a_query_that_waits_for_ever_can_be_stopped(job: Job) -> None:
    job.log.answer = silent
    job.options["registration.timeout"] = "forever"
    job.feed("a", 1)
    query = job.write(processingTime="100 milliseconds")
    job.log.wait(lambda: job.log.of(RegionRegistered), "not asked")
    query.stop()
    with pytest.raises(StreamingQueryException, match="was stopped while its registration waited"):
        query.awaitTermination()
    job.log.answer = None
    job.options["registration.timeout"] = "900"
    job.run()
    job.log.wait_completed(0)
