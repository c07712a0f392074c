"""The demo of two tables: its totals, its reader, and a whole run in which a coordinator is killed."""

import json
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.table import Table

from sluicegate.cli.local import two_tables
from sluicegate.cli.local.demo import demo
from sluicegate.cli.local.tables import DemoTable, create_table
from sluicegate.cli.local.two_tables import Reader, Sums, add_totals, is_total, totals_of

USER = "sluicegate-flights"


def test_totals_are_those_of_their_rows(few: pa.Table) -> None:
    parts = pa.concat_tables([totals_of(few.slice(0, 100)), totals_of(few.slice(100))])
    assert sum(parts["flights"].to_pylist()) == 300
    assert sum(parts["distance"].to_pylist()) == sum(few["distance"].to_pylist())
    found = parts.group_by(["origin", "carrier"]).aggregate([("flights", "sum"), ("distance", "sum")])
    assert is_total(found, few)
    assert not is_total(found, few.slice(1))
    assert not is_total(found.slice(1), few)


@pytest.fixture
def tables(tmp_path: Path, few: pa.Table) -> tuple[DemoTable, DemoTable]:
    flights = create_table("iceberg", tmp_path / "warehouse")
    return flights, add_totals(flights)


def loaded(table: DemoTable) -> Table:
    with closing(two_tables._catalog(table)) as catalog:
        return catalog.load_table(table.options["identifier"])


def point(tables: tuple[DemoTable, DemoTable], decision: int) -> None:
    """Let the vector name the newest snapshots."""
    newest = [loaded(each).current_snapshot() for each in tables]
    anchor, totals = (each.snapshot_id if each is not None else None for each in newest)
    vector = {"decision": decision, "anchor": anchor, "tables": {"totals": [decision, totals]}}
    with loaded(tables[0]).transaction() as change:
        change.set_properties({f"sluicegate.cut.{USER}": json.dumps(vector)})


@pytest.mark.slow
def test_the_reader_finds_what_is_apart(tables: tuple[DemoTable, DemoTable], few: pa.Table) -> None:
    """A vector that was wrong would be counted, and so are newest states of which one is later."""
    flights, totals = tables
    reader = Reader(flights)

    def read() -> tuple[int, int, int]:
        with closing(two_tables._catalog(flights)) as catalog:
            reader._read(catalog)
        return reader.reads.vectors, reader.reads.torn, reader.reads.unaligned

    assert read() == (0, 0, 0), "there is no vector yet"
    loaded(flights).append(few)
    loaded(totals).append(totals_of(few))
    point(tables, 1)
    assert read() == (1, 0, 0)
    loaded(flights).append(few)
    assert read() == (2, 0, 1), "the second part of the commit is missing in the newest states"
    point(tables, 2)
    assert read() == (3, 1, 2), "a vector with half a commit"
    loaded(totals).append(totals_of(few))
    point(tables, 3)
    assert read() == (4, 1, 2)
    assert two_tables.sums_of_totals(loaded(totals).scan()) == Sums(600, 2 * sum(few["distance"].to_pylist()))


@pytest.mark.kafka
@pytest.mark.redis
def test_no_reader_by_the_vector_sees_the_tables_apart(tmp_path: Path) -> None:
    asked = ["--tables", "--rows", "1500", "--kill-coordinator", "--kills", "1", "--json"]
    result = CliRunner().invoke(demo, [*asked, "--work-dir", str(tmp_path / "work")])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    assert (found["rows"], found["missing"], found["duplicated"], found["kills"]) == (1500, 0, 0, 1)
    assert (found["tables"], found["torn_reads"]) == (2, 0)
    assert found["vectors_read"] >= 2
