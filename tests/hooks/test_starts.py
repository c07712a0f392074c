"""A driver or a job that stands still while it starts never ends one that has begun to work meanwhile."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.writer_hooks import Job, RegionDriver, RegionReplaced, driver_state, job
from tests.hooks.log import Log
from tests.hooks.options import in_log

pytestmark = [pytest.mark.kafka, pytest.mark.seam]
Options = dict[str, str]
Ask = Callable[..., RegistrationAnswered]


@pytest.fixture
def options(log: Log, unique: str, tmp_path: Path) -> Options:
    return in_log(log, unique, "jobs") | {"table": str(tmp_path / "flights"), "format": "delta"}


def freeze(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Let the next driver stand still after the answer to its probe, while this work is done."""
    asked = driver_state.probe

    def probe(*place: object, **how: bool) -> RegistrationAnswered:
        for module in (driver_state, job):
            monkeypatch.setattr(module, "probe", asked)
        answer: RegistrationAnswered = asked(*place, **how)  # type: ignore[arg-type]
        work()
        return answer

    for module in (driver_state, job):
        monkeypatch.setattr(module, "probe", probe)


def test_a_driver_that_stood_still(log: Log, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    working, late = RegionDriver(options), RegionDriver(options)
    with RegionDriver(options) as before:
        before.complete(before.begin(), [], source_offsets={"at": 0})
    freeze(monkeypatch, working.start)
    with pytest.raises(RegionReplaced, match="another driver has registered since this one began to start"):
        late.start()
    # The one that works was not ended, and a later start takes its place on purpose.
    working.complete(working.begin(), [], source_offsets={"at": 1})
    with RegionDriver(options) as newest:
        newest.complete(newest.begin(), [], source_offsets={"at": 2})
    working.stop()


def test_a_driver_whose_decision_was_made_meanwhile(
    log: Log, options: Options, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live incarnation is the one that it saw: it begins after that one's commit."""
    first, second = RegionDriver(options), RegionDriver(options)
    first.start()
    first.complete(first.begin(), [], source_offsets={"at": 1})
    log.wait_completed(0)
    freeze(monkeypatch, lambda: log.judges.commit(unique))
    after = second.start()
    assert after is not None
    assert after.source_offsets == {"at": 1}
    second.stop()
    first.stop()


def test_a_job_that_stood_still(log: Log, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    working, late = Job(options, "j1"), Job(options, "j2")
    freeze(monkeypatch, working.start)
    with pytest.raises(RegionReplaced, match="another job has registered since this one began to start"):
        late.start()
    assert log.judges.replica(options["stream"]).state.region("jobs").run == working.begun.registered.run
    working.stop()
