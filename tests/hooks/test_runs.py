"""Registrations of runs that have had no batch yet."""

from pathlib import Path

import pytest

from sluicegate.events.models import RegionRegistered
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import Live, Registered
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.registry import Registry
from sluicegate.writer_hooks.spark.runs import Run
from tests.hooks.locations import plan

MARKER = IncarnationMarker(query="q7", incarnation="a", stream="flights", region="JFK", first=1)


@pytest.fixture
def options(tmp_path: Path) -> SinkOptions:
    root = tmp_path / "checkpoint"
    plan(root, 0, 1, 2)
    given = {
        "stream": "flights",
        "region": "JFK",
        "table": str(tmp_path / "table"),
        "kafka.bootstrap.servers": "nowhere:1",
        "checkpointlocation": str(root),
    }
    return SinkOptions.parse(given)


def a_run(marker: IncarnationMarker | None) -> Run:
    return Run("r", "q7", lambda: None, last_rows=0.0, due=0.0, marker=marker)


def test_a_run_without_a_batch_registers_as_a_plain_restart(options: SinkOptions) -> None:
    run = a_run(MARKER)
    registered, (event,) = run.registration(options, None)
    assert registered == Registered("a", event.envelope.id)
    assert isinstance(event.body, RegionRegistered)
    assert [each.checkpoint for each in event.body.planned] == [2, 1]
    assert (event.body.replaces, event.body.probe) == (None, False)
    run.registered = registered
    assert run.registration(options, None) == (registered, []), "once"


def test_the_registration_of_the_first_batch_takes_its_place(options: SinkOptions, tmp_path: Path) -> None:
    run, registry = a_run(MARKER), Registry(str(tmp_path / "registry"))
    run.registered = Registered("a", "of this thread")
    registry.put("q7", {}, Registered("a", "of the batch"))
    assert run.registration(options, registry) == (Registered("a", "of the batch"), [])


@pytest.mark.parametrize(
    "change",
    [{"resetting": True}, {"query": None}, {"region": "EWR"}, {"stream": "other"}, {"assignment": 1}, None],
)
def test_a_run_that_is_no_plain_restart_waits_for_its_first_batch(
    options: SinkOptions, change: dict[str, object] | None
) -> None:
    marker = MARKER.model_copy(update=change) if change is not None else None
    assert a_run(marker).registration(options, None) == (None, [])


def test_a_run_that_ends_before_its_first_heartbeat_reads_its_marker(options: SinkOptions) -> None:
    Checkpoint(options.checkpoint_location).write_marker(MARKER)
    run = a_run(None)
    registered, events = run.last_registration(options, None)
    assert registered is not None
    assert (registered.incarnation, len(events)) == ("a", 1)


def test_answers_from_before_the_own_one_do_not_contradict_a_run() -> None:
    """The run before a plain restart has the same incarnation, and its answer is read first."""
    run, own = a_run(MARKER), Registered("a", "new")
    run.live = Live("a", "old", frozenset({"old"}))
    assert run.contradicted(own) is None
    run.live = Live("a", "new", frozenset({"old", "new"}))
    assert run.contradicted(own) is None


@pytest.mark.parametrize("newest", [("a", "newer"), ("b", "other"), (None, None)])
def test_an_answer_after_the_own_one_contradicts_a_run_once(newest: tuple[str | None, str | None]) -> None:
    run, own = a_run(MARKER), Registered("a", "new")
    live = run.live = Live(*newest, frozenset({"old", "new"}))
    assert run.contradicted(own) == live
    assert run.contradicted(own) is None


def test_an_own_answer_that_is_read_together_with_a_newer_one_counts() -> None:
    run = a_run(MARKER)
    run.live = Live("b", "other", frozenset({"new", "other"}))
    assert run.contradicted(Registered("a", "new")) == Live("b", "other", frozenset({"new", "other"}))
