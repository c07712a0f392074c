"""A sample of the campaign of kills over several tables (tools/bench/table_kills.py): each place once."""

import json
import runpy
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.faults.together import (
    ANCHOR,
    PLACES,
    SCHEMAS,
    USER,
    Readers,
    Region,
    Together,
    attack,
    judge,
    killed,
)

_READ: Final = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "read_tables.py"))
READ: Final = _READ["at_one_commit"]


@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.long
@pytest.mark.parametrize("catalog", ["sqlite", pytest.param("postgres", marks=pytest.mark.matrix)])
async def test_killed_at_each_place_readers_see_whole_commits(
    kafka_bootstrap: str, redis_url: str, tmp_path: Path, catalog: str, request: pytest.FixtureRequest
) -> None:
    uri = request.getfixturevalue("postgres") if catalog == "postgres" else ""
    where = Together(kafka_bootstrap, tmp_path, redis=redis_url, uri=uri)
    found, tallies = await attack(where, READ, Random(1))
    reads = found.readers.reads
    assert reads.errors == 0
    assert min(reads.vectors, reads.rounds, reads.selects) > 0
    assert all(each.exact and each.rows > 0 for each in tallies.values())
    assert {*killed(where, found.at_random)} == {*PLACES}


def append(catalog: SqlCatalog, where: Together, name: str, decision: int, *columns: int) -> Table:
    """Commit one row to one table, as a coordinator that is not atomic would."""
    table = catalog.load_table(where.named(name))
    row = dict(zip(SCHEMAS[name].names, ([each] for each in (decision, *columns)), strict=True))
    summary = {"sluicegate.user": USER, "sluicegate.decision": str(decision)}
    table.append(pa.table(row, schema=SCHEMAS[name]), snapshot_properties=summary)
    return table


def state_vector(anchor: Table, decision: int, **tables: Table) -> None:
    """Write the vector of a decision into the anchor."""

    def newest(table: Table) -> int | None:
        found = table.current_snapshot()
        return found.snapshot_id if found is not None else None

    further = {name: [decision, newest(table)] for name, table in tables.items()}
    cut = {"decision": decision, "anchor": newest(anchor), "tables": further}
    with anchor.transaction() as change:
        change.set_properties({f"sluicegate.cut.{USER}": json.dumps(cut)})


@pytest.mark.slow
def test_the_readers_see_a_commit_of_one_table_before_the_other(tmp_path: Path) -> None:
    where = Together("nowhere", tmp_path)
    readers = Readers(where, READ, Random(1))

    def look(catalog: SqlCatalog) -> tuple[int, int, int, int]:
        for kind in (Readers.by_vector, Readers.by_rounds, Readers.by_select):
            kind(readers, catalog)
        found = readers.reads
        return found.torn_vectors, found.torn_rounds, found.torn_selects, found.backward_vectors

    with closing(where.catalog()) as catalog:
        assert look(catalog) == (0, 0, 0, 0)
        refunds = append(catalog, where, "refunds", 1, 7)
        items = append(catalog, where, "items", 1, 5)
        anchor = append(catalog, where, ANCHOR, 1, 5, 7)
        state_vector(anchor, 1, items=items, refunds=refunds)
        assert look(catalog) == (0, 0, 0, 0)
        anchor = append(catalog, where, ANCHOR, 2, 3, 0)
        # The vector is older than the tables, and whole.
        assert look(catalog) == (0, 1, 1, 0)
        state_vector(anchor, 2, items=items, refunds=refunds)
        assert look(catalog) == (1, 2, 2, 0)
        items = append(catalog, where, "items", 2, 3)
        state_vector(anchor, 2, items=items, refunds=refunds)
        assert look(catalog) == (1, 2, 2, 0)
        state_vector(anchor, 1, items=items, refunds=refunds)
        assert look(catalog) == (1, 2, 2, 1)
    assert (readers.reads.vectors, readers.reads.selects, readers.reads.rounds) == (5, 5, 5)
    regions = [Region(where, name, Random(1)) for name in ("north", "south")]
    foreign: dict[str, Any] = {name: [] for name in SCHEMAS}
    regions[0].ids |= {ANCHOR: [1, 2, 2], "items": [1, 2, 3], "refunds": []}
    tallies = judge(where, regions, foreign)
    assert {name: (each.missing, each.doubled, each.foreign) for name, each in tallies.items()} == {
        ANCHOR: ((), (), ()),
        "items": ((3,), (), ()),
        "refunds": ((), (), (1,)),
    }
    assert {name: each.commits for name, each in tallies.items()} == {ANCHOR: 2, "items": 2, "refunds": 1}
