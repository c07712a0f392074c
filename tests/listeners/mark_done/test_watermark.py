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


def test_a_commit_without_files_marks_too() -> None:
    """Paimon skips a commit without files; the watermark is that of the cut, not that of its files."""
    run = Run(AT_ONCE)
    run.commit(["2025-03-01"], now="2025-03-01", watermark="2025-03-01 10:00")
    assert run.commit([], now="2025-03-02", watermark="2025-03-02 10:00") == ["2025-03-01"]


def test_a_commit_without_watermark_marks_nothing_and_the_next_one_does() -> None:
    run = Run(AT_ONCE)
    assert run.commit(["2025-03-01"], now="2025-03-05") == []
    assert run.progress.watermark is None
    assert run.commit([], now="2025-03-05", watermark="2025-03-03") == ["2025-03-01"]
    run.commit(["2025-03-04"], now="2025-03-05")
    assert run.progress.watermark == at("2025-03-03")


def test_the_time_marks_nothing() -> None:
    run = Run(AT_ONCE)
    run.commit(["2025-03-01"], now="2025-03-01", watermark="2025-03-01 10:00")
    assert run.clock("2035-01-01") == []
    assert wake(run.progress, AT_ONCE) is None


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


def test_a_partition_that_comes_and_ends_in_one_commit_is_not_late() -> None:
    run = Run(AT_ONCE)
    run.commit(["2025-03-01"], now="2025-03-05", watermark="2025-03-05")
    assert not run.decided.marks[0].late


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


def test_commits_whose_partitions_are_unknown_are_visible() -> None:
    run = Run(AT_ONCE)
    for _ in range(EXAMPLES + 1):
        run.commit(None, now="2025-03-05", watermark="2025-03-05")
    assert run.progress.unknown == tuple(range(2, EXAMPLES + 2))


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


def test_the_state_of_one_partition_is_small() -> None:
    run = Run(AT_ONCE)
    run.commit(["2025-03-01"], now="2025-03-01", watermark="2025-03-01")
    one = len(run.progress.model_dump_json())
    run.commit(["2025-03-01", "2025-03-02"], now="2025-03-01", watermark="2025-03-01")
    assert len(run.progress.model_dump_json()) - one < 250


class Region:
    """Rows of one region by time. Its watermark is the time of its next row: it sends them in order."""

    def __init__(self, start: int, end: int, step: int) -> None:
        self.times = list(range(start, end, step))
        self.place = 0

    def send(self, most: int) -> list[int]:
        sent = self.times[self.place : self.place + most]
        self.place += len(sent)
        return sent

    @property
    def watermark(self) -> int | None:
        return self.times[self.place - 1] if self.place else None

    @property
    def done(self) -> bool:
        return self.place == len(self.times)


def day_of(time: int) -> str:
    return datetime.fromtimestamp(time / 1_000, UTC).date().isoformat()


class Regions:
    """Three regions that send their rows in order, and fall back at random."""

    def __init__(self, chance: random.Random) -> None:
        start, self.end = at("2025-03-01"), at("2025-03-08")
        self.chance = chance
        self.all = [Region(start + chance.randrange(HOUR), self.end, HOUR) for _ in range(3)]

    @property
    def done(self) -> bool:
        return all(region.done for region in self.all)

    @property
    def watermark(self) -> int | None:
        """Return the minimum, None while a region has none."""
        known = [each.watermark for each in self.all]
        return None if None in known else min(each for each in known if each is not None)

    def send(self) -> tuple[list[str], bool]:
        """Return the days of the next rows, and True if a region fell back."""
        moving = [region for region in self.all if self.chance.random() >= 0.4]
        times = [time for region in moving for time in region.send(self.chance.randrange(1, 40))]
        return sorted({day_of(time) for time in times}), len(moving) < len(self.all)

    def passed(self, day: str) -> bool:
        """Return True if every region has really sent all rows of a day."""
        return all(each.watermark is not None and each.watermark > at(day) + DAY for each in self.all)


@pytest.mark.parametrize("seed", range(30))
def test_no_day_is_marked_before_every_region_has_passed_it(seed: int) -> None:
    """Each mark is compared with the rows that the regions really sent."""
    regions = Regions(random.Random(seed))
    run = Run(AT_ONCE)
    marked: dict[str, int] = {}
    last: dict[str, int] = {}
    while not regions.done:
        days, partial = regions.send()
        run.decision += 1
        last |= dict.fromkeys(days, run.decision)
        seen = Commit(
            decision=run.decision,
            time=run.decision,
            watermark=regions.watermark,
            partial=partial,
            partitions=tuple({"dt": day} for day in days),
        )
        for day in run.keep(policy.commit(run.progress, seen, run.resolve, run.terms)):
            assert regions.passed(day)
            assert day not in marked
            marked[day] = run.decision
    assert list(marked) == [f"2025-03-0{number}" for number in range(1, 7)]
    assert all(marked[day] >= last[day] for day in marked)
    assert run.open == ["2025-03-07"]
