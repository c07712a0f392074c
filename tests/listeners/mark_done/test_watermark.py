"""Marks by the watermark of cuts: Paimon's cases, Flink's, and our own."""

import random
from datetime import UTC, datetime

import pytest

from sluicegate.listeners.mark_done import policy
from sluicegate.listeners.mark_done.policy import EXAMPLES, REMEMBERED, Commit, Terms, TooManyOpen, wake
from tests.listeners.mark_done.policies import DAY, HOUR, MINUTE, Run, at

TERMS = Terms("watermark", 15 * MINUTE)
AT_ONCE = Terms("watermark", 0)


def test_each_cut_marks_the_partitions_that_its_watermark_has_passed() -> None:
    run = Run(TERMS)
    days = ["2025-03-01", "2025-03-02", "2025-03-03"]
    assert run.commit(days, now="2025-03-09", watermark="2025-03-01 12:50") == []
    assert run.commit(["2025-03-04"], now="2025-03-09", watermark="2025-03-03 14:30") == days[:2]
    assert run.commit(["2025-03-05"], now="2025-03-09", watermark="2025-03-05 00:16") == [
        days[2],
        "2025-03-04",
    ]
    assert run.open == ["2025-03-05"]


def test_the_watermark_must_pass_the_end_and_the_delay() -> None:
    run = Run(TERMS)
    assert run.commit(["2025-03-01"], now="2025-03-09", watermark="2025-03-02 00:15") == []
    assert run.commit([], now="2025-03-09", watermark="2025-03-02 00:15:00.001") == ["2025-03-01"]


def test_a_commit_without_watermark_marks_nothing_and_the_next_one_does() -> None:
    run = Run(AT_ONCE)
    assert run.commit(["2025-03-01"], now="2025-03-05") == []
    assert run.progress.watermark is None
    assert run.commit([], now="2025-03-05", watermark="2025-03-03") == ["2025-03-01"]
    run.commit(["2025-03-04"], now="2025-03-05")
    assert run.progress.watermark == at("2025-03-03")


def test_a_shorter_delay_after_a_restart_marks_what_is_due_now() -> None:
    run = Run(Terms("watermark", 10 * DAY))
    run.commit(["2025-03-01"], now="2025-03-05", watermark="2025-03-05")
    run.terms = AT_ONCE
    assert run.clock("2025-03-05") == ["2025-03-01"]


def test_a_repetition_of_a_commit_has_no_effect() -> None:
    run = Run(AT_ONCE)
    assert run.commit(["2025-03-01"], now="2025-03-05", watermark="2025-03-05") == ["2025-03-01"]
    run.decision = 0
    assert run.commit(["2025-03-01"], now="2025-03-05", watermark="2025-03-05") == []
    assert run.open == []


def test_a_crash_before_the_state_was_written_repeats_the_same_mark() -> None:
    run = Run(AT_ONCE)
    run.commit(["2025-03-01"], now="2025-03-01", watermark="2025-03-01")
    before = run.progress
    run.commit(["2025-03-02"], now="2025-03-05", watermark="2025-03-02 08:00")
    first = run.decided.marks
    run.progress, run.decision = before, 1
    run.commit(["2025-03-02"], now="2025-03-05", watermark="2025-03-02 08:00")
    assert run.decided.marks == first
    assert [mark.key for mark in first] == ["dt=2025-03-01@1"]


def test_late_data_is_marked_with_its_own_commit() -> None:
    """Paimon waits until the watermark has moved by the delay again, which may never be the case."""
    run = Run(TERMS)
    assert run.commit(["2025-03-01"], now="2025-03-05", watermark="2025-03-05") == ["2025-03-01"]
    assert run.commit(["2025-03-01"], now="2025-03-06", watermark="2025-03-05") == ["2025-03-01"]
    (mark,) = run.decided.marks
    assert (mark.late, mark.number, mark.decision, mark.snapshot) == (True, 2, 2, 2)


def test_late_data_may_settle_first() -> None:
    terms = AT_ONCE._replace(settle=10 * MINUTE)
    run = Run(terms)
    assert run.commit(["2025-03-01"], now="2025-03-05", watermark="2025-03-05") == ["2025-03-01"]
    assert run.commit(["2025-03-01"], now="2025-03-05 01:00", watermark="2025-03-05") == []
    assert run.commit(["2025-03-01"], now="2025-03-05 01:05", watermark="2025-03-05") == []
    assert wake(run.progress, terms) == at("2025-03-05 01:15") + 1
    assert run.clock("2025-03-05 01:15") == []
    assert run.clock("2025-03-05 01:15", 1) == ["2025-03-01"]
    assert run.decided.marks[0].decision == 3


