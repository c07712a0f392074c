"""Columns that rows have gained: one schema for all writers, and everything else refused."""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluicegate.events.models import FilesWritten
from sluicegate.events.problems import CauseCode
from sluicegate.failpoints.names import Failpoint
from sluicegate.failpoints.points import VARIABLE
from sluicegate.lakes.capabilities import TableColumns
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import Absent, Found, Published, SchemaMismatch, TableRef
from tests.contracts.lakes.delta_objects import DELTA
from tests.contracts.lakes.harness import EvolvingLake, Killed, Stream, with_commits
from tests.contracts.lakes.iceberg_rest_lake import ALL_ICEBERG
from tests.contracts.lakes.paimon_objects import PAIMON
from tests.lakes import racing
from tests.lakes.outcomes import is_refused

pytestmark = pytest.mark.slow

ID = pa.field("id", pa.int64())
NOTE = pa.schema([ID, pa.field("note", pa.string())])
PROCESSES = 3
ON_STORAGE = (*PAIMON, *DELTA, *ALL_ICEBERG)
"""Tables that other processes can open."""


def noted(*ids: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids, pa.int64()), [f"row {number}" for number in ids]], schema=NOTE)


def ref(lake: EvolvingLake) -> TableRef:
    return lake.adapter.parse_table(lake.location, lake.options or {})


def gain(lake: EvolvingLake, schema: pa.Schema = NOTE) -> None:
    evolve(lake.adapter, ref(lake), schema)


def gain_and_write(lake: EvolvingLake, *ids: int) -> FilesWritten:
    gain(lake)
    return lake.write(noted(*ids))


def commit(stream: Stream, decision: int, *events: FilesWritten) -> None:
    outcome = stream.publish(decision, stream.head(decision), stream.committer.check(events))
    assert isinstance(outcome, Published), outcome
    stream.recorded = outcome.snapshot


