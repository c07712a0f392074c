"""What the log says of the run, and how it is shown."""

import io

from sluicegate.demo.progress import Display, describe
from sluicegate.demo.watch import Progress
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import Body, CheckpointCompleted, Position, RegionClosed
from sluicegate.events.notifications import Committed, Notification, NotificationType, Stalled
from sluicegate.events.problems import Code, Problem


def _event(
    event_id: str, kind: EventType, body: Body | None, checkpoint: int = 0, *, rows: int = 0
) -> LogRecord:
    place = ("flights", "EWR", "q", checkpoint, "p0", "a")
    return LogRecord(0, 0, Envelope(event_id, kind, *place, rows=rows), body)


def _written(event_id: str, checkpoint: int, rows: int) -> LogRecord:
    return _event(event_id, EventType.FILES_WRITTEN, None, checkpoint, rows=rows)


def _completed(event_id: str, checkpoint: int, *events: str) -> LogRecord:
    body = CheckpointCompleted(events=events, predecessor=None, source_digest="d")
    return _event(event_id, EventType.CHECKPOINT_COMPLETED, body, checkpoint)


def _committed(decision: int, checkpoint: int, watermark: int) -> Notification:
    body = Committed(
        decision=decision,
        cut={"EWR": Position(incarnation="q", checkpoint=checkpoint, digest="d")},
        snapshot=None,
        watermark=watermark,
        files=1,
    )
    return Notification(f"c{decision}", NotificationType.COMMITTED, "flights", "", "", body)


def _apply(progress: Progress, *seen: LogRecord | Notification) -> None:
    for each in seen:
        if isinstance(each, LogRecord):
            progress.apply(each)
        else:
            progress.notice(each)


def test_rows_count_when_their_batch_is_completed_and_when_it_is_committed() -> None:
    progress = Progress(["EWR"])
    view = progress.regions["EWR"]
    progress.apply(_written("a", 0, 10))
    progress.apply(_written("loser", 0, 10))
    assert view.rows_written == 0
    progress.apply(_completed("x", 0, "a"))
    progress.apply(_written("b", 1, 5))
    progress.apply(_completed("y", 1, "b"))
    assert (view.rows_written, view.rows_committed, view.committed) == (15, 0, -1)
    progress.notice(_committed(1, 0, 60_000))
    assert (view.rows_committed, view.committed, progress.commits) == (10, 0, 1)
    progress.apply(_event("z", EventType.REGION_CLOSED, RegionClosed(final=1, run="r")))
    assert view.closed


def test_repetitions_change_nothing() -> None:
    progress = Progress(["EWR"])
    events: list[LogRecord | Notification]
    events = [_written("a", 0, 10), _completed("x", 0, "a"), _committed(1, 0, 1), _committed(2, 1, 2)]
    _apply(progress, *events, *events)
    view = progress.regions["EWR"]
    assert (view.rows_written, view.committed, progress.commits, progress.watermark) == (10, 1, 2, 2)


def test_a_stall_is_remembered_with_its_reason_until_it_ends() -> None:
    progress = Progress(["EWR"])
    body = Stalled(problem=Problem(code=Code.TABLE_REPLACED), reason="the table is gone")
    begun = Notification("s", NotificationType.STALLED, "flights", "", "", body)
    progress.notice(begun)
    assert progress.stalled == "the table is gone"
    progress.notice(begun._replace(id="t", body=body.model_copy(update={"ended": True})))
    assert progress.stalled is None


def test_state_is_described_in_words_and_bars() -> None:
    progress = Progress(["EWR"])
    _apply(progress, _written("a", 0, 50), _completed("x", 0, "a"), _committed(1, 0, 1_357_000_000_000))
    region, table = describe(progress, {"EWR": 100}, ", killed once", bars=True)
    assert "[############............]" in region
    assert "1 batches, 50 of 100 rows, committed up to batch 0" in region
    assert table == "table: 1 commits, watermark 2013-01-01 00:26 UTC, killed once"


def test_before_the_first_commit_nothing_is_committed_yet() -> None:
    progress = Progress(["EWR"])
    assert describe(progress, {"EWR": 100}, "", bars=False) == ["Spark is starting; no batch is complete yet"]
    progress.apply(_completed("x", 0))
    (region, _) = describe(progress, {"EWR": 100}, "", bars=False)
    assert region == "EWR 1 batches, 0 of 100 rows, nothing committed yet"


def test_a_line_that_says_nothing_new_is_not_written() -> None:
    out = io.StringIO()
    display = Display(out)
    for block in (["one"], ["one"], ["two"], ["two"], ["one"]):
        display.show(block, at_once=True)
    assert [line.split("s  ", 1)[1] for line in out.getvalue().splitlines()] == ["one", "two", "one"]


def test_without_a_terminal_there_are_plain_lines_and_not_too_many() -> None:
    out = io.StringIO()
    display = Display(out)
    for _ in range(100):
        display.show(["EWR 1", "table 2"])
    display.note("done")
    lines = out.getvalue().splitlines()
    assert [line.split("s  ", 1)[1] for line in lines] == ["EWR 1 | table 2", "done"]
    assert "\x1b" not in out.getvalue()


def test_on_a_terminal_the_block_is_drawn_over_itself() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    display = Display(out)
    display.show(["first", "second"])
    display.note("a note")
    display.show(["third"], at_once=True)
    assert _screen(out.getvalue())[-1] == "third"
    assert [line for line in _screen(out.getvalue()) if line.endswith("a note")]
    assert len(_screen(out.getvalue())) == 2, "the block stands once, below the note"


def _screen(written: str) -> list[str]:
    """What a terminal shows that knows the two sequences of the display."""
    rows: list[str] = [""]
    for part in written.replace("\x1b[J", "").split("\x1b["):
        text = part
        if part[:1].isdigit() and part[1:2] == "A":
            rows, text = [*rows[: -1 - int(part[0])], ""], part[2:]
        *whole, rest = text.split("\n")
        for line in whole:
            rows[-1] += line
            rows.append("")
        rows[-1] += rest
    return rows[:-1] if rows[-1] == "" else rows
