"""Limits of a stream: the part of a cut that fits, and the rate of its events."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluicegate.coordinator.core.log import Part, Sealed
from sluicegate.coordinator.stream.files import Fit, Limits, fit, narrowed
from sluicegate.coordinator.stream.rate_limit import BURST, Pace
from sluicegate.events.models import Position
from sluicegate.events.problems import Code


def log_of(**regions: list[int]) -> Any:
    """A log with sealed checkpoints of one event each, by region with their sizes.

    The offsets of the n-th region begin at 100 n.
    """
    pending = {}
    for count, (name, sizes) in enumerate(regions.items()):
        sealed = [
            Sealed(
                Position(incarnation="q", checkpoint=number, digest="d"),
                cast(Any, SimpleNamespace(named=[Part(100 * count + number, size, 1, "w", "a")])),
                0,
            )
            for number, size in enumerate(sizes)
        ]
        pending[name] = SimpleNamespace(
            upto=lambda at, sealed=sealed: [
                each for each in sealed if each.position.checkpoint <= at.checkpoint
            ]
        )
    by_offset = {
        100 * count + number: size
        for count, each in enumerate(regions.values())
        for number, size in enumerate(each)
    }
    return SimpleNamespace(pending=pending, size_of=by_offset.__getitem__)


def fitting(log: Any, size: int, files: int = 1_000) -> Fit:
    return fit(Limits(files, size), log, whole(log), log.size_of)


def whole(log: Any) -> dict[str, Position]:
    return {name: Position(incarnation="q", checkpoint=99, digest="d") for name in log.pending}


@pytest.mark.parametrize(
    ("regions", "size", "upto", "excluded"),
    [
        ({"a": [1, 1], "b": [1]}, 3, {}, []),
        ({"a": [1, 1, 1], "b": [1]}, 3, {"a": 1}, []),
        ({"a": [5, 5, 5], "b": [1, 1]}, 7, {"a": 0}, []),
        ({"a": [5, 5, 5], "b": [1, 1, 1]}, 6, {"a": 0, "b": 0}, []),
        ({"a": [9, 1], "b": [1, 1]}, 8, {}, ["a"]),
        ({"a": [5], "b": [5], "c": [1]}, 6, {}, ["a"]),
        ({"a": [9], "b": [9]}, 8, {}, ["a", "b"]),
    ],
)
def test_the_checkpoints_that_fit_are_taken(
    regions: dict[str, list[int]], size: int, upto: dict[str, int], excluded: list[str]
) -> None:
    found = fitting(log_of(**regions), size)
    assert {name: each.checkpoint for name, each in found.upto.items()} == upto
    assert sorted(found.problems) == excluded
    assert {each.code for each in found.problems.values()} <= {Code.TOO_MANY_BYTES}


def test_checkpoints_before_one_with_too_many_files_are_taken() -> None:
    found = fitting(log_of(a=[1, 2, 9, 1], b=[9, 1]), 100, files=5)
    assert {name: each.checkpoint for name, each in found.upto.items()} == {"a": 1}
    (problem,) = found.problems.values()
    assert (problem.code, problem.region, problem.checkpoint, problem.number, problem.other) == (
        *(Code.TOO_MANY_FILES, "b", 0, 9),
        5,
    )


def test_only_events_that_fit_are_checked() -> None:
    log = log_of(a=[1, 1, 1], b=[9], c=[1])
    parts = {"a": (0, 1, 2), "b": (100,), "c": (200,)}
    kept, left = narrowed(log, parts, fitting(log, 3))
    assert kept == {"a": (0, 1), "c": (200,)}
    assert left == {2, 100}


LIMIT = 10


def over(times: list[int]) -> list[bool]:
    pace = Pace(LIMIT)
    return [pace.over(each) for each in times]


def test_the_burst_is_allowed_and_the_next_event_is_over() -> None:
    assert over([1_000] * (LIMIT * BURST + 1)) == [False] * (LIMIT * BURST) + [True]


def test_a_stream_at_its_limit_is_never_over() -> None:
    assert not any(over(list(range(0, 100 * 1_000, 1_000 // LIMIT))))


def test_a_stream_at_twice_its_limit_is_over_after_twice_the_burst() -> None:
    found = over(list(range(0, 100 * 1_000, 500 // LIMIT)))
    assert abs(found.index(True) - 2 * LIMIT * BURST) <= 2


def test_a_clock_that_steps_back_frees_no_room() -> None:
    assert over([5_000, *[0] * (LIMIT * BURST)])[-1]
