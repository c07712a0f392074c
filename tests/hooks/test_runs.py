"""Registrations of runs that have had no batch yet."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from sluicegate.events.models import Position, RegionRegistered
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.writer_hooks import RegionReplaced, publisher
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import Event, Live, Registered
from sluicegate.writer_hooks.spark import heartbeats, incarnation
from sluicegate.writer_hooks.spark.checkpoint import Checkpoint, IncarnationMarker
from sluicegate.writer_hooks.spark.heartbeats import Heartbeats, Run
from sluicegate.writer_hooks.spark.registry import Registry
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


def test_a_run_asks_at_growing_intervals_while_a_batch_waits_for_its_commit() -> None:
    run = a_run(MARKER)
    assert not any(run.is_question_due(None, float(now)) for now in range(100))
    run.note_batch(3, 100.0)
    assert [now for now in range(100, 700) if run.is_question_due(None, float(now))] == [
        130,
        160,
        220,
        340,
        580,
    ]
    # The commit of an earlier batch begins the intervals again, and that of the newest one ends them.
    assert [now for now in range(700, 800) if run.is_question_due(2, float(now))] == [730, 760]
    assert not any(run.is_question_due(3, float(now)) for now in range(800, 900))


def test_a_question_is_a_probe_that_nobody_waits_for(
    options: SinkOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an adoption, the log does not have the registration, and no commit contradicts the run."""
    sent: list[Event] = []
    keeping = SimpleNamespace(publish=lambda topic, events, timeout: sent.extend(events))
    monkeypatch.setattr(publisher, "shared_publisher", lambda kafka: keeping)
    monkeypatch.setattr(heartbeats, "FIRST_QUESTION", 0.0)
    Checkpoint(options.checkpoint_location).write_marker(MARKER)
    run, registry = a_run(MARKER), Registry(str(tmp_path / "registry"))
    registry.put("q7", {}, Registered("a", "of the batch"))
    run.note_batch(2, 0.0)

    def probes() -> list[int]:
        sent.clear()
        Heartbeats(5.0, 10.0, registry=registry)._send_heartbeat(run, options)
        found = [each.body for each in sent if isinstance(each.body, RegionRegistered)]
        assert all(each.probe for each in found)
        return [each.planned[0].checkpoint for each in found]

    assert probes() == [2]
    registry.commit("q7", Position(incarnation="a", checkpoint=2, digest="d"))
    assert probes() == []
    run.note_batch(3, 0.0)
    Checkpoint(options.checkpoint_location).write_marker(MARKER.model_copy(update={"incarnation": "b"}))
    assert probes() == [], "the doubt about another incarnation is told elsewhere"


def test_a_query_that_the_log_does_not_know_is_told_how_it_continues(
    options: SinkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    Checkpoint(options.checkpoint_location).write_marker(MARKER)
    answer = RegistrationAnswered(registration="r", accepted=True)
    monkeypatch.setattr(incarnation, "ask", lambda *_: answer)
    with pytest.raises(RegionReplaced, match="the log does not have its registration") as told:
        incarnation.check_live(options, Registered("a", "own"))
    command = "sluicegate region reset --stream flights --region JFK --checkpoint-location"
    assert f"`{command} {options.checkpoint_location}`, then start the query again" in str(told.value)
