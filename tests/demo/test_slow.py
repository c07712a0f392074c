"""The slow region of the demo: when it is slow, for whom, and what the log says of it."""

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pytest

from sluicegate.cli.local.slow_storage import Slowness, SlowWriter
from sluicegate.cli.local.watch import Progress
from sluicegate.events.envelope import Envelope, EventType, LogRecord
from sluicegate.events.models import CheckpointCompleted, CutAbandoned, FileInfo, Position
from sluicegate.events.notifications import Committed, Notification, NotificationType


@pytest.mark.parametrize("batches", [8, 40])
def test_it_begins_well_gets_slow_falls_silent_and_recovers(batches: int) -> None:
    planned = Slowness.plan("JFK", batches)
    first, last = min(planned.delays), max(planned.delays)
    assert 0 < first < last < batches / 2
    assert planned.delays[last] == max(planned.delays.values())
    assert sorted(planned.delays) == list(range(first, last + 1))


def test_only_the_region_is_slow_and_only_in_its_batches() -> None:
    planned = Slowness.from_text(Slowness.plan("JFK", 40).to_text())
    assert planned == Slowness.plan("JFK", 40)
    assert planned.delay("JFK", 5) > 0
    assert (planned.delay("EWR", 5), planned.delay("JFK", 0), planned.delay("JFK", 39)) == (0, 0, 0)


class _Files:
    location, schema_id, spec_id = "file:///t", 3, 4
    table_identity = "first"
    schema_digest = ""

    def __init__(self) -> None:
        self.said: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.said.append(f"write {batch.num_rows}")

    def finish(self) -> Iterator[FileInfo]:
        self.said.append("finish")
        return iter(())

    def abort(self) -> None:
        self.said.append("abort")


def test_files_are_durable_only_after_the_delay() -> None:
    files = _Files()
    writer = SlowWriter(files, lambda: files.said.append("pause"))
    writer.write(pa.record_batch({"id": [1, 2]}))
    assert list(writer.finish()) == []
    writer.abort()
    assert files.said == ["write 2", "pause", "finish", "abort"]
    assert (writer.location, writer.schema_id, writer.spec_id) == ("file:///t", 3, 4)
    assert writer.table_identity == "first"


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
