"""Iceberg tables for tests of failures, with a catalog in sqlite. They are judged by DuckDB's reader."""

import json
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from sluicegate.failpoints.names import Failpoint
from tests.faults.tallies import Tally, tally_of
from tests.iceberg_duck import duck
from tests.integration.job import SCHEMA

LACKING: Final = frozenset(
    {
        Failpoint.LAKE_HINT_BEFORE,
        Failpoint.LAKE_HINT_AFTER,
        Failpoint.PAIMON_WITHDRAW_BEFORE,
        Failpoint.PAIMON_WITHDRAW_AFTER,
    }
)
"""Places of a commit that this format has not."""
SPARK_TIME: Final = "timestamp_ntz"
"""Type of the column `at` as a Spark job writes it."""
DATABASE: Final = "catalog.db"
_NAMESPACE: Final = "db"
_WAITING: Final = 60.0
"""Seconds for which a reader of the catalog waits for a writer."""


def create_table(folder: Path, name: str, schema: pa.Schema = SCHEMA, **options: str) -> Path:
    """Make an append table that is partitioned by `origin`, in a catalog of its own; return its folder."""
    warehouse = folder / name
    warehouse.mkdir(parents=True)
    table = warehouse / _NAMESPACE / name
    with closing(_catalog(table)) as catalog:
        catalog.create_namespace(_NAMESPACE)
        fields = [
            each.with_type(pa.timestamp("us")) if pa.types.is_timestamp(each.type) else each
            for each in schema
        ]
        made = catalog.create_table(
            f"{_NAMESPACE}.{name}", pa.schema(fields), location=table.as_uri(), properties=options
        )
        with made.update_spec() as update:
            update.add_identity("origin")
    return table


def owns(table: Path) -> bool:
    """Return True for a table of this format."""
    return _database(table).is_file()


def options(table: Path) -> Mapping[str, str]:
    """Return the adapter's options for the table."""
    return {"uri": f"sqlite:///{_database(table)}", "identifier": f"{_NAMESPACE}.{table.name}"}


def append(table: Path, ids: Collection[int]) -> None:
    """Commit as another product does, one commit for each."""
    with closing(_catalog(table)) as catalog:
        opened = catalog.load_table(f"{_NAMESPACE}.{table.name}")
        for each in ids:
            rows = pa.table({"id": [each], "origin": ["foreign"], "at": [0]})
            opened.append(rows.cast(opened.schema().as_arrow()))


def tally(table: Path, expected: Collection[int], user: str) -> Tally:
    """Compare a table with the ids that it must have."""
    location = metadata_location(table)
    snapshots = _metadata(location).get("snapshots", [])
    ids: list[int] = []
    if snapshots:
        scan = duck().table_function("iceberg_scan", [str(local(location))])
        ids = [number for (number,) in scan.project("id").fetchall()]
    summaries = [each["summary"] for each in sorted(snapshots, key=lambda each: each["sequence-number"])]
    decisions = [
        int(each["sluicegate.decision"]) for each in summaries if each.get("sluicegate.user") == user
    ]
    return tally_of(ids, expected, user, decisions, len(snapshots))


def head(table: Path) -> int:
    """Return the newest sequence number."""
    return int(_metadata(metadata_location(table))["last-sequence-number"])


def rows_told(table: Path) -> int:
    """Return the number of rows that the newest snapshot names."""
    fields = _metadata(metadata_location(table))
    newest = fields.get("current-snapshot-id")
    snapshots = {each["snapshot-id"]: each["summary"] for each in fields.get("snapshots", [])}
    return int(snapshots[newest]["total-records"]) if newest in snapshots else 0


def manifests(table: Path) -> int:
    """Return the number of manifests of the newest snapshot."""
    fields = _metadata(metadata_location(table))
    newest = fields.get("current-snapshot-id")
    for each in fields.get("snapshots", []):
        if each["snapshot-id"] == newest:
            with local(each["manifest-list"]).open("rb") as file:
                return sum(1 for _ in fastavro.reader(file))
    return 0


def metadata_location(table: Path) -> str:
    """Return the table's entry in its catalog, as read without the library."""
    with closing(sqlite3.connect(_database(table), timeout=_WAITING)) as connection:
        (found,) = connection.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
    return str(found)


def local(location: str) -> Path:
    """Return the path of a location, which some products write with one slash after the scheme."""
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def _metadata(location: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(local(location).read_bytes())
    return found


def _database(table: Path) -> Path:
    return table.parents[1] / DATABASE


def _catalog(table: Path) -> SqlCatalog:
    return SqlCatalog("default", uri=f"sqlite:///{_database(table)}", warehouse=table.parents[1].as_uri())


def roll_back(table: Path, to: int) -> None:
    """Make an older snapshot the newest one, by its sequence number."""
    loaded = _catalog(table).load_table(f"{_NAMESPACE}.{table.name}")
    (snapshot,) = (each for each in loaded.metadata.snapshots if each.sequence_number == to)
    with loaded.manage_snapshots() as change:
        change.rollback_to_snapshot(snapshot.snapshot_id)
