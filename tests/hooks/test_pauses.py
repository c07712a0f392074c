"""A pause of a query, as its listener and its sink see it, without Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from sluicegate.events.models import RegionHeartbeat
from sluicegate.writer_hooks import PublishFailed, publisher
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import Event, Registered
from sluicegate.writer_hooks.spark import batch as spark_batch
from sluicegate.writer_hooks.spark.batch import require_registered
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker, Pause
from sluicegate.writer_hooks.spark.heartbeats import Heartbeats, Run
from sluicegate.writer_hooks.spark.registry import Registry
from tests.hooks.options import OPTIONS

OWN = Registered("i1", "run-1")


class Sent:
    """Publisher that keeps the heartbeats; `fails`: without an acknowledgement."""

    def __init__(self) -> None:
        self.bodies: list[RegionHeartbeat] = []
        self.fails = False

    def publish(self, topic: str, events: Sequence[Event], timeout: float, option: str = "") -> None:
        for event in events:
            assert isinstance(event.body, RegionHeartbeat)
            self.bodies.append(event.body)
        if self.fails:
            raise PublishFailed("no acknowledgement")


class Query:
    """A query between Spark, its listener and its sink."""

    def __init__(self, folder: Path, sent: Sent) -> None:
        self.sent = sent
        self.location = folder / "checkpoint"
        self.checkpoint = CheckpointLocation(str(self.location))
        self.options = SinkOptions.parse(
            OPTIONS | {"table": str(folder / "flights"), "checkpointLocation": str(self.location)}
        )
        self.registry = Registry(str(folder / "registry"))
        self.registry.put("q", {}, OWN)

    def plan(self, batch: int, *, complete: bool) -> None:
        """Plan a batch as Spark does; perhaps complete it, too."""
        for folder in ("offsets", "commits") if complete else ("offsets",):
            (self.location / folder).mkdir(parents=True, exist_ok=True)
            (self.location / folder / str(batch)).touch()

    def beat(self) -> None:
        """Send a heartbeat of a query that Spark has reported as idle."""
        run = Run("r", "q", dict, 0.0, 0.0, idle=True)
        with self.registry.registering("q"):
            Heartbeats(5.0, 10.0, registry=self.registry)._send_heartbeat(run, self.options)

    def begin(self) -> None:
        """Let the sink begin the batch that is planned."""
        require_registered(self.options, {}, "q", self.registry, self.checkpoint)


@contextmanager
def query_in(folder: Path) -> Iterator[Query]:
    sent = Sent()
    marker = IncarnationMarker(query=None, incarnation=OWN.incarnation)
    with (
        patch.object(publisher, "shared_publisher", lambda kafka: sent),
        patch.object(spark_batch, "_require_incarnation", lambda *_: marker),
    ):
        yield Query(folder, sent)


def test_a_pause_ends_when_a_batch_is_planned(tmp_path: Path) -> None:
    with query_in(tmp_path) as query:
        assert query.checkpoint.pause() == Pause(None)
        query.plan(0, complete=False)
        assert query.checkpoint.pause() is None
        query.plan(0, complete=True)
        assert query.checkpoint.pause() == Pause(0)


def test_spark_reports_a_pause_while_the_next_batch_runs(tmp_path: Path) -> None:
    """The sink was called before, and found no heartbeat that has said idle."""
    with query_in(tmp_path) as query:
        query.plan(0, complete=True)
        query.plan(1, complete=False)
        query.begin()
        assert query.sent.bodies == []
        query.beat()
        assert [(body.idle, body.after) for body in query.sent.bodies] == [(False, None)]


def test_a_batch_takes_back_what_a_heartbeat_may_have_said(tmp_path: Path) -> None:
    with query_in(tmp_path) as query:
        query.plan(0, complete=True)
        query.sent.fails = True
        with pytest.raises(PublishFailed):
            query.beat()
        query.plan(1, complete=False)
        with pytest.raises(PublishFailed):
            query.begin()
        query.sent.fails = False
        # The next try of the batch, and the call of the sink at its end.
        query.begin()
        query.begin()
        found = [(body.idle, body.after, body.begins) for body in query.sent.bodies]
    assert found == [(True, 0, None), (False, None, 1), (False, None, 1)]
    assert {body.run for body in query.sent.bodies} == {OWN.run}


def test_heartbeats_are_not_sent_again_while_a_batch_registers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first batch waits for Kafka then, as the heartbeats do."""
    with query_in(tmp_path) as query:
        query.plan(0, complete=True)
        options = OPTIONS | {"table": str(tmp_path / "flights"), "checkpointLocation": str(query.location)}
        run = Run("r", "q", lambda: options, 0.0, 0.0, options=options)
        run.missed.add()
        heartbeats = Heartbeats(5.0, 10.0, registry=query.registry)
        with query.registry.registering("q"):
            heartbeats._beat(run)
        assert (query.sent.bodies, "sent again" in caplog.text) == ([], False)
        heartbeats._beat(run)
        assert (len(query.sent.bodies), "sent again" in caplog.text) == (1, True)


def test_a_new_run_begins_without_a_note(tmp_path: Path) -> None:
    with query_in(tmp_path) as query:
        query.plan(0, complete=True)
        query.beat()
        assert query.registry.may_be_idle("q")
        query.registry.new_run("q")
        assert not query.registry.may_be_idle("q")
