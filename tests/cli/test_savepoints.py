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
    assert shown["snapshot"] == {"id": 2, "identity": "i2"}


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
