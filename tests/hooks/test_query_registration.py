"""Opening a lineage: the one question that a driver waits for."""

import json

import pytest
from pyspark.errors import StreamingQueryException

from sluicegate.events.models import CheckpointCompleted, FilesWritten, RegionOpened
from sluicegate.writer_hooks import BadCheckpointLocation, start_lineage
from tests.hooks.conftest import Job
from tests.hooks.log import accept, refuse, silent

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_refusal_fails_the_query_with_the_reason(job: Job) -> None:
    job.log.answer = refuse("the table has a primary key; run sluicegate accept")
    job.feed("a", 1)
    with pytest.raises(StreamingQueryException, match=r"OpeningRefused.*refused.*has a primary key"):
        job.run()
    assert job.log.of(FilesWritten) == []
    assert job.data_files() == set()


def test_no_answer_says_what_to_check(job: Job) -> None:
    job.log.answer = silent
    job.options["opening.timeout"] = "2"
    job.feed("a", 1)
    with pytest.raises(StreamingQueryException, match=r"no coordinator answered.*within 2 s.*Check that"):
        job.run()
    assert len(job.log.of(RegionOpened)) == 1


def test_missing_topics_are_named(job: Job) -> None:
    job.options["topic.prefix"] = "absent"
    job.feed("a", 1)
    with pytest.raises(StreamingQueryException, match=r"absent\.\w+ does not exist"):
        job.run()


def test_plain_restart_does_not_wait(job: Job) -> None:
    job.feed("a", 1)
    job.run()
    job.log.answer = silent
    job.feed("b", 1, start=100)
    job.run()
    job.log.wait_completed(1)
    assert [envelope.lineage for envelope, _ in job.log.of(RegionOpened)] == [job.lineage()] * 2


def test_refusal_after_a_restart_ends_the_query(job: Job) -> None:
    """Nobody waits, but a query whose lineage was replaced must not write for nothing for ever."""
    job.feed("a", 1)
    job.run()
    job.log.answer = refuse("the lineage was replaced")
    job.feed("b", 1, start=100)
    query = job.write(processingTime="100 milliseconds")

    def refused() -> bool:
        job.feed(f"c{len(list(job.source.iterdir()))}", 1, start=200)
        query.awaitTermination(1)  # time: a pause, until the query is refused
        return False

    # Spark tells the cause of a failed commit in its log only; the next start gives it at once.
    with pytest.raises(StreamingQueryException, match=r"OpeningRefused|Writing job failed"):
        job.log.wait(refused, "not refused")
    with pytest.raises(StreamingQueryException, match=r"OpeningRefused.*the lineage was replaced"):
        job.run()


def test_other_assignment_is_asked_for(job: Job) -> None:
    job.feed("a", 1)
    job.run()
    job.log.answer = refuse("LGA belongs to another stream")
    job.options |= {"assignment": "1", "regions": "JFK, LGA"}
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException, match="LGA belongs to another stream"):
        job.run()
    numbers = [body.assignment.number for _, body in job.log.of(RegionOpened)]
    assert numbers == [0, 1]


def test_the_table_is_told_and_another_one_is_asked_for(job: Job) -> None:
    job.feed("a", 1)
    job.run()
    job.log.wait(lambda: job.log.of(FilesWritten), "no files")
    ((_, written),) = job.log.of(FilesWritten)
    assert [body.table for _, body in job.log.of(RegionOpened)] == [written.location]
    job.log.answer = refuse("the job writes elsewhere")
    job.options["table"] = str(job.folder / "elsewhere")
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException, match="the job writes elsewhere"):
        job.run()


def test_numbering_that_began_elsewhere_needs_a_word(job: Job) -> None:
    """A query that wrote to another sink before must not seem to have lost its first batches."""
    job.feed("a", 1)
    job.run()
    (job.checkpoint / "sluicegate" / "lineage.json").unlink()
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException, match=r"BadCheckpointLocation.*first=1"):
        job.run()

    assert start_lineage(str(job.checkpoint), first=1) == job.lineage()
    job.run()
    job.log.wait_completed(1)
    assert [body.predecessor for _, body in job.log.of(CheckpointCompleted)] == [None, None]
    with pytest.raises(BadCheckpointLocation, match="from batch 1 on"):
        start_lineage(str(job.checkpoint), first=0)


def test_generation_that_a_rewind_raised_names_its_parents(job: Job) -> None:
    job.feed("a", 1)
    job.run()
    marker = job.checkpoint / "sluicegate" / "lineage.json"
    content = json.loads(marker.read_text())
    parent = {"region": "JFK", "lineage": job.lineage(), "checkpoint": 0}
    marker.write_text(json.dumps(content | {"generation": 1, "first": 1, "parents": [parent]}))
    job.feed("b", 1, start=100)
    job.run()
    job.log.wait_completed(1)

    (_, _), (envelope, opening) = job.log.of(RegionOpened)
    assert envelope.lineage == content["query"] + ".1"
    assert [each.model_dump() for each in opening.parents] == [parent]
    (_, completion) = job.log.of(CheckpointCompleted)[1]
    assert completion.predecessor is None


def test_a_run_of_one_batch_that_is_refused_fails(job: Job) -> None:
    """The refusal comes while the batch runs; the other worker, which commits it, must know."""
    job.feed("a", 1)
    job.run()
    job.log.answer = refuse("the lineage was replaced")

    def refused() -> bool:
        number = len(list(job.source.iterdir()))
        job.feed(f"f{number}", 1, start=100 * number)
        job.run()
        return number > 3

    # Spark tells the cause of a failed commit in its log only; the next start gives it at once.
    with pytest.raises(StreamingQueryException, match=r"OpeningRefused|Writing job failed"):
        job.log.wait(refused, "not refused")
    with pytest.raises(StreamingQueryException, match=r"OpeningRefused.*the lineage was replaced"):
        job.run()
    batches = [envelope.checkpoint for envelope, _ in job.log.of(CheckpointCompleted)]
    assert len(batches) < 4


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
    job.feed("a", 1)
    job.run()
    old = job.options["stream"]
    job.options["stream"] = new = f"{old}-moved"
    job.feed("b", 1, start=100)
    with pytest.raises(StreamingQueryException, match=rf"wrote to the stream {old} so far.*first=1"):
        job.run()
    assert {envelope.stream for envelope, _ in job.log.of(RegionOpened)} == {old}

    with pytest.raises(BadCheckpointLocation, match="from batch 0 on"):
        start_lineage(str(job.checkpoint), first=0)
    lineage = start_lineage(str(job.checkpoint), first=1)
    assert lineage == job.lineage().removesuffix(".0") + ".1"
    job.run()
    job.log.wait_completed(1)
    envelope, completion = job.log.of(CheckpointCompleted)[-1]
    assert (envelope.stream, envelope.lineage, envelope.checkpoint) == (new, lineage, 1)
    assert completion.predecessor is None


def test_a_query_that_waits_for_ever_can_be_stopped(job: Job) -> None:
    job.log.answer = silent
    job.options["opening.timeout"] = "forever"
    job.feed("a", 1)
    query = job.write(processingTime="100 milliseconds")
    job.log.wait(lambda: job.log.of(RegionOpened), "not asked")
    query.stop()
    with pytest.raises(StreamingQueryException, match="was stopped while its opening waited"):
        query.awaitTermination()
    job.log.answer = accept
    job.options["opening.timeout"] = "20"
    job.run()
    job.log.wait_completed(0)
