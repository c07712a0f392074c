"""Room for another batch within the limits of a query's options, from files that Spark writes."""

import json
import time
from pathlib import Path

import pytest

from sluicegate.events.models import Position
from sluicegate.writer_hooks import BadOption, TooManyUncommitted
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import Registered
from sluicegate.writer_hooks.spark.begun import require_registered_alone
from sluicegate.writer_hooks.spark.checkpoint import IncarnationMarker
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.spark.room import Room

MARKER = IncarnationMarker(query="q", incarnation="i", first=2, stream="flights", region="JFK")


def options_of(folder: Path, **limits: str) -> SinkOptions:
    return SinkOptions.parse(
        {
            "stream": "flights",
            "region": "JFK",
            "table": "/lake/flights.db/flights",
            "kafka.bootstrap.servers": "localhost:9",
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


def at(checkpoint: int, incarnation: str = "i") -> Position:
    return Position(incarnation=incarnation, checkpoint=checkpoint, digest="d")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(str(tmp_path / "registry"))


def room(tmp_path: Path, registry: Registry, **limits: str) -> Room:
    return Room(options_of(tmp_path, backpressure="fail", **limits), "q", registry, lambda: MARKER)


def test_commits_of_the_incarnation_make_room(tmp_path: Path, registry: Registry) -> None:
    limited = room(tmp_path, registry, max_uncommitted_checkpoints="2")
    registry.put("q", {}, Registered("i", "r"), at(9, "another"))
    limited.await_room(3)
    with pytest.raises(TooManyUncommitted, match="2 completed checkpoints are not committed"):
        limited.await_room(4)
    registry.put("q", {}, Registered("i", "r"), at(2))
    limited.await_room(4)
    registry.commit("q", at(9, "another"))
    with pytest.raises(TooManyUncommitted):
        limited.await_room(5)
    registry.commit("q", at(4))
    registry.commit("q", at(3))  # a repetition of an old notification
    limited.await_room(6)
    registry.new_run("q")
    limited.await_room(6)


def test_a_batch_that_has_begun_is_not_held_back_at_its_end(tmp_path: Path, registry: Registry) -> None:
    """Spark calls the data source then, too; the batch is the newest planned one."""
    limited = room(tmp_path, registry, max_uncommitted_age="60")
    plan(tmp_path, 2, age=50)
    plan(tmp_path, 3, age=0)
    limited.await_room()
    plan(tmp_path, 2, age=70)
    limited.await_room()
    registry.new_run("q")
    with pytest.raises(TooManyUncommitted, match="checkpoint 2 is not committed after 7"):
        limited.await_room()
    assert registry.excess("q") is not None
    registry.commit("q", at(2))
    limited.await_room()
    assert registry.excess("q") is None


def test_the_age_is_that_of_the_oldest_batch_that_spark_keeps(tmp_path: Path, registry: Registry) -> None:
    limited = room(tmp_path, registry, max_uncommitted_age="60")
    for batch, age in ((7, 70.0), (8, 10.0), (9, 0.0)):
        plan(tmp_path, batch, age)
    with pytest.raises(TooManyUncommitted, match="not committed after 7"):
        limited.await_room()
    (tmp_path / "checkpoint" / "offsets" / "7").unlink()
    limited.await_room()


def test_limits_without_a_listener_are_refused(tmp_path: Path) -> None:
    limited = options_of(tmp_path, max_uncommitted_age="60")
    with pytest.raises(BadOption, match=r"call it once, before the query starts, or leave the options out"):
        require_registered_alone(limited, "q", {})
