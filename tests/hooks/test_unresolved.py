"""Drivers beside a decision that has no outcome yet: nothing of it is final, and nothing begins on it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sluicegate.events.models import CheckpointCompleted
from sluicegate.writer_hooks import Job, RegionDriver, driver_state
from tests.hooks.log import Log
from tests.hooks.options import in_log

pytestmark = [pytest.mark.kafka, pytest.mark.seam]
Options = dict[str, str]


@pytest.fixture
def options(log: Log, unique: str, tmp_path: Path) -> Options:
    return in_log(log, unique, "jobs") | {"table": str(tmp_path / "flights"), "format": "delta"}


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadPoolExecutor]:
    """Threads whose jobs soon ask whether they were replaced."""
    monkeypatch.setattr(driver_state, "FIRST_QUESTION", 0.5)
    with ThreadPoolExecutor() as opened:
        yield opened


def probes_after(log: Log, number: int) -> Callable[[], bool]:
    """Return a condition: so many further probes are in the log, and each of them has an answer."""
    before = len(log.probes())
    return lambda: len(log.probes()) >= before + number


def complete(pool: ThreadPoolExecutor, log: Log, job: Job) -> "threading.Event":
    """Begin to finish a job; the wait ends when its completion is in the log."""
    before, ended = len(log.of(CheckpointCompleted)), threading.Event()

    def finish() -> None:
        try:
            job.finish([])
        finally:
            ended.set()

    pool.submit(finish)
    log.wait(lambda: len(log.of(CheckpointCompleted)) > before, "no completion")
    return ended


def jobs_of(log: Log, stream: str) -> str | None:
    found = log.judges.replica(stream).state.committed("jobs")
    return found.source_offsets


def test_a_job_that_is_only_decided_is_neither_committed_nor_free(
    log: Log, options: Options, unique: str, pool: ThreadPoolExecutor
) -> None:
    """Its next start waits for the outcome. Reverted, it runs; then no other job counts it as there."""
    first, again = Job(options, "j1"), Job(options, "j1")
    assert first.start() is True
    complete(pool, log, first)
    log.judges.decide(unique)
    first.stop()

    asked = probes_after(log, 3)
    starting = pool.submit(again.start)
    log.wait(asked, "the job does not ask again")
    assert not starting.done(), "a decision without an outcome was told as a result"
    log.judges.revert(unique, "jobs")
    assert starting.result() is True
    assert again.begun.base is None

    ended = complete(pool, log, again)
    assert not ended.is_set()
    log.judges.commit(unique)
    assert jobs_of(log, unique) == '{"jobs":["j1"]}'
    again.stop()
    with Job(options, "j2") as other:
        assert other.start() is True
        assert other.begun.done == ("j1",)
    with Job(options, "j1") as third:
        assert third.start() is False


def test_a_driver_begins_after_the_outcome(
    log: Log, options: Options, unique: str, pool: ThreadPoolExecutor
) -> None:
    with RegionDriver(options) as driver:
        driver.complete(driver.begin(), [], source_offsets={"at": 1})
    log.wait_completed(0)
    made, asked = log.judges.decide(unique), probes_after(log, 2)
    second = RegionDriver(options)
    starting = pool.submit(second.start)
    log.wait(asked, "the driver does not ask again")
    assert not starting.done()
    assert len(log.registrations()) == 1
    log.judges.resolve(unique, made)
    after = starting.result()
    assert after is not None
    assert (after.number, after.source_offsets) == (0, {"at": 1})
    second.stop()