def meanwhile(lake: EvolvingLake, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Let something happen before the first change of the schema; return the results of all changes."""
    add, results, acts = lake.adapter.add_columns, list[bool](), [act]

    def late(table: TableRef, columns: Sequence[pa.Field], seen: TableColumns) -> bool:
        if acts:
            acts.pop()()
        results.append(add(table, columns, seen))
        return results[-1]

    monkeypatch.setattr(lake.adapter, "add_columns", late)
    return results


def test_a_gained_column_is_added_once_and_older_rows_have_null(evolving: EvolvingLake) -> None:
    stream = with_commits(evolving, 1)
    commit(stream, 2, gain_and_write(evolving, 2))
    commit(stream, 3, gain_and_write(evolving, 3))
    assert evolving.rows() == [
        {"id": 1, "note": None},
        {"id": 2, "note": "row 2"},
        {"id": 3, "note": "row 3"},
    ]
    assert evolving.schemas() == 2


def test_a_table_without_snapshots_gains_columns(evolving: EvolvingLake) -> None:
    event = gain_and_write(evolving, 1)
    commit(Stream(evolving), 1, event)
    assert evolving.rows() == [{"id": 1, "note": "row 1"}]


def test_rows_without_new_columns_change_nothing(evolving: EvolvingLake) -> None:
    gain(evolving, pa.schema([("id", pa.int32())]))
    gain(evolving)
    gain(evolving, pa.schema([("id", pa.int64())]))
    assert evolving.schemas() == 2


def test_files_of_the_older_schema_are_committed_after_the_change(evolving: EvolvingLake) -> None:
    stream = Stream(evolving)
    older = evolving.event([1])
    newer = gain_and_write(evolving, 2)
    commit(stream, 1, newer, older)
    commit(stream, 2, evolving.event([3]))
    expected: list[dict[str, Any]] = [
        {"id": 1, "note": None},
        {"id": 2, "note": "row 2"},
        {"id": 3, "note": None},
    ]
    assert evolving.rows() == expected


def test_a_check_before_the_change_does_not_count_after_it(evolving: EvolvingLake) -> None:
    stream = Stream(evolving)
    older = evolving.event([1])
    checked = stream.committer.check([older])
    before = stream.committer.premises()
    gain(evolving)
    assert stream.committer.premises() != before
    outcome = stream.publish(1, stream.head(1), checked)
    assert is_refused(outcome, again=True)
    assert outcome.cause is not None
    assert outcome.cause.code is CauseCode.CHECKS_OUTDATED
    commit(stream, 1, older)
    assert evolving.rows() == [{"id": 1, "note": None}]


def test_two_writers_who_gain_the_same_column_make_one_schema(
    evolving: EvolvingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = meanwhile(evolving, lambda: gain(evolving), monkeypatch)
    gain(evolving)
    # The inner one is the first in time.
    assert results == [True, False]
    assert evolving.schemas() == 2
    commit(Stream(evolving), 1, evolving.write(noted(1)))
    assert evolving.rows() == [{"id": 1, "note": "row 1"}]


def test_columns_of_another_product_at_the_same_time_are_kept(
    evolving: EvolvingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = meanwhile(evolving, lambda: evolving.alter("theirs", pa.int64()), monkeypatch)
    gain(evolving)
    assert results == [False, True]
    assert evolving.schemas() == 3
    stream = Stream(evolving)
    commit(stream, 1, evolving.write(noted(1)))
    assert evolving.rows() == [{"id": 1, "theirs": None, "note": "row 1"}]


def test_the_same_column_of_another_product_is_used(
    evolving: EvolvingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = meanwhile(evolving, lambda: evolving.alter("note", pa.string()), monkeypatch)
    gain(evolving)
    assert results == [False]
    assert evolving.schemas() == 2


def test_another_type_of_another_product_is_refused(
    evolving: EvolvingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(evolving, lambda: evolving.alter("note", pa.int64()), monkeypatch)
    says = "another writer has changed the table.*note is int64 in the table, and string in the rows"
    with pytest.raises(SchemaMismatch, match=says):
        gain(evolving)
    assert evolving.schemas() == 2


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            [pa.field("id", pa.string()), NOTE.field("note")],
            "the column id is int64 in the table, and string in the rows",
        ),
        ([ID, pa.field("ID", pa.int64())], "differs from the column id only in its case"),
        ([ID, pa.field("took", pa.duration("s"))], "no type for the new column.*took.*; convert"),
    ],
    ids=["type", "case", "no type of the format"],
)
def test_another_change_is_refused_and_leaves_the_table_as_it_is(
    evolving: EvolvingLake, fields: list[pa.Field], says: str
) -> None:
    with pytest.raises(SchemaMismatch, match=says):
        gain(evolving, pa.schema(fields))
    assert (evolving.schemas(), evolving.data_files()) == (1, 0)


def test_changes_inside_of_a_column_are_refused(evolving: EvolvingLake) -> None:
    place = pa.struct([("x", pa.int64())])
    gain(evolving, pa.schema([ID, pa.field("place", place)]))
    wider = pa.schema([ID, pa.field("place", pa.struct([*place, ("y", pa.int64())]))])
    says = "the column place is struct<x: int64> in the table"
    with pytest.raises(SchemaMismatch, match=says):
        gain(evolving, wider.append(NOTE.field("note")))
    with pytest.raises(SchemaMismatch, match=says):
        evolving.write(pa.record_batch([pa.array([1], pa.int64()), [{"x": 1, "y": 2}]], schema=wider))
    assert (evolving.schemas(), evolving.data_files()) == (2, 0)


@pytest.mark.parametrize("lake", ON_STORAGE, indirect=True)
def test_processes_that_meet_a_column_at_once_make_one_schema(evolving: EvolvingLake) -> None:
    stream = Stream(evolving)
    stream.commit(1, [0])
    program = Path(__file__).with_name("evolver.py")
    started = [racing.spawn(program, evolving, str(number)) for number in range(1, PROCESSES + 1)]
    racing.go(*started)
    events = [FilesWritten.model_validate_json(printed) for printed in racing.finish(*started)]
    assert evolving.schemas() == 2
    commit(stream, 2, *events)
    expected: list[dict[str, Any]] = [{"id": 0, "note": None}]
    expected += [{"id": number, "note": f"row {number}"} for number in range(1, PROCESSES + 1)]
    assert evolving.rows() == expected


@pytest.mark.parametrize("lake", ON_STORAGE, indirect=True)
@pytest.mark.parametrize(
    ("point", "left"),
    [(Failpoint.LAKE_PUT_BEFORE, 1), (Failpoint.LAKE_PUT_AFTER, 2), (Failpoint.LAKE_PUT_DURABLE, 2)],
)
def test_a_writer_that_is_killed_beside_its_change_leaves_all_or_nothing(
    evolving: EvolvingLake, point: Failpoint, left: int
) -> None:
    program = Path(__file__).with_name("evolver.py")
    killed = racing.spawn(program, evolving, "7", environment={VARIABLE: f"{point}=kill"})
    racing.go(killed)
    _, err = killed.communicate()
    assert killed.returncode == -signal.SIGKILL, err
    assert evolving.schemas() == left
    event = gain_and_write(evolving, 7)
    assert evolving.schemas() == 2
    commit(Stream(evolving), 1, event)
    assert evolving.rows() == [{"id": 7, "note": "row 7"}]


@pytest.mark.parametrize("lake", ON_STORAGE, indirect=True)
@pytest.mark.parametrize("changed", [False, True], ids=["after", "before"])
def test_a_committer_that_dies_beside_a_change_has_a_successor(evolving: EvolvingLake, changed: bool) -> None:
    """The schema changes right before the step that decides a commit, which is not made then, or after it."""
    event = evolving.event([1])

    def change_and_die() -> None:
        gain(evolving)
        raise Killed

    evolving.strand(1, event, change_and_die if changed else lambda: None)
    gain(evolving)
    stream = Stream(evolving)
    stream.recorded = None
    answer = stream.ask(1)
    assert isinstance(answer, Absent if changed else Found)
    if isinstance(answer, Found):
        stream.recorded = answer.snapshot
    else:
        commit(stream, 1, event)
    commit(stream, 2, evolving.write(noted(2)))
    assert evolving.rows() == [{"id": 1, "note": None}, {"id": 2, "note": "row 2"}]
    assert evolving.schemas() == 2