def test_a_partition_that_begins_late_is_late_without_a_former_mark() -> None:
    run = Run(AT_ONCE)
    run.commit([], now="2025-03-05", watermark="2025-03-05")
    assert run.commit(["2025-03-01"], now="2025-03-05", watermark="2025-03-05") == ["2025-03-01"]
    assert (run.decided.marks[0].late, run.decided.marks[0].number) == (True, 1)


@pytest.mark.parametrize("bad", [None, "unknown", "2025-02-30", "__DEFAULT_PARTITION__"])
def test_a_partition_without_a_time_blocks_no_other_and_is_visible(bad: str | None) -> None:
    run = Run(AT_ONCE)
    marked = run.commit([bad, "2025-03-01"], now="2025-03-05", watermark="2025-03-05")
    assert marked == ["2025-03-01"]
    assert run.open == []
    assert run.progress.undated.count == 1
    (name, reason), *_ = run.progress.undated.examples.items()
    assert name == ("dt" if bad is None else f"dt={bad}")
    assert reason


def test_examples_of_partitions_without_a_time_are_bounded() -> None:
    run = Run(AT_ONCE)
    run.commit([f"x{number}" for number in range(100)], now="2025-03-05", watermark="2025-03-05")
    assert run.progress.undated.count == 100
    assert list(run.progress.undated.examples) == [f"dt=x{number}" for number in range(100 - EXAMPLES, 100)]


def test_more_open_partitions_than_the_limit_stop_it_before_anything_is_lost() -> None:
    run = Run(AT_ONCE._replace(limit=2))
    run.commit(["2025-03-01", "2025-03-02"], now="2025-03-01", watermark="2025-03-01")
    before = run.progress
    with pytest.raises(TooManyOpen, match=r"max_open_partitions is 2\. Raise it"):
        run.commit(["2025-03-03"], now="2025-03-01", watermark="2025-03-01")
    run.terms, run.progress, run.decision = AT_ONCE, before, 1
    assert len(run.commit(["2025-03-03"], now="2025-03-09", watermark="2025-03-09")) == 3


def test_what_is_done_is_forgotten_and_late_data_is_marked_all_the_same() -> None:
    run = Run(AT_ONCE)
    days = [f"{year}-03-01" for year in range(1000, 1000 + REMEMBERED + 50)]
    assert run.commit(days, now="2025-03-05", watermark="2025-03-05") == days
    assert len(run.progress.done) == REMEMBERED
    assert "dt=1000-03-01" not in run.progress.done
    assert run.commit(["1000-03-01"], now="2025-03-06", watermark="2025-03-05") == ["1000-03-01"]
    assert (run.decided.marks[0].late, run.decided.marks[0].number) == (True, 1)


@pytest.mark.parametrize("seed", range(30))
def test_no_day_is_marked_before_every_region_has_passed_it(seed: int) -> None:
    """Three regions send rows in order, and fall back at random. Each mark is compared with the rows."""
    chance, run = random.Random(seed), Run(AT_ONCE)
    starts = [at("2025-03-01") + chance.randrange(HOUR) for _ in range(3)]
    rows = [list(range(start, at("2025-03-08"), HOUR)) for start in starts]
    sent: list[list[int]] = [[], [], []]
    marked: dict[str, int] = {}
    last: dict[str, int] = {}
    while any(rows):
        moved: list[int] = []
        partial = False
        for number in range(3):
            most = chance.randrange(1, 40) if chance.random() >= 0.4 else 0
            partial = partial or not most
            moved += rows[number][:most]
            sent[number] += rows[number][:most]
            del rows[number][:most]
        days = sorted({datetime.fromtimestamp(time / 1_000, UTC).date().isoformat() for time in moved})
        run.decision += 1
        last |= dict.fromkeys(days, run.decision)
        watermark = min(each[-1] for each in sent) if all(sent) else None
        partitions = tuple({"dt": day} for day in days)
        seen = Commit(
            decision=run.decision,
            time=run.decision,
            watermark=watermark,
            partial=partial,
            partitions=partitions,
        )
        for day in run.keep(policy.commit(run.progress, seen, run.resolve, run.terms)):
            assert all(each and each[-1] > at(day) + DAY for each in sent)
            assert day not in marked
            marked[day] = run.decision
    assert list(marked) == [f"2025-03-0{number}" for number in range(1, 7)]
    assert all(marked[day] >= last[day] for day in marked)
    assert run.open == ["2025-03-07"]
