"""Places in a log: how they are written, and which decisions lie between two of them."""

import pytest

from sluicegate.coordinator.core.state import Decision
from sluicegate.replay.course import Settled, Span
from sluicegate.replay.marks import Window, parse_mark
from sluicegate.replay.progress import Progress


def decision(number: int) -> Settled:
    """Decision n at offset 10 n and time 100 n takes checkpoints 2 n - 1 and 2 n of r1."""
    body = Decision(
        id=number,
        digest="d",
        offset=10 * number,
        cut={},
        final=False,
        watermark=None,
        parts=[],
        files=1,
        first_offset=0,
    )
    spans = (Span("r1", "q1", 2 * number - 2, 2 * number),)
    return Settled(body, 100 * number, spans, voided=False)


@pytest.mark.parametrize(
    ("start", "stop", "inside"),
    [
        ("earliest", "latest", [1, 2, 3, 4]),
        ("offset:20", "offset:30", [2, 3]),
        ("offset:21", "offset:39", [3]),
        ("time:200", "time:300", [2, 3]),
        ("time:1970-01-01T00:00:00.150Z", "latest", [2, 3, 4]),
        ("checkpoint:r1/3", "checkpoint:r1/q1/6", [2, 3]),
        ("checkpoint:r1/4", "checkpoint:r1/4", [2]),
        ("earliest", "checkpoint:r1/1", [1]),
    ],
)
def test_a_window_holds_what_lies_between_its_marks(start: str, stop: str, inside: list[int]) -> None:
    window = Window(parse_mark(start), parse_mark(stop))
    places = {number: window.place(decision(number)) for number in (1, 2, 3, 4)}
    assert [number for number, place in places.items() if place == "in"] == inside
    assert window.unmet() is None
    order = ["before", "in", "after"]
    assert list(places.values()) == sorted(places.values(), key=order.index)


@pytest.mark.parametrize(
    ("start", "stop", "unmet"),
    [
        ("checkpoint:r1/99", "latest", "checkpoint:r1/99"),
        ("checkpoint:r2/1", "latest", "checkpoint:r2/1"),
        ("checkpoint:r1/q2/1", "latest", "checkpoint:r1/q2/1"),
        ("earliest", "checkpoint:r1/99", "checkpoint:r1/99"),
    ],
)
def test_a_checkpoint_that_nobody_took_is_named(start: str, stop: str, unmet: str) -> None:
    window = Window(parse_mark(start), parse_mark(stop))
    for number in (1, 2, 3, 4):
        window.place(decision(number))
    mark = window.unmet()
    assert mark is not None
    assert mark.text == unmet


@pytest.mark.parametrize("text", ["", "yesterday", "offset:-1", "offset:x", "time:noon", "checkpoint:r1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_mark(text)


def test_progress_tells_the_share_and_the_time_to_go() -> None:
    said: list[str] = []
    progress = Progress(said.append, "reading", 100, 300, interval=0.0)
    progress.at(100)
    progress.at(150)
    progress.at(300)
    assert len(said) == 1
    assert said[0].startswith("reading: 50 of 200 (25%), about ")
