"""What the golden cases go through is in the tables of transitions, and all of the tables is gone through."""

from contextlib import suppress
from functools import cache

import pytest

from sluicegate.coordinator.core.effects import Effect, Result
from sluicegate.coordinator.core.machine import StreamMachine
from sluicegate.coordinator.core.observer import Change, Observer
from sluicegate.coordinator.core.transitions import TABLES, Transition, allowed
from tests.golden.coordinator import Watch
from tests.golden.script import Script
from tests.golden.test_cases import FILES


class Changes(Watch):
    """Collects the changes that every coordinator of a case goes through."""

    def __init__(self) -> None:
        self.seen: list[Change] = []
        self._observers: dict[int, Observer] = {}

    def booted(self, machine: StreamMachine) -> None:
        self._observers[id(machine)] = Observer(machine)

    def stepped(self, machine: StreamMachine) -> None:
        self.seen += self._observers[id(machine)].look()

    def handed(self, machine: StreamMachine, effect: Effect) -> None:
        self.seen += self._observers[id(machine)].handed(effect)

    def finished(self, machine: StreamMachine, effect: Effect, result: Result) -> None:
        self.seen += self._observers[id(machine)].finished(effect, result)


@cache
def changes_of_all_cases() -> dict[str, list[Change]]:
    found: dict[str, list[Change]] = {}
    for path in FILES:
        watch = Changes()
        # A case that does not come to rest fails by its own test.
        with suppress(RuntimeError):
            Script(watch).run(path.read_text(encoding="utf-8"))
        found[path.stem] = watch.seen
    return found


@pytest.mark.parametrize("case", [path.stem for path in FILES])
def test_every_change_is_in_a_table(case: str) -> None:
    strange = [
        each for each in changes_of_all_cases()[case] if not allowed(each.kind, each.before, each.after)
    ]
    assert strange == []


@pytest.mark.parametrize(
    ("kind", "transition"),
    [(kind, each) for kind, table in TABLES.items() for each in table],
    ids=lambda value: value if isinstance(value, str) else f"{value.sources[0]}-{value.targets[0]}",
)
def test_every_transition_is_seen(kind: str, transition: Transition) -> None:
    changes = [each for seen in changes_of_all_cases().values() for each in seen if each.kind == kind]
    assert any(transition.covers(each.before, each.after) for each in changes)


def test_no_change_is_two_transitions_of_a_decision_or_a_region() -> None:
    changes = {each[:1] + each[2:] for seen in changes_of_all_cases().values() for each in seen}
    for kind, before, after in changes:
        assert kind == "checkpoint" or len(allowed(kind, before, after)) == 1, (before, after)


def test_what_no_table_has_is_refused() -> None:
    assert allowed("checkpoint", "committed", "sealed") == []
    assert allowed("decision", "announced", "decided") == []
