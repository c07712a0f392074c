"""Batches that an earlier run has left to uploaders."""

from pathlib import Path

import pytest

from sluicegate.events.models import CheckpointFailed
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.spark.checkpoint import IncarnationMarker
from sluicegate.writer_hooks.spark.heartbeats import Run, inherited_batch
from tests.hooks.conftest import Job
from tests.hooks.locations import finish, plan
from tests.integration.waiting import wait_until

MARKER = IncarnationMarker(query="q7", incarnation="a", stream="flights", region="JFK", first=1)


@pytest.mark.parametrize("stream", ["", "#stream=flights"])
def test_the_time_of_a_batch_is_kept_until_it_is_committed(tmp_path: Path, stream: str) -> None:
    uri = f"{tmp_path}{stream}"
    plan(tmp_path, 0, 1, 2, 3)
    finish(tmp_path, 0)
    assert inherited_batch(uri, MARKER, None, 10.0) is None, "of an earlier incarnation"
    finish(tmp_path, 1, 2)
    first = inherited_batch(uri, MARKER, 1, 10.0)
    assert first is not None
    assert (first.batch, first.since) == (2, 10.0)
    finish(tmp_path, 3)
    assert inherited_batch(uri, MARKER, None, 20.0) == first
    reset = MARKER.model_copy(update={"incarnation": "b", "first": 3})
    assert getattr(inherited_batch(uri, reset, None, 30.0), "since", None) == 30.0
    assert inherited_batch(uri, reset, 3, 40.0) is None
    assert getattr(inherited_batch(uri, reset, 2, 50.0), "since", None) == 50.0


@pytest.mark.kafka
def test_short_runs_report_a_loss_together(job: Job, tmp_path: Path) -> None:
    root = tmp_path / "location"
    plan(root, 0, 1)
    finish(root, 0, 1)
    asynchronous = {"upload": "async", "upload.spool": str(tmp_path / "spool"), "upload.timeout": "100"}
    options = SinkOptions.parse({**job.options, **asynchronous, "checkpointLocation": str(root)})
    now = 1_000.0

    def run_once(committed: int | None, decided: int | None) -> None:
        run = Run("r", "q7", lambda: None, last_rows=0.0, due=0.0, marker=MARKER, wall_clock=lambda: now)
        run.report_overdue(options, "a", committed, lambda: decided)

    run_once(0, None)
    now += 99
    run_once(None, -1)
    assert not job.log.of(CheckpointFailed)
    now += 2
    run_once(None, 1)  # it is committed, and no run has seen that
    plan(root, 2)
    finish(root, 2)
    run_once(None, -1)
    now += 101
    run_once(None, -1)
    wait_until(lambda: job.log.of(CheckpointFailed))
    assert [envelope.checkpoint for envelope, _ in job.log.of(CheckpointFailed)] == [2]
