"""Iceberg tables for tests of failures. DuckDB's reader judges them, and the list of their snapshots."""

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from tests.faults.tallies import Tally
from tests.iceberg_duck import duck

SCHEMA = pa.schema([("id", pa.int64()), ("origin", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
_COLUMNS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "origin", StringType()),
    NestedField(3, "at", TimestamptzType()),
)
_SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "origin"))


def create_table(folder: Path, name: str) -> Path:
    """Make an append table that is partitioned by `origin`; returns its folder."""
    table = folder / "db" / name
    catalog = _catalog(table)
    catalog.create_namespace_if_not_exists("db")
    catalog.create_table(f"db.{name}", _COLUMNS, location=f"file://{table}", partition_spec=_SPEC)
    return table


def options(table: Path) -> dict[str, str]:
    """Return the options of a stream with this table."""
    return {"uri": f"sqlite:///{table.parent.parent}/catalog.db"}


def append(table: Path, ids: Collection[int]) -> None:
    """Commit as another product does."""
    rows = pa.table({"id": list(ids), "origin": ["y"] * len(ids), "at": [0] * len(ids)})
    _catalog(table).load_table(f"db.{table.name}").append(rows.cast(SCHEMA))


def tally(table: Path, expected: Collection[int], user: str) -> Tally:
    """Compare a table with the ids that it must have."""
    metadata = _catalog(table).load_table(f"db.{table.name}").metadata_location
    scan = duck().table_function("iceberg_scan", [metadata.removeprefix("file://")])
    ids = [number for (number,) in scan.project("id").fetchall()] if head(table) else []
    found, wanted = Counter(ids), set(expected)
    commits = _summaries(table)
    decisions = [int(each["sluicegate.decision"]) for each in commits if each.get("sluicegate.user") == user]
    disorder = "" if decisions == sorted(set(decisions)) else f"decisions of {user}: {decisions}"
    return Tally(
        rows=len(ids),
        commits=len(commits),
        missing=tuple(sorted(wanted - found.keys())),
        doubled=tuple(sorted(each for each, count in found.items() if count > 1)),
        foreign=tuple(sorted(found.keys() - wanted)),
        disorder=disorder,
        others=len(commits) - len(decisions),
    )


def head(table: Path) -> int:
    """Return the newest sequence number."""
    snapshots = _catalog(table).load_table(f"db.{table.name}").metadata.snapshots
    return max((each.sequence_number or 0 for each in snapshots), default=0)


def rows_told(table: Path) -> int:
    """Return the number of rows that the newest snapshot states."""
    summaries = _summaries(table)
    return int(summaries[-1]["total-records"]) if summaries else 0


def _summaries(table: Path) -> list[Mapping[str, Any]]:
    """Return the summaries of the snapshots, in order."""
    snapshots = _catalog(table).load_table(f"db.{table.name}").metadata.snapshots
    ordered = sorted(snapshots, key=lambda each: each.sequence_number or 0)
    return [each.summary.additional_properties if each.summary else {} for each in ordered]


def _catalog(table: Path) -> SqlCatalog:
    return SqlCatalog("default", **options(table), warehouse=f"file://{table.parent.parent}")


def roll_back(table: Path, to: int) -> None:
    """Make an older snapshot the newest one, by its sequence number."""
    loaded = _catalog(table).load_table(f"db.{table.name}")
    (snapshot,) = (each for each in loaded.metadata.snapshots if each.sequence_number == to)
    with loaded.manage_snapshots() as change:
        change.rollback_to_snapshot(snapshot.snapshot_id)
