"""The comparison of marks with the log: each month exactly when all airports have passed its end."""

from datetime import UTC, datetime

import pytest

from sluicegate.cli.local.watch import MONTHS, Progress, end_of
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import CheckpointCompleted, CommitSummary, Position, SnapshotRef
from sluicegate.events.notifications import Committed, Notification, NotificationType, PartitionDone

HOUR = 3_600_000
AIRPORTS = ("EWR", "JFK", "LGA")


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


class Log:
    """A log in which each commit has one more checkpoint of each airport, of one month."""

    def __init__(self) -> None:
        self.progress = Progress(AIRPORTS)
        self.marks = self.progress.marks

    def completed(self, region: str, checkpoint: int, watermark: int) -> None:
        envelope = Envelope("e", EventType.CHECKPOINT_COMPLETED, "flights", region, "q.0", checkpoint)
        body = CheckpointCompleted(events=(), predecessor=None, source_digest="d", watermark=watermark)
        self.progress.apply(LogRecord(0, 0, envelope, body))

    def committed(self, decision: int, month: str, **positions: int) -> None:
        body = Committed(
            decision=decision,
            cut={
                name: Position(incarnation="q", checkpoint=number, digest="d")
                for name, number in positions.items()
            },
            snapshot=SnapshotRef(id=decision * 10, identity="i"),
            watermark=None,
            files=1,
            summary=CommitSummary(table="t", touched=({"month": month},), visible=0),
        )
        self.progress.notice(
            Notification(f"c{decision}", NotificationType.COMMITTED, "flights", "", "", body)
        )

    def mark(self, month: str, cause: int, decision: int, name: str = "") -> None:
        """Append a mark with the commit `cause`; `decision` is the newest one that gave it files."""
        body = PartitionDone(
            table="t",
            partition=f"month={month}",
            values={"month": month},
            start=None,
            end=None,
            decision=decision,
            snapshot=cause * 10,
            watermark=None,
            reason="watermark",
            late=False,
            number=1,
        )
        self.progress.notice(
            Notification(name or f"m{month}", NotificationType.PARTITION_DONE, "flights", "", "", body)
        )


def year(skip: str = "") -> Log:
    """Return a year: commit N has the month N, and the airports pass its end with commit N + 1."""
    log = Log()
    for number, month in enumerate([*MONTHS, "2014-01"]):
        for region in AIRPORTS:
            log.completed(region, number, end_of(f"2013-{number:02}") + HOUR if number else at("2013-01-05"))
        log.committed(number + 1, month, **dict.fromkeys(AIRPORTS, number))
        if number and (done := MONTHS[number - 1]) != skip:
            log.mark(done, number + 1, number)
    return log


def test_a_year_with_each_mark_in_time_is_exact() -> None:
    found = year().marks
    verdict = found.verdict()
    assert verdict.exact
    assert [each.month for each in verdict.months] == list(MONTHS)
    assert str(verdict.months[0]) == (
        "2013-01 is done with commit 2: EWR at 2013-02-01 01:00, JFK at 2013-02-01 01:00, "
        "LGA at 2013-02-01 01:00"
    )
    assert found.marked == 12


def test_another_id_for_the_same_month_is_wrong() -> None:
    log = year()
    log.mark("2013-03", 4, 3, name="other")
    verdict = log.marks.verdict()
    assert not verdict.exact
    assert verdict.wrong == ("2013-03 has 2 marks, 2 of them with a commit",)


@pytest.mark.parametrize("cause", [6, 8])
def test_a_mark_before_or_after_its_commit_is_wrong(cause: int) -> None:
    log = year(skip="2013-06")
    log.mark("2013-06", cause, 6)
    (wrong,) = log.marks.verdict().wrong
    assert wrong.startswith(f"2013-06 is done with commit {cause}: ")
    assert wrong.endswith("all airports had passed it with commit 7")


def test_a_mark_that_lacks_the_newest_files_is_wrong() -> None:
    log = year(skip="2013-06")
    log.mark("2013-06", 7, 5)
    (wrong,) = log.marks.verdict().wrong
    assert wrong.endswith("commit 6 gave it files")


def test_the_airport_that_is_behind_decides() -> None:
    log = Log()
    for region, watermark in (("EWR", "2013-02-03"), ("JFK", "2013-01-31"), ("LGA", "2013-02-01")):
        log.completed(region, 0, at(watermark))
    log.committed(1, "2013-01", EWR=0, JFK=0, LGA=0)
    log.completed("JFK", 1, at("2013-02-02"))
    log.committed(2, "2013-01", EWR=0, JFK=1, LGA=0)
    log.completed("LGA", 1, at("2013-02-02"))
    log.completed("EWR", 1, at("2013-01-02"))
    # JFK's year is over, so it is in no further cut. EWR's own newest time was lower this time.
    log.committed(3, "2013-01", EWR=1, LGA=1)
    log.mark("2013-01", 3, 3)
    (month,) = log.marks.fresh()
    assert (month.decision, month.watermarks["EWR"]) == (3, at("2013-02-03"))
    assert not [each for each in log.marks.verdict().wrong if each.startswith("2013-01")]


def test_a_mark_is_shown_once_when_its_evidence_was_read() -> None:
    log = Log()
    log.mark("2013-01", 1, 1)
    assert log.marks.fresh() == []
    log.committed(1, "2013-01", EWR=0, JFK=0, LGA=0)
    log.completed("EWR", 0, at("2013-02-03"))
    log.completed("JFK", 0, at("2013-02-03"))
    assert log.marks.fresh() == []
    log.completed("LGA", 0, at("2013-02-03"))
    assert [each.month for each in log.marks.fresh()] == ["2013-01"]
    assert log.marks.fresh() == []
