"""A completion has each writer once, and another digest for other content."""

from types import SimpleNamespace
from typing import cast

import pytest

from sluicegate.events.models import CheckpointCompleted
from sluicegate.writer_hooks.errors import NotOurs
from sluicegate.writer_hooks.incarnation import completion
from sluicegate.writer_hooks.writer import WriterResult

PLACE = ("q1", 3)


def result(
    writer: str, *events: str, place: tuple[str, int] = PLACE, time: int | None = None
) -> WriterResult:
    attempt = SimpleNamespace(incarnation=place[0], checkpoint=place[1], writer=writer)
    written = SimpleNamespace(events=events, max_event_time=time)
    return cast(WriterResult, SimpleNamespace(attempt=attempt, written=written))


def made(*results: WriterResult, offsets: str = "{}", watermark: int | None = None) -> CheckpointCompleted:
    return completion(
        PLACE, results, predecessor=None, source_offsets=offsets, watermark=watermark, listeners={}
    )


def test_the_events_of_all_writers_are_named() -> None:
    assert made(result("w1", "a", "b"), result("w2", "c")).events == ("a", "b", "c")


def test_two_results_of_one_writer_are_refused() -> None:
    """Both are attempts of the same rows."""
    with pytest.raises(NotOurs, match="two results of one writer"):
        made(result("w1", "a"), result("w2", "b"), result("w1", "c"))


@pytest.mark.parametrize("place", [("q2", 3), ("q1", 4)])
def test_a_result_of_another_checkpoint_is_refused(place: tuple[str, int]) -> None:
    with pytest.raises(NotOurs):
        made(result("w1", "a", place=place))


def test_the_digest_is_that_of_all_content() -> None:
    """A second completion with other rows stalls the region, although its offsets are the same."""
    digests = {
        made(result("w1", "a")).source_digest,
        made(result("w1", "b")).source_digest,
        made(result("w1", "a"), result("w2", "b")).source_digest,
        made(result("w1", "a"), offsets='{"n":1}').source_digest,
        made().source_digest,
    }
    assert len(digests) == 5
    assert made(result("w1", "a")).source_digest in digests


def test_the_highest_event_time_is_the_watermark_unless_one_is_given() -> None:
    results = result("w1", "a", time=5), result("w2", "b", time=9), result("w3", "c")
    assert (made(*results).watermark, made(*results, watermark=4).watermark) == (9, 4)
    assert made(result("w1", "a")).watermark is None
