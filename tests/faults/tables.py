"""Tables for tests of failures, and the judgement of what is in them."""

import json
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from pypaimon import CatalogFactory, Schema

from sluicegate.demo.reader import read_table
from tests.faults import delta_tables, iceberg_tables
from tests.faults.tallies import Inexact, Tally
from tests.integration.job import SCHEMA

__all__ = ["Inexact", "Tally", "create_table", "head", "options_of", "rows_told", "tally"]


def create_table(warehouse: Path, name: str, lake: str = "paimon", **options: str) -> Path:
    """Make an append table of a format that is partitioned by `origin`; returns its folder."""
    if lake == "delta":
        return delta_tables.create_table(warehouse, name)
    if lake == "iceberg":
        return iceberg_tables.create_table(warehouse, name)
    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("db", ignore_if_exists=True)
    schema = Schema.from_pyarrow_schema(
        SCHEMA, partition_keys=["origin"], options={"bucket": "-1", **options}
    )
    catalog.create_table(f"db.{name}", schema, ignore_if_exists=False)
    return warehouse / "db.db" / name


def options_of(table: Path) -> dict[str, str]:
    """Return the options of a stream, and of its writers, that the table needs."""
    return iceberg_tables.options(table) if _is_iceberg(table) else {}


def tally(table: Path, expected: Collection[int], user: str, *, compacted: bool = False) -> Tally:
    """Read the table with a reader that shares no code with any writer. Raises TableDamaged."""
    if _is_delta(table):
        return delta_tables.tally(table, expected, user)
    if _is_iceberg(table):
        return iceberg_tables.tally(table, expected, user)
    contents = read_table(table, compacted=compacted)
    ids = contents.rows["id"].to_pylist() if contents.rows.num_rows else []
    found = Counter(ids)
    wanted = set(expected)
    decisions = [commit.identifier for commit in contents.commits if commit.user == user]
    disorder = "" if decisions == sorted(set(decisions)) else f"decisions of {user}: {decisions}"
    return Tally(
        rows=len(ids),
        commits=len(contents.commits),
        missing=tuple(sorted(wanted - found.keys())),
        doubled=tuple(sorted(each for each, count in found.items() if count > 1)),
        foreign=tuple(sorted(found.keys() - wanted)),
        disorder=disorder,
        others=len(contents.commits) - len(decisions),
    )


def head(table: Path) -> int:
    """The number of the newest snapshot, 0 if there is none."""
    if _is_delta(table):
        return delta_tables.head(table)
    if _is_iceberg(table):
        return iceberg_tables.head(table)
    names = [path.name for path in (table / "snapshot").glob("snapshot-*")]
    return max((int(name.removeprefix("snapshot-")) for name in names), default=0)


def rows_told(table: Path) -> int:
    """How many rows the newest snapshot says that the table has."""
    if _is_delta(table):
        return delta_tables.rows_told(table)
    if _is_iceberg(table):
        return iceberg_tables.rows_told(table)
    number = head(table)
    if not number:
        return 0
    try:
        told: int = json.loads((table / "snapshot" / f"snapshot-{number}").read_bytes())["totalRecordCount"]
    except FileNotFoundError:
        return 0
    return told


def _is_iceberg(table: Path) -> bool:
    return (table / "metadata").is_dir()


def _is_delta(table: Path) -> bool:
    return (table / "_delta_log").is_dir()
