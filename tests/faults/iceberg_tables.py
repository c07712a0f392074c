"""Iceberg tables for tests of failures, with a catalog in sqlite. They are judged by DuckDB's reader.

The catalog is local, wherever the files of its table are.
"""

import json
import os
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import duckdb
import fastavro
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from sluicegate.failpoints.names import Failpoint
from tests.faults import stores
from tests.faults.points import LISTENER_POINTS, UPLOAD_POINTS
from tests.faults.stores import bucket_of, fetch, file_of, mirror_of
from tests.faults.tallies import Tally, tally_of
from tests.hdfs import FILE_IO
from tests.iceberg_duck import duck, duck_on_s3
from tests.integration.job import SCHEMA

LACKING: Final = (
    frozenset(
        {
            Failpoint.LAKE_HINT_BEFORE,
            Failpoint.LAKE_HINT_AFTER,
            Failpoint.PAIMON_WITHDRAW_BEFORE,
            Failpoint.PAIMON_WITHDRAW_AFTER,
        }
    )
    | UPLOAD_POINTS
    | LISTENER_POINTS
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
    with closing(catalog_of(table)) as catalog:
        catalog.create_namespace(_NAMESPACE)
        fields = [
            each.with_type(pa.timestamp("us")) if pa.types.is_timestamp(each.type) else each
            for each in schema
        ]
        made = catalog.create_table(
            f"{_NAMESPACE}.{name}", pa.schema(fields), location=_uri(table), properties=options
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
    with closing(catalog_of(table)) as catalog:
        opened = catalog.load_table(f"{_NAMESPACE}.{table.name}")
        for each in ids:
            rows = pa.table({"id": [each], "origin": ["foreign"], "at": [0]})
            opened.append(rows.cast(opened.schema().as_arrow()))


def tally(table: Path, expected: Collection[int], user: str) -> Tally:
    """Compare a table with the ids that it must have."""
    location = metadata_location(table)
    snapshots = _metadata(table, location).get("snapshots", [])
    ids: list[int] = []
    if snapshots:
        ids = [number for (number,) in _scan(table, location).project("id").fetchall()]
    summaries = [each["summary"] for each in sorted(snapshots, key=lambda each: each["sequence-number"])]
    decisions = [
        int(each["sluicegate.decision"]) for each in summaries if each.get("sluicegate.user") == user
    ]
    return tally_of(ids, expected, user, decisions, len(snapshots))


def rows(table: Path) -> list[dict[str, Any]]:
    """Return the rows as DuckDB reads them, without the column `at`."""
    location = metadata_location(table)
    if not _metadata(table, location).get("snapshots"):
        return []
    scan = _scan(table, location).project('* EXCLUDE ("at")')
    found: list[dict[str, Any]] = scan.to_arrow_table().to_pylist()
    return found


def schemas(table: Path) -> int:
    """Return the number of schemas that the metadata names."""
    return len(_metadata(table, metadata_location(table))["schemas"])


def head(table: Path) -> int:
    """Return the newest sequence number."""
    return int(_metadata(table, metadata_location(table))["last-sequence-number"])


def rows_told(table: Path) -> int:
    """Return the number of rows that the newest snapshot names."""
    fields = _metadata(table, metadata_location(table))
    newest = fields.get("current-snapshot-id")
    snapshots = {each["snapshot-id"]: each["summary"] for each in fields.get("snapshots", [])}
    return int(snapshots[newest]["total-records"]) if newest in snapshots else 0


def manifests(table: Path) -> int:
    """Return the number of manifests of the newest snapshot."""
    fields = _metadata(table, metadata_location(table))
    newest = fields.get("current-snapshot-id")
    for each in fields.get("snapshots", []):
        if each["snapshot-id"] == newest:
            with file_of(each["manifest-list"], table).open("rb") as file:
                return sum(1 for _ in fastavro.reader(file))
    return 0


def metadata_location(table: Path) -> str:
    """Return the table's entry in its catalog, as read without the library."""
    with closing(sqlite3.connect(_database(table), timeout=_WAITING)) as connection:
        (found,) = connection.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
    return str(found)


def _scan(table: Path, location: str) -> duckdb.DuckDBPyRelation:
    """Return the rows of the metadata at a location."""
    if bucket_of(table) is not None:
        return duck_on_s3(os.environ).table_function("iceberg_scan", [location])
    fetch(table)
    path = file_of(location, table)
    if mirror_of(table) is None:
        return duck().table_function("iceberg_scan", [str(path)])
    # The metadata names the files of the cluster. The reader looks for them in the mirror.
    version = path.name.removesuffix(".metadata.json")
    return duck().sql(f"FROM iceberg_scan('{table}', version = '{version}', allow_moved_paths = true)")


def _uri(table: Path) -> str:
    found = stores.location(table)
    return found if "://" in found else table.as_uri()


def _metadata(table: Path, location: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file_of(location, table).read_bytes())
    return found


def snapshot_ids(table: Path) -> list[int]:
    """Ids of all snapshots that the metadata lists, in its order."""
    return [each["snapshot-id"] for each in _metadata(table, metadata_location(table))["snapshots"]]


def _database(table: Path) -> Path:
    return table.parents[1] / DATABASE


def catalog_of(table: Path) -> SqlCatalog:
    """Return the catalog of a table."""
    access = FILE_IO if mirror_of(table) is not None else {}
    if bucket_of(table) is not None:
        access = {
            "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
            "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
            "s3.region": os.environ["AWS_REGION"],
        }
    warehouse = _uri(table.parents[1])
    return SqlCatalog("default", uri=f"sqlite:///{_database(table)}", warehouse=warehouse, **access)
