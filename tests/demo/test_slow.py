"""The slow region of the demo: when it is slow, for whom, and what the log says of it."""

from typing import Literal

import pyarrow as pa
import pytest

from sluicegate.cli.local.jobs import _late, slow_batches
from sluicegate.cli.local.watch import Progress
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import CheckpointCompleted, CutAbandoned, Position
from sluicegate.events.notifications import Committed, Notification, NotificationType


@pytest.mark.parametrize("batches", [8, 40])
def test_it_begins_well_gets_slow_falls_silent_and_recovers(batches: int) -> None:
    delays = slow_batches(batches)
    first, last = min(delays), max(delays)
    assert 0 < first < last < batches / 2
    assert delays[last] == max(delays.values())
    assert sorted(delays) == list(range(first, last + 1))


def test_rows_of_a_late_file_come_after_its_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    batches = [pa.record_batch({"flight_id": ids}) for ids in ([7, 8], [9], pa.array([], pa.int64()), [12])]
    assert list(_late({7: 1.5, 8: 3.0, 12: 8.0})(iter(batches))) == batches
    assert pauses == [1.5, 0.0, 8.0]


def _at(checkpoint: int) -> Position:
    return Position(incarnation="q", checkpoint=checkpoint, digest="d")


def _cut(decision: int, ewr: int, jfk: int, *, partial: bool) -> Notification:
    body = Committed(
        decision=decision,
        cut={"EWR": _at(ewr), "JFK": _at(jfk)},
        fallbacks={"JFK": _at(jfk)} if partial else {},
        snapshot=None,
        watermark=None,
        files=1,
    )
    kind = NotificationType.PARTIALLY_COMMITTED if partial else NotificationType.COMMITTED
    return Notification(f"c{decision}", kind, "flights", "", "", body)


def _abandoned(kind: Literal["forced", "ratio"], attempt: int) -> Notification:
    body = CutAbandoned(decision=4, attempt=attempt, kind=kind, regions=("JFK",))
    return Notification(f"a{attempt}", NotificationType.ABANDONED, "flights", "", "", body)


def test_waits_and_fallbacks_are_counted_from_the_log() -> None:
    progress = Progress(("EWR", "JFK"), max_fallbacks=2)
    for region, batch, time in (("EWR", 0, 100), ("JFK", 0, 110), ("EWR", 1, 200), ("EWR", 2, 300)):
        body = CheckpointCompleted(events=(), predecessor=None, source_digest="d")
        kind = EventType.CHECKPOINT_COMPLETED
        envelope = Envelope(f"{region}{batch}", kind, "flights", region, "q", batch)
        progress.apply(LogRecord(0, time, envelope, body))
    for notification, time in (
        (_cut(1, 0, 0, partial=False), 150),
        (_cut(2, 1, 0, partial=True), 260),
        (_cut(3, 2, 0, partial=True), 380),
        (_cut(3, 2, 0, partial=True), 999),
        (_abandoned("forced", 1), 400),
        (_abandoned("forced", 1), 401),
        (_cut(4, 3, 0, partial=True), 500),
        (_abandoned("ratio", 2), 510),
        (_cut(5, 4, 1, partial=False), 600),
    ):
        progress.notice(notification, time)
    assert (progress.partial_cuts, progress.forced_full, progress.abandoned) == (3, 1, 2)
    assert progress.max_fallbacks == 2
    assert progress.waits(["EWR"]) == [50, 60, 80]
    assert progress.waits(["EWR"], (150, 250)) == [60]
    assert progress.waits(["JFK"]) == [40]
