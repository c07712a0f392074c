"""Limits of completed checkpoints that are not committed."""

import pytest

from sluicegate.writer_hooks import BadOption
from sluicegate.writer_hooks.options import Backpressure

COUNT = "max.uncommitted.checkpoints"
AGE = "max.uncommitted.age"


def test_without_an_option_there_is_no_limit() -> None:
    limit = Backpressure.parse({})
    assert not limit.is_limited
    assert limit.excess(dict.fromkeys(range(1000), 0.0), 1e9) is None


def test_a_number_of_checkpoints_is_a_limit() -> None:
    limit = Backpressure.parse({COUNT: "2"})
    assert limit.excess({7: 0.0}, 1e9) is None
    assert limit.excess({7: 0.0, 8: 0.0}, 0.0) == (
        "2 completed checkpoints are not committed, and max.uncommitted.checkpoints is 2"
    )


def test_an_age_is_a_limit_of_the_oldest() -> None:
    limit = Backpressure.parse({AGE: "60", "backpressure": "FAIL"})
    assert limit.reaction == "fail"
    assert limit.excess({}, 100.0) is None
    assert limit.excess({7: 40.0, 8: 90.0}, 100.0) is None
    found = limit.excess({7: 39.0, 8: 90.0}, 100.0)
    assert found == "checkpoint 7 is not committed after 61 s, and max.uncommitted.age is 60 s"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({COUNT: "0"}, "must be a whole number from 1"),
        ({AGE: "soon"}, "must be a number of seconds above 0"),
        ({AGE: "inf"}, "must be a number of seconds above 0"),
        ({"backpressure": "fail"}, f"needs a limit: set {COUNT} or {AGE} too"),
        ({COUNT: "1", "backpressure": "panic"}, "must be warn, wait, fail"),
    ],
)
def test_a_wrong_limit_is_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(BadOption, match=problem):
        Backpressure.parse(options)
