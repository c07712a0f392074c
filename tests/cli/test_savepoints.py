"""Savepoints and drains: the orders that wait for a full commit, or for the end of all regions."""

import threading

import pytest

from sluicegate.cli import orders
from sluicegate.coordinator.core.state_record import Condition
from sluicegate.coordinator.settings.model import Settings
from sluicegate.events.problems import Code, Problem
from tests.cli.acting import after_the_order, coordinator_in_the_group, two_regions
from tests.cli.deployment import Deployment, as_json
from tests.cli.history import History
from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.seam]

STREAM = ("--stream", "flights")


@pytest.fixture
def history(deployment: Deployment) -> History:
    """Give a stream with two regions, both with one committed and one completed checkpoint."""
    return two_regions(deployment)


def test_a_savepoint_is_taken_with_the_commit_of_everything_completed(history: History) -> None:
    def coordinate() -> None:
        history.decide()
        history.commit()

    with after_the_order(history, coordinate):
        result = history.deployment.run("stream", "savepoint", *STREAM, "--name", "s1", "--json")
    assert result.exit_code == 0, result.output
    shown = as_json(result)
    assert (shown["order"], shown["decision"]) == ({"command": "savepoint", "name": "s1"}, 2)
    assert {name: at["checkpoint"] for name, at in shown["cut"].items()} == {"EWR": 1, "JFK": 1}
    assert shown["snapshot"] == {"snapshot": 2, "identity": "i2"}


def test_a_savepoint_of_a_stream_that_is_committed_is_taken_at_once(history: History) -> None:
    history.decide()
    history.commit()
    history.close("EWR", 1)
    history.close("JFK", 1)
    result = history.run("stream", "savepoint", *STREAM, "--name", "s1")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "stream flights has the savepoint s1: commit 2, snapshot 2",
        "  EWR  checkpoint 1 of incarnation EWR-1",
        "  JFK  checkpoint 1 of incarnation JFK-1",
    ]


def test_a_savepoint_that_waits_is_cancelled(history: History) -> None:
    order = ("stream", "savepoint", *STREAM, "--name", "s1", "--timeout", "300ms")
    waits = history.run(*order)
    assert (waits.exit_code, "The order stays in force" in waits.stderr) == (1, True), waits.output
    again = history.run(*order)
    cancel = "sluicegate stream cancel --stream flights --name s1"
    assert (again.exit_code, cancel in again.stderr) == (2, True), again.output
    cancelled = history.run(*cancel.split()[1:])
    assert (cancelled.exit_code, "s1 of stream flights is cancelled" in cancelled.stdout) == (0, True)
    assert history.state.savepoints == []


def test_a_drain_waits_for_the_end_of_all_regions(history: History) -> None:
    waits = history.run("stream", "drain", *STREAM, "--timeout", "0.3", "--json")
    assert waits.exit_code == 1
    shown = as_json(waits)
    assert shown["effective"] is False
    assert shown["order"]["name"].startswith("drain-20")
    history.decide()
    history.commit()
    history.close("EWR", 1)
    history.close("JFK", 1)
    done = history.run("stream", "drain", *STREAM)
    assert "all its regions had ended before this order" in done.stdout
    assert (done.exit_code, "stream flights is drained of assignment 0: commit 2" in done.stdout) == (
        0,
        True,
    ), done.output


def test_a_drain_names_the_regions_that_have_not_ended(history: History) -> None:
    history.decide()
    history.commit()
    history.close("JFK", 1)
    waits = history.run("stream", "drain", *STREAM, "--timeout", "0.3")
    assert waits.exit_code == 1
    assert "Not ended: EWR. A stopped query leaves its region idle, not ended" in waits.stderr
    assert "sluicegate assignment close --stream flights" in waits.stderr


def test_a_drain_names_its_own_assignment_and_not_the_next_one(history: History) -> None:
    def coordinate() -> None:
        history.decide()
        history.commit()
        history.close("EWR", 1)
        history.close("JFK", 1)
        history.register("EWR", "EWR-2", "EWR", number=1, after=2)

    with after_the_order(history, coordinate):
        done = history.deployment.run("stream", "drain", *STREAM)
    assert (done.exit_code, "is drained of assignment 0: commit 2" in done.stdout) == (0, True), done.output
    assert "before this order" not in done.stdout


def test_a_drain_needs_an_assignment(deployment: Deployment) -> None:
    history = History(deployment).begin()
    refused = history.run("stream", "drain", *STREAM)
    assert (refused.exit_code, "has no assignment to drain yet" in refused.stderr) == (2, True)


def test_a_savepoint_tells_while_it_waits_what_status_shows(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, reason = threading.Event(), orders.reason_of_wait

    async def noted(settings: Settings, stream: str) -> str:
        found = await reason(settings, stream)
        # The command prints it before anything else of it runs.
        told.set()
        return found

    def coordinate() -> None:
        wait_until(told.is_set)
        history.decide()
        history.commit()

    monkeypatch.setattr(orders, "_TELL", 0.01)
    monkeypatch.setattr(orders, "reason_of_wait", noted)
    problem = Problem(code=Code.SAVEPOINT_WAITS, names=("s1", "JFK"))
    history.send()
    history.record(Condition(kind="wait", problem=problem))
    with coordinator_in_the_group(history.deployment), after_the_order(history, coordinate):
        taken = history.deployment.run("stream", "savepoint", *STREAM, "--name", "s1")
    assert taken.exit_code == 0, taken.output
    first, *_ = taken.stderr.splitlines()
    assert first.startswith("waiting: Savepoint s1 of stream flights waits: its commit")
    assert "it needs a checkpoint of JFK" in first


def test_a_reason_is_printed_again_if_more_than_its_durations_changes(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()
    texts = iter(["silent for 50 s", "silent for 89 s", "silent for 2 min", "silent for 1.6 h", "it stalls"])

    async def next_one(_: Settings, __: str) -> str:
        text = next(texts, "it stalls")
        if text == "it stalls":
            told.set()
        return text

    def coordinate() -> None:
        wait_until(told.is_set)
        history.decide()
        history.commit()

    monkeypatch.setattr(orders, "_TELL", 0.01)
    monkeypatch.setattr(orders, "reason_of_wait", next_one)
    with coordinator_in_the_group(history.deployment), after_the_order(history, coordinate):
        taken = history.deployment.run("stream", "savepoint", *STREAM, "--name", "s1")
    assert taken.exit_code == 0, taken.output
    assert taken.stderr.splitlines() == ["waiting: silent for 50 s", "waiting: it stalls"]


def test_the_reason_of_a_delay_is_in_the_state_record(history: History) -> None:
    problem = Problem(code=Code.WAITS_FOR_REGIONS, names=("EWR",))
    order = ("stream", "savepoint", *STREAM, "--timeout", "0.3", "--name")
    history.send()
    with coordinator_in_the_group(history.deployment):
        unknown = history.deployment.run(*order, "s1")
        history.record(Condition(kind="wait", problem=problem))
        waits = history.deployment.run(*order, "s2")
    assert (unknown.exit_code, waits.exit_code) == (1, 1)
    assert "no condition of the stream explains it. See: sluicegate status --stream flights" in unknown.stderr
    assert "EWR" in waits.stderr.partition("It waits, because: ")[2]
