"""Only `Replica.apply` changes LogState: time, results of effects and questions of others do not."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.replica import Replica
from tests.golden.script import Script
from tests.golden.test_cases import FILES

OF_MACHINE = ("poll", "finished", "conditions", "record", "reached", "block")
CASES = [path for path in FILES if path.parent.name in ("interleavings", "outcomes", "assignments")]


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(machine: StreamMachine, *arguments: Any, **named: Any) -> Any:
        before = machine.replica.state.model_dump()
        result = function(machine, *arguments, **named)
        assert machine.replica.state.model_dump() == before, f"{function.__name__} has changed LogState"
        return result

    return call


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_nothing_but_records_changes_the_state(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_MACHINE:
        monkeypatch.setattr(StreamMachine, name, _guarded(getattr(StreamMachine, name)))
    Script().run(path.read_text(encoding="utf-8"))


def test_another_writer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(machine: StreamMachine, now: int) -> list[Any]:
        machine.replica.state.attempt += 1
        return []

    monkeypatch.setattr(StreamMachine, "poll", _guarded(writes))
    with pytest.raises(AssertionError, match="writes has changed LogState"):
        Script().run("regions r1\nregister r1 q.0\n")


@pytest.mark.slow
def test_a_record_that_the_state_includes_does_not_change_it() -> None:
    def refilled(replica: Replica, record: Any) -> None:
        before = replica.state.model_dump()
        refill(replica, record)
        assert replica.state.model_dump() == before

    refill = Replica.refill
    with patch.object(Replica, "refill", refilled):
        for path in CASES:
            Script().run(path.read_text(encoding="utf-8"))
