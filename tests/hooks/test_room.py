"""Room for another batch within the limits of a query's options, from files that Spark writes."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sluicegate.events.models import Position
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.writer_hooks import HookError, RegistrationUnanswered, TooManyUncommitted
from sluicegate.writer_hooks.options import PATIENCE, SinkOptions
from sluicegate.writer_hooks.region import Registered
from sluicegate.writer_hooks.registration import Stopped
from sluicegate.writer_hooks.spark.batch import Clock, UncommittedLimit
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker
from sluicegate.writer_hooks.spark.location import Location
from sluicegate.writer_hooks.spark.registry import Registry, require_attached
from tests.hooks.options import OPTIONS

MARKER = IncarnationMarker(query="q", incarnation="i", first=2, stream="flights", region="JFK")


def options_of(folder: Path, **limits: str) -> SinkOptions:
    return SinkOptions.parse(
        {
            **OPTIONS,
            "checkpointLocation": str(folder / "checkpoint"),
            **{name.replace("_", "."): value for name, value in limits.items()},
        }
    )


def plan(folder: Path, batch: int, age: float) -> None:
    """Write Spark's offsets of a batch that was planned so many seconds ago."""
    offsets = folder / "checkpoint" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    planned = {"batchWatermarkMs": 0, "batchTimestampMs": round((time.time() - age) * 1000)}
    (offsets / str(batch)).write_text("\n".join(["v1", json.dumps(planned), '{"logOffset":0}']))


def unanswered(options: SinkOptions, own: Registered, stopped: Stopped) -> RegistrationAnswered:
    raise RegistrationUnanswered("nobody")


def at(checkpoint: int, incarnation: str = "i") -> Position:
    return Position(incarnation=incarnation, checkpoint=checkpoint, digest="d")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(str(tmp_path / "registry"))


def room(tmp_path: Path, registry: Registry, **limits: str) -> UncommittedLimit:
    """Return a room of a query that fails over a limit, and whose coordinator is away."""
    limited = options_of(tmp_path, backpressure="fail", **limits)
    return UncommittedLimit(limited, "q", registry, lambda: MARKER, unanswered)


def test_commits_of_the_incarnation_make_room(tmp_path: Path, registry: Registry) -> None:
    limited = room(tmp_path, registry, max_uncommitted_checkpoints="2")
    registry.put("q", {}, Registered("i", "r"), at(9, "another"))
    limited.await_commits(3)
    with pytest.raises(TooManyUncommitted, match="not committed: 2 completed checkpoints"):
        limited.await_commits(4)
    registry.put("q", {}, Registered("i", "r"), at(2))
    limited.await_commits(4)
    registry.commit("q", at(9, "another"))
    with pytest.raises(TooManyUncommitted):
        limited.await_commits(5)
    registry.commit("q", at(4))
    registry.commit("q", at(3))  # a repetition of an old notification
    limited.await_commits(6)
    registry.new_run("q")
    limited.await_commits(6)


def test_a_batch_that_has_begun_is_not_held_back_at_its_end(tmp_path: Path, registry: Registry) -> None:
    """Spark calls the data source then, too; the batch is the newest planned one."""
    limited = room(tmp_path, registry, max_uncommitted_age="60")
    plan(tmp_path, 2, age=50)
    plan(tmp_path, 3, age=0)
    limited.await_commits()
    plan(tmp_path, 2, age=70)
    limited.await_commits()
    registry.new_run("q")
    with pytest.raises(TooManyUncommitted, match="checkpoint 2 is not committed after 7"):
        limited.await_commits()
    registry.commit("q", at(2))
    limited.await_commits()


def test_the_age_is_that_of_the_oldest_batch_that_spark_keeps(tmp_path: Path, registry: Registry) -> None:
    limited = room(tmp_path, registry, max_uncommitted_age="60")
    for batch, age in ((7, 70.0), (8, 10.0), (9, 0.0)):
        plan(tmp_path, batch, age)
    with pytest.raises(TooManyUncommitted, match="not committed after 7"):
        limited.await_commits()
    (tmp_path / "checkpoint" / "offsets" / "7").unlink()
    limited.await_commits()


def test_a_session_that_is_not_attached_is_refused() -> None:
    with pytest.raises(HookError, match=r"attach\(spark\) was not called.* before the query starts"):
        require_attached(None)


def test_a_downtime_does_not_count_for_the_age(tmp_path: Path, registry: Registry) -> None:
    """A run repeats the last batch first, which was planned before the downtime."""
    limited = room(tmp_path, registry, max_uncommitted_age="60")
    plan(tmp_path, 2, age=36_000)
    plan(tmp_path, 3, age=0)
    with pytest.raises(TooManyUncommitted):
        limited.await_commits()
    registry.put("q", {}, Registered("i", "r"))
    limited.await_commits()


def test_a_file_that_spark_deletes_meanwhile_counts_as_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = CheckpointLocation(str(tmp_path / "checkpoint"))
    for batch in (2, 3, 4):
        plan(tmp_path, batch, age=0)
    read = Location.read

    def purged(location: Location, name: str) -> bytes | None:
        (tmp_path / "checkpoint" / name).unlink(missing_ok=True)
        return read(location, name)

    monkeypatch.setattr(Location, "read", purged)
    assert checkpoint.planned_at(2) == 0.0


class Answers:
    """Coordinator that answers the questions of a waiting query, and the time of its wait."""

    def __init__(self, *committed: Position | Exception | None) -> None:
        self.committed = list(committed)
        self.asked: list[float] = []
        self.time = 0.0

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def ask(self, options: SinkOptions, own: Registered, stopped: Stopped) -> RegistrationAnswered:
        assert options.region.registration_timeout == PATIENCE
        self.asked.append(self.time)
        found = self.committed.pop(0)
        if isinstance(found, Exception):
            raise found
        return RegistrationAnswered(
            registration="e", accepted=True, live=own.incarnation, run=own.run, committed=found
        )


@pytest.mark.slow
def test_a_wait_without_notifications_asks_the_coordinator(tmp_path: Path, registry: Registry) -> None:
    """As in a session without a listener, while another session of the process has one."""
    answers = Answers(None, RegistrationUnanswered("nobody"), at(1), at(2), at(3), at(4))
    limited = replace(
        room(tmp_path, registry, max_uncommitted_checkpoints="2"),
        options=options_of(tmp_path, max_uncommitted_checkpoints="2"),
        ask=answers.ask,
        clock=Clock(lambda: answers.time, answers.sleep),
    )
    registry.put("q", {}, Registered("i", "r"))
    limited.await_commits(6)
    assert answers.asked == [5.0, 10.0, 20.0, 40.0, 70.0, 100.0]
    registry.stop_run("q")
    with pytest.raises(TooManyUncommitted, match="was stopped while batch 7 waited"):
        replace(limited, ask=unanswered).await_commits(7)


def test_a_query_asks_before_it_fails(tmp_path: Path, registry: Registry) -> None:
    limited = room(tmp_path, registry, max_uncommitted_checkpoints="1")
    registry.put("q", {}, Registered("i", "r"))
    replace(limited, ask=Answers(at(2)).ask).await_commits(3)
    with pytest.raises(TooManyUncommitted):
        replace(limited, ask=Answers(at(2)).ask).await_commits(4)
