"""Marks by processing time: Paimon's cases of its trigger, and our own."""

from sluicegate.listeners.mark_done.policy import Terms, wake
from tests.listeners.mark_done.policies import MINUTE, Run, at, without_time

IDLE = 15 * MINUTE
TERMS = Terms("processing-time", IDLE)


def test_a_partition_is_done_after_its_end_and_the_idle_time() -> None:
    run = Run(TERMS)
    assert run.commit(["2024-02-02"], now="2024-02-01") == []
    assert run.clock("2024-02-03") == []
    assert run.open == ["2024-02-02"]
    assert run.clock("2024-02-03", IDLE) == []
    assert run.clock("2024-02-03", IDLE + 1) == ["2024-02-02"]
    assert run.open == []


def test_files_that_come_while_it_is_idle_start_the_idle_time_again() -> None:
    run = Run(TERMS)
    run.commit(["2024-02-03"], now="2024-02-03")
    run.commit(["2024-02-03"], now="2024-02-04 00:15")
    assert run.clock("2024-02-04", IDLE + 1) == []
    assert run.clock("2024-02-04", 2 * IDLE) == []
    assert run.clock("2024-02-04", 2 * IDLE + 1) == ["2024-02-03"]


def test_the_end_of_the_input_marks_everything_if_it_is_set() -> None:
    run = Run(TERMS._replace(drained=True))
    run.commit(["2024-02-02", "2024-02-09"], now="2024-02-01")
    assert run.drain("2024-02-01 00:01") == ["2024-02-02", "2024-02-09"]
    assert {mark.reason for mark in run.decided.marks} == {"drained"}


def test_a_commit_alone_marks_nothing() -> None:
    """The clock does, at `wake`; so a feed that is read late gives the same marks."""
    run = Run(TERMS)
    run.commit(["2024-02-01"], now="2024-02-01 10:00")
    assert wake(run.progress, TERMS) == at("2024-02-02 00:15") + 1
    assert run.commit(["2024-02-05"], now="2024-02-05 10:00") == []
    assert run.clock("2024-02-05 10:00") == ["2024-02-01"]


def test_late_data_opens_it_again_and_it_is_marked_again() -> None:
    run = Run(TERMS)
    run.commit(["2024-02-01"], now="2024-02-01 10:00")
    assert run.clock("2024-02-02", IDLE + 1) == ["2024-02-01"]
    first = run.decided.marks[0]
    run.commit(["2024-02-01"], now="2024-02-10")
    assert run.clock("2024-02-10", IDLE) == []
    assert run.clock("2024-02-10", IDLE + 1) == ["2024-02-01"]
    (again,) = run.decided.marks
    assert (first.late, first.number, first.decision) == (False, 1, 1)
    assert (again.late, again.number, again.decision) == (True, 2, 2)
    assert first.key != again.key


def test_a_region_that_fell_back_holds_it_back() -> None:
    run = Run(TERMS)
    run.commit(["2024-02-01"], now="2024-02-01 10:00", partial=True)
    assert wake(run.progress, TERMS) is None
    assert run.clock("2024-02-03") == []
    assert run.commit(["2024-02-02"], now="2024-02-03 10:00", partial=False) == []
    assert run.clock("2024-02-03 10:00") == ["2024-02-01"]


def test_partitions_without_a_time_are_done_by_idle_time_alone() -> None:
    run = Run(TERMS, without_time)
    run.commit(["EWR"], now="2024-02-01")
    run.commit(["JFK"], now="2024-02-01 00:10")
    assert run.clock("2024-02-01", IDLE) == []
    assert run.clock("2024-02-01", IDLE + 1) == ["EWR"]
    assert run.clock("2024-02-01 00:10", IDLE + 1) == ["JFK"]
