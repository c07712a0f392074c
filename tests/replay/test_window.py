"""Places in a log: how they are written, and which decisions are between two of them."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from sluicegate.coordinator.core.state import Before, Decision, RegionState
from sluicegate.coordinator.replay.decisions import LoggedDecision
from sluicegate.coordinator.replay.log import Progress, StreamLog
from sluicegate.coordinator.replay.reading import Window, parse_mark
from sluicegate.coordinator.settings.model import validate
from sluicegate.events.models import CutReverted, Position, StreamPolicy

POLICY = StreamPolicy(number=1)


def decision(number: int, *, reverted: bool = False) -> LoggedDecision:
    """Return decision n, at offset 10 n and time 100 n: it includes checkpoints 2 n - 1 and 2 n of r1."""
    to, outcome = Position(incarnation="q1", checkpoint=2 * number, digest="x"), None
    made = Decision(
        id=number,
        digest=f"d{number}",
        offset=10 * number,
        cut={"r1": to},
        fallbacks={},
        parts=[],
        files=1,
        first_offset=0,
        before=Before(regions={"r1": RegionState()}, watermark=None, provisional=False, former=None),
    )
    if reverted:
        outcome = CutReverted(decision=number, digest=f"reverted-d{number}", table="t")
    return LoggedDecision(made, 100 * number, {"r1": (2 * number - 1, 2 * number)}, POLICY, "t", outcome)


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


def test_a_reverted_decision_does_not_end_a_window_at_its_checkpoint() -> None:
    window = Window(parse_mark("earliest"), parse_mark("checkpoint:r1/4"))
    again = decision(2)
    places = [window.place(each) for each in (decision(1), decision(2, reverted=True), again, decision(3))]
    assert places == ["in", "in", "in", "after"]


@pytest.mark.parametrize("text", ["", "yesterday", "offset:-1", "offset:x", "time:noon", "checkpoint:r1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_mark(text)


def test_progress_tells_the_share_the_rate_and_the_time_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 10.0, 10.0, 10.0])
    monkeypatch.setattr("sluicegate.coordinator.replay.log.time.monotonic", lambda: next(times))
    lines: list[str] = []
    progress = Progress(lines.append, "reading", 100, 300, interval=0.0)
    progress.at(100)
    progress.at(150)
    progress.at(300)
    assert lines == ["reading: 50 of 200 (25%), 5/s, about 30 s left"]


class Batches(StreamLog):
    """A log of 100 records, in batches of 25."""

    async def _range(self, start: int, end: int) -> AsyncGenerator[list[ConsumerRecord], None]:
        headers = (("ce_type", b"org.sluicegate.files.written.v3"),)
        for first in range(start, end, 25):
            yield [
                ConsumerRecord("events", 0, at, 0, 0, None, b"", None, 0, 0, headers)
                for at in range(first, first + 25)
            ]


async def test_each_reading_of_a_log_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each batch, and at the places in between that a reader of slow batches notes."""
    now = 0.0
    monkeypatch.setattr("sluicegate.coordinator.replay.log.time.monotonic", lambda: now)
    settings = validate({"kafka": {"bootstrap_servers": "a:1"}, "streams": {"s": {"table": "/lake/t"}}}, {})
    lines: list[str] = []
    nothing: Any = None
    log = Batches(settings, TopicPartition("events", 0), nothing, nothing, lines.append)
    async for batch in log.read(0, 100):
        if batch[0].offset == 25:
            now += 1.0
            log.progress.at(30)
        now += 1.0
    assert lines == [
        "reading the log: 25 of 100 (25%), 25/s, about 3 s left",
        "reading the log: 30 of 100 (30%), 15/s, about 5 s left",
        "reading the log: 50 of 100 (50%), 17/s, about 3 s left",
        "reading the log: 75 of 100 (75%), 19/s, about 1 s left",
    ]
