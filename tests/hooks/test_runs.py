"""Registrations of runs that have had no batch yet."""

import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from sluicegate.events.models import CheckpointFailed, Position, RegionRegistered
from sluicegate.events.notifications import RegistrationAnswered
from sluicegate.events.problems import Code, Problem
from sluicegate.writer_hooks import BadCheckpointLocation, RegionReplaced, publisher
from sluicegate.writer_hooks.options import SinkOptions
from sluicegate.writer_hooks.region import Event, Live, Registered
from sluicegate.writer_hooks.spark import heartbeats, incarnation
from sluicegate.writer_hooks.spark.checkpoint import CheckpointLocation, IncarnationMarker
from sluicegate.writer_hooks.spark.heartbeats import Heartbeats, Kind, Run, Signal, inherited_batch
from sluicegate.writer_hooks.spark.listener import RegionListener
from sluicegate.writer_hooks.spark.registry import Registry
from tests.hooks.conftest import Job
from tests.hooks.locations import finish, plan
from tests.hooks.options import OPTIONS
from tests.integration.waiting import wait_until

MARKER = IncarnationMarker(query="q7", incarnation="a", stream="flights", region="JFK", first=1)


@pytest.fixture
def options(tmp_path: Path) -> SinkOptions:
    root = tmp_path / "checkpoint"
    plan(root, 0, 1, 2)
    return SinkOptions.parse(OPTIONS | {"table": str(tmp_path / "table"), "checkpointlocation": str(root)})


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
    CheckpointLocation(options.checkpoint_location).write_marker(MARKER)
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
    CheckpointLocation(options.checkpoint_location).write_marker(MARKER)
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
    CheckpointLocation(options.checkpoint_location).write_marker(
        MARKER.model_copy(update={"incarnation": "b"})
    )
    assert probes() == [], "the doubt about another incarnation is told elsewhere"


def test_a_query_that_the_log_does_not_know_is_told_how_it_continues(
    options: SinkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    CheckpointLocation(options.checkpoint_location).write_marker(MARKER)
    answer = RegistrationAnswered(registration="r", accepted=True)
    monkeypatch.setattr(incarnation, "ask", lambda *_: answer)
    with pytest.raises(RegionReplaced, match="the log does not have its registration") as told:
        incarnation.check_live(options, Registered("a", "own"))
    command = "sluicegate region reset --stream flights --region JFK --checkpoint-location"
    assert f"`{command} {options.checkpoint_location}`, then start the query again" in str(told.value)


@pytest.mark.parametrize(
    ("problem", "believed"),
    [
        (Problem(code=Code.INCARNATION_LIVE), True),
        (Problem(code=Code.TABLE_AHEAD), False),
        (Problem(code=Code.RETRYING), False),
    ],
    ids=["judged", "the table has more than the log", "the table is away"],
)
def test_the_stream_before_counts_only_while_it_is_not_stalled(
    options: SinkOptions, monkeypatch: pytest.MonkeyPatch, problem: Problem, believed: bool
) -> None:
    """The log of a stalled stream may be older than its table: what it shows may not be all."""
    location = CheckpointLocation(options.checkpoint_location)
    before = MARKER.model_copy(update={"stream": "old"})
    marker = IncarnationMarker(query="q7", incarnation="b", first=3, former=before)
    committed = location.predecessor(before, 3)
    answer = RegistrationAnswered(registration="r", accepted=False, problem=problem, committed=committed)
    monkeypatch.setattr(incarnation, "ask", lambda *_: answer)
    region = replace(options.region, registration_timeout=0.0)
    with nullcontext() if believed else pytest.raises(BadCheckpointLocation, match="may not begin"):
        incarnation._require_committed_before(region, location, marker, lambda: False)


def test_a_listener_tells_of_each_stream_of_a_run_until_it_ends(tmp_path: Path) -> None:
    told: list[Signal] = []
    listener = RegionListener(str(tmp_path), lambda: SimpleNamespace(put=told.append, stop=print))
    run = SimpleNamespace(id="q", runId="r", exception=None)
    listener.onQueryStarted(run)
    listener.add_streams("q", ["day", "night"])
    listener.add_streams("q", ["once"])
    listener.onQueryProgress(
        SimpleNamespace(progress=SimpleNamespace(**vars(run), numInputRows=5, batchId=7))
    )
    listener.onQueryTerminated(run)
    listener.onQueryIdle(run)
    listener.close()
    assert [(each.kind, each.query) for each in told] == [
        (Kind.STARTED, "q"),
        *((Kind.STARTED, name) for name in ("day", "night")),
        *((Kind.PROGRESS, name) for name in ("q", "day", "night")),
        *((Kind.ENDED, name) for name in ("q", "day", "night")),
        (Kind.IDLE, "q"),
    ]
    assert {(each.rows, each.batch) for each in told if each.kind is Kind.PROGRESS} == {(5, 7)}


_HOLD = """
import sys
from sluicegate.writer_hooks.spark.registry import Registry
Registry(sys.argv[1]).hold()
print("held", flush=True)
sys.stdin.read()
"""


def _holder(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _HOLD, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.slow
def test_a_folder_goes_at_the_next_attach_once_its_process_was_ended_by_a_signal(tmp_path: Path) -> None:
    left, own = (tmp_path / f"sluicegate-{uuid4().hex}" for _ in range(2))
    others = [tmp_path / f"sluicegate-{uuid4().hex}", tmp_path / "sluicegate-kafka-x"]
    for each in others:
        each.mkdir()
    registry = Registry(str(own))
    registry.hold()
    registry.hold()
    registry.put("q", {"stream": "flights"}, Registered("i", "r"))
    with _holder(left) as process:
        Registry(str(left)).put("q", {"stream": "flights"}, Registered("i", "r"))
        registry.remove_dead()
        assert left.is_dir(), "its process lives"
        process.send_signal(signal.SIGTERM)
    registry.remove_dead()
    assert sorted(tmp_path.iterdir()) == sorted([own, *others]), "what has no lock may be somebody's"
    assert registry.options("q") == {"stream": "flights"}
    assert registry.registered("q") == Registered("i", "r")
    assert registry.incarnation("q") == "i"
    registry.remove()
    assert not own.exists()


def test_a_new_run_forgets_the_run_before(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path))
    registry.begin("q", "i")
    assert registry.incarnation("q") == "i"
    registry.put("q", {}, Registered("j", "r"))
    assert registry.incarnation("q") == "j", "it began another one, with its first batch"
    registry.doubt("q")
    registry.stop_run("q")
    registry.new_run("q")
    assert registry.incarnation("q") is None
    assert not registry.take_doubt("q")
    assert not registry.stopped("q")


def test_a_doubt_is_taken_once(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path))
    assert not registry.take_doubt("q")
    registry.doubt("q")
    registry.doubt("q")
    assert registry.take_doubt("q")
    assert not registry.take_doubt("q")


def test_one_process_at_a_time_registers_a_query(tmp_path: Path) -> None:
    registry, other = Registry(str(tmp_path)), Registry(str(tmp_path))
    with registry.registering("q") as first, other.registering("q", wait=False) as second:
        assert (first, second) == (True, False)
    with other.registering("q", wait=False) as free, other.registering("p", wait=False) as unrelated:
        assert free
        assert unrelated


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
