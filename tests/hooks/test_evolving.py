"""Attempts whose rows have gained columns: only with leave, and before a file is opened."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate.events.models import Assignment, FilesWritten
from sluicegate.lakes.capabilities import Evolve
from sluicegate.lakes.port import (
    PORT_VERSION,
    Adapter,
    Committer,
    FileWriter,
    SchemaMismatch,
    TableMaintenance,
    TableRef,
    TableRefused,
)
from sluicegate.writer_hooks import BadOption
from sluicegate.writer_hooks import options as options_module
from sluicegate.writer_hooks.options import SinkOptions, Target, targets_of
from sluicegate.writer_hooks.region import Attempt, KafkaSettings, Region
from sluicegate.writer_hooks.spark.preflight import table_troubles
from sluicegate.writer_hooks.writer import write_attempt
from tests.doubles.memory_lake import MemoryAdapter
from tests.hooks.conftest import make_table
from tests.hooks.options import OPTIONS as SINK

OPTIONS = SINK | {"checkpointlocation": "/checkpoints/jfk"}

REGION = Region(
    "flights", "EWR", KafkaSettings(bootstrap_servers="nowhere:1"), Assignment(number=0, regions=("EWR",))
)
ATTEMPT = Attempt("q.0", 7, "p00003")
ID = pa.schema([("id", pa.int64())])
OLD = pa.record_batch({"id": [1]})
NEW = pa.record_batch({"id": [2], "note": ["n"]})


class Plain:
    """An adapter without the capability."""

    name = "plain"
    format_version = 1
    port_version = PORT_VERSION

    def __init__(self, inner: MemoryAdapter) -> None:
        self._inner = inner

    def parse_table(self, text: str, options: Mapping[str, str] | None = None) -> TableRef:
        return self._inner.parse_table(text, options)

    def open_committer(self, table: TableRef, commit_user: str) -> Committer:
        return self._inner.open_committer(table, commit_user)

    def open_maintenance(self, table: TableRef) -> TableMaintenance:
        return self._inner.open_maintenance(table)

    def open_writer(
        self, table: TableRef, event_time_column: str | None, digest: str | None = None
    ) -> FileWriter:
        return self._inner.open_writer(table, event_time_column, digest)


@pytest.fixture
def lake() -> MemoryAdapter:
    made = MemoryAdapter()
    made.create("flights", schema=ID)
    return made


def attempt(lake: Adapter, *batches: pa.RecordBatch, evolve: Evolve = "add-columns") -> FilesWritten:
    target = Target(lake, lake.parse_table("memory://flights"), None, 10**6, evolve)
    _, (event,) = write_attempt(REGION, ATTEMPT, target, batches)
    assert isinstance(event.body, FilesWritten)
    return event.body


def test_without_leave_nothing_changes(lake: MemoryAdapter) -> None:
    says = r"has no column note\. Leave note out of the rows, or set evolve to add-columns"
    with pytest.raises(SchemaMismatch, match=says):
        attempt(lake, NEW, evolve="never")
    table = lake.table("memory://flights")
    assert (table.schema_id, table.data) == (0, {})
    attempt(lake, OLD, evolve="never")
    attempt(lake, NEW, evolve="add-columns")
    assert table.schema_id == 1
    assert Target(lake, lake.parse_table("memory://flights"), None, 10**6).evolve == "never"


def test_a_renamed_column_has_one_way_out_whatever_evolve_says(lake: MemoryAdapter) -> None:
    renamed = pa.RecordBatch.from_pylist([{"number": 1}])
    says = r"(?i)the rows lack the table's columns \(id\), as if these had been renamed"
    for evolve in ("never", "add-columns"):
        with pytest.raises(SchemaMismatch, match=says) as raised:
            attempt(lake, renamed, evolve=evolve)
        assert "set evolve" not in str(raised.value)


def test_an_attempt_has_the_schema_that_it_made(lake: MemoryAdapter) -> None:
    assert attempt(lake, OLD).schema_id == 0
    assert attempt(lake, NEW, NEW).schema_id == 1
    assert attempt(lake, OLD).schema_id == 1
    assert lake.table("memory://flights").columns == ("id", "note")


def test_batches_without_rows_change_nothing(lake: MemoryAdapter) -> None:
    assert attempt(lake, NEW.slice(0, 0), OLD).schema_id == 0


def test_the_first_rows_give_the_columns_of_an_attempt(lake: MemoryAdapter) -> None:
    with pytest.raises(SchemaMismatch, match="the table has no column note"):
        attempt(lake, OLD, NEW)
    assert lake.table("memory://flights").data == {}
    attempt(lake, NEW, OLD)
    assert attempt(lake, OLD, NEW).schema_id == 1


def test_refused_rows_leave_no_file(lake: MemoryAdapter) -> None:
    with pytest.raises(SchemaMismatch, match="the column id is int64 in the table"):
        attempt(lake, pa.record_batch({"id": ["x"], "note": ["n"]}))
    table = lake.table("memory://flights")
    assert (table.schema_id, table.data) == (0, {})


def test_a_format_without_the_capability_gets_its_columns_otherwise(lake: MemoryAdapter) -> None:
    plain = Plain(lake)
    says = "Set evolve to never, and add the columns to the table with its own tools"
    with pytest.raises(TableRefused, match=f"plain lacks the capability EvolvesSchema.*{says}"):
        attempt(plain, NEW)
    table = lake.table("memory://flights")
    table.change(ID.append(pa.field("note", pa.string())))
    assert attempt(plain, NEW, evolve="never").files[0].rows == 1


def test_the_option() -> None:
    assert SinkOptions.parse(OPTIONS).evolve == "never"
    assert SinkOptions.parse(OPTIONS | {"evolve": "never"}).evolve == "never"
    assert SinkOptions.parse(OPTIONS | {"Evolve": "Add-Columns"}).evolve == "add-columns"
    with pytest.raises(BadOption, match="option evolve must be never or add-columns: 'true'"):
        SinkOptions.parse(OPTIONS | {"evolve": "true"})


def test_the_option_needs_a_format_with_the_capability(
    lake: MemoryAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options_module, "adapter", lambda name: Plain(lake))
    with pytest.raises(BadOption, match="option evolve cannot be add-columns: the table format plain lacks"):
        SinkOptions.parse(OPTIONS | {"evolve": "add-columns"})


def test_the_column_of_the_event_time_may_come_with_the_first_rows(tmp_path: Path) -> None:
    make_table(tmp_path)
    options = {**OPTIONS, "table": str(tmp_path / "default.db" / "flights"), "event.time.column": "seen"}
    (trouble,) = table_troubles(*targets_of(options))
    assert "has no column seen" in trouble
    assert list(table_troubles(*targets_of(options | {"evolve": "add-columns"}))) == []
    options |= {"event.time.column": "airport", "evolve": "add-columns"}
    (trouble,) = table_troubles(*targets_of(options))
    assert "airport cannot be used as event.time.column" in trouble
