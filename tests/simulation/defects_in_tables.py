"""Defects in streams of several tables."""

from dataclasses import replace
from typing import Any, Final

from sluicegate.coordinator.core.effects import Publish
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.history import Evidence
from sluicegate.lakes.port import Absent
from tests.simulation.seams import Defect, Function, always, skip, variant


@variant
def _never_contradicts(right: Function, *arguments: Any) -> Any:
    return right(*arguments)._replace(contradiction=None)


@variant
def _asks_nobody(right: Function, self: Any, *arguments: Any, undo: bool, **named: Any) -> Any:
    answer = right(self, *arguments, undo=False, **named)
    return replace(answer, elsewhere=()) if isinstance(answer, Absent) else answer


@variant
def _drops_unknown(right: Function, self: Any, record: Any) -> Any:
    name = record.envelope.table
    unknown = name and name not in self.state.policy.tables
    return Problem(code=Code.UNEXPECTED) if unknown else right(self, record)


@variant
def _of_touched_alone(right: Function, self: Any, state: Any, table: Any) -> Any:
    step = right(self, state, table)
    if not isinstance(step, Publish):
        return step
    return replace(step, tables={name: step.tables[name] for name in step.offsets_of})


@variant
def _one_by_one(right: Function, self: Any, members: Any, unchanged: Any) -> Any:
    stated, self.atomic = self.atomic, False
    try:
        return right(self, members, unchanged)
    finally:
        self.atomic = stated


IN_TABLES: Final = (
    Defect(
        "a further table is published to without a look at it",
        "the evidence of a further table",
        always(Evidence(False)),
        ("I3",),
        ("change of a table dropped", "end between two tables", "crash"),
    ),
    Defect(
        "no history of a further table contradicts",
        "the evidence of a further table",
        _never_contradicts,
        ("I1",),
        ("further: roll back",),
    ),
    Defect(
        "a revert does not ask the further tables",
        "the question to several tables",
        _asks_nobody,
        ("I2",),
        ("roll back", "revert", "crash", "freeze", "further: foreign"),
    ),
    Defect(
        "files of an unknown table are dropped",
        "files of an event",
        _drops_unknown,
        ("I1",),
        ("tables of the settings", "tables of the job"),
    ),
    Defect(
        "the vector has the touched tables alone",
        "the next step of a commit",
        _of_touched_alone,
        ("I14",),
        ("further: foreign",),
    ),
    Defect(
        "an outcome waits for no further table",
        "tables that lack a decision",
        always([]),
        ("I14",),
        ("change of a table dropped", "end between two tables"),
    ),
    Defect(
        "outcomes leave the registry as it is",
        "the registry after an outcome",
        skip,
        ("I14",),
        ("further: foreign",),
    ),
    Defect(
        "an atomic catalog is not atomic",
        "the step of a catalog",
        _one_by_one,
        ("I13",),
        ("conflict", "further: foreign"),
    ),
)
