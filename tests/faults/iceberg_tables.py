"""Iceberg tables for tests of failures, with a catalog in sqlite. They are judged by DuckDB's reader.

The files of a table are in a local folder, or in the bucket of the S3 server that the environment names.
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
from tests.faults.points import LISTENER_POINTS, UPLOAD_POINTS
from tests.faults.tallies import Tally, tally_of
from tests.iceberg_duck import duck, duck_on_s3
from tests.integration.job import SCHEMA
from tests.s3proxy import BUCKET

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
            f"{_NAMESPACE}.{name}", pa.schema(fields), location=_location(table), properties=options
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
            with _file(table, each["manifest-list"]).open("rb") as file:
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


def _scan(table: Path, location: str) -> duckdb.DuckDBPyRelation:
    """Return the rows of the metadata at a location."""
    if _bucket(table) is None:
        return duck().table_function("iceberg_scan", [str(local(location))])
    return duck_on_s3(os.environ).table_function("iceberg_scan", [location])


def _bucket(table: Path) -> Path | None:
    """Return the folder of the S3 server's bucket with the table, None for a local table."""
    return next(
        (each for each in table.parents if each.parent.name == "objects" and each.name == BUCKET), None
    )


def _location(table: Path) -> str:
    bucket = _bucket(table)
    return table.as_uri() if bucket is None else f"s3://{bucket.name}/{table.relative_to(bucket)}"


def _file(table: Path, location: str) -> Path:
    bucket = _bucket(table)
    return local(location) if bucket is None else bucket.parent / location.removeprefix("s3://")


def _metadata(table: Path, location: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_file(table, location).read_bytes())
    return found


def snapshot_ids(table: Path) -> list[int]:
    """Ids of all snapshots that the metadata lists, in its order."""
    return [each["snapshot-id"] for each in _metadata(table, metadata_location(table))["snapshots"]]


def _database(table: Path) -> Path:
    return table.parents[1] / DATABASE


def catalog_of(table: Path) -> SqlCatalog:
    """Return the catalog of a table."""
    access = {}
    if _bucket(table) is not None:
        access = {
            "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
            "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
            "s3.region": os.environ["AWS_REGION"],
        }
    warehouse = _location(table.parents[1] / ".")
    return SqlCatalog("default", uri=f"sqlite:///{_database(table)}", warehouse=warehouse, **access)
