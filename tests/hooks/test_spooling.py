"""Uploads that wait, without a server: what is reported as lost, and what a sweep leaves."""

import fcntl
import os
import time
from pathlib import Path

import pytest

from sluicegate.events.models import Assignment
from sluicegate.writer_hooks.options import Uploads
from sluicegate.writer_hooks.region import KafkaSettings, Region
from sluicegate.writer_hooks.upload.overdue import OverdueUploads
from sluicegate.writer_hooks.upload.spool import EntryName, Spool, make_spool

REGION = "0" * 16


def uploads(**options: str) -> Uploads:
    found = Uploads.parse(
        {"upload": "async", **{name.replace("_", "."): each for name, each in options.items()}}
    )
    assert found is not None
    return found


class Reports(OverdueUploads):
    """Losses whose reports are kept."""

    def __init__(self) -> None:
        kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
        region = Region("flights", "r1", kafka, Assignment(number=0, regions=("r1",)))
        super().__init__(region, uploads(upload_timeout="100"))
        self.reported: list[tuple[int, float]] = []

    def _report(self, incarnation: str, number: int, now: float) -> None:
        self.reported.append((number, now))
        self._completed[number] = now


def test_only_the_oldest_checkpoint_is_reported_after_its_time() -> None:
    overdue = Reports()
    for now in range(0, 230, 10):
        overdue.report("q1", float(now))
        if now in (0, 50):
            overdue.complete(3 + now // 50, float(now))
    assert overdue.reported == [(3, 100.0), (3, 200.0)]
    overdue.commit(3)
    overdue.report("q1", 230.0)
    assert overdue.reported[-1] == (4, 230.0)


@pytest.mark.parametrize(("in_spool", "reports"), [({3}, 0), ({2}, 0), ({4}, 1), (set(), 1)])
def test_a_checkpoint_with_files_in_the_spool_is_left_to_its_uploader(
    in_spool: set[int], reports: int
) -> None:
    overdue = Reports()
    overdue.complete(3, 0.0)
    for now in range(0, 110, 10):
        overdue.report("q1", float(now), in_spool=in_spool)
    assert len(overdue.reported) == reports


def test_time_in_which_kafka_was_away_does_not_count() -> None:
    overdue = Reports()
    overdue.report("q1", 0.0)
    overdue.complete(3, 0.0)
    overdue.report("q1", 3_600.0)
    assert overdue.reported == []
    for now in range(3_610, 3_720, 10):
        overdue.report("q1", float(now))
    assert overdue.reported == [(3, 3_700.0)]


# --- the spool ----------------------------------------------------------------------------------------


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return make_spool(str(tmp_path / "spool"))


def name_of(checkpoint: int, attempt: str) -> EntryName:
    return EntryName(time.time_ns(), REGION, checkpoint, 10, attempt)


def put(spool: Spool, name: EntryName) -> None:
    os.close(spool.begin(name.attempt))
    spool.put(name, "{}")


def test_the_limit_counts_other_checkpoints_of_the_region(spool: Spool) -> None:
    limits = uploads(upload_max_checkpoints="1")
    put(spool, name_of(7, "a" * 32))
    assert spool.excess(limits, REGION, 7) is None
    assert spool.excess(limits, "f" * 16, 8) is None
    assert spool.excess(limits, REGION, 8) is not None


def test_a_sweep_leaves_files_of_entries_and_of_living_tasks(spool: Spool) -> None:
    with_entry, dead, alive = "a" * 32, "b" * 32, "c" * 32
    put(spool, name_of(7, with_entry))
    os.close(spool.begin(dead))
    lock = spool.begin(alive)
    try:
        spool.sweep()
        assert sorted(os.listdir(f"{spool.folder}/files")) == [with_entry, alive]
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)
