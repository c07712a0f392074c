"""Delta tables for tests of failures. They are judged by DuckDB's reader, and by the files of their log."""

import importlib.util
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from sluicegate.failpoints.names import Failpoint
from tests.faults.points import LISTENER_POINTS, UPLOAD_POINTS
from tests.faults.stores import fetch, place_for_libraries
from tests.faults.tallies import Tally, tally_of
from tests.integration.job import SCHEMA

LACKING: Final = (
    frozenset(
        {
            Failpoint.LAKE_MANIFEST_WRITTEN,
            Failpoint.LAKE_MANIFESTS_DURABLE,
            Failpoint.LAKE_HINT_BEFORE,
            Failpoint.LAKE_HINT_AFTER,
            Failpoint.LAKE_DISCARD_BEFORE,
            Failpoint.LAKE_DISCARD_AFTER,
            Failpoint.PAIMON_WITHDRAW_BEFORE,
            Failpoint.PAIMON_WITHDRAW_AFTER,
        }
    )
    | UPLOAD_POINTS
    | LISTENER_POINTS
)
"""Places of a commit that this format has not: a commit is one file."""
SPARK_TIME: Final = "timestamp"
"""Type of the column `at` as a Spark job writes it."""
_INSTANT: Final = pa.timestamp("us", tz="UTC")
"""The type of times that every reader of the format knows."""


def create_table(folder: Path, name: str, schema: pa.Schema = SCHEMA, **options: str) -> Path:
    """Make an append table that is partitioned by `origin`; returns its folder."""
    table = folder / name
    place = place_for_libraries(table)
    DeltaTable.create(place, _with_instants(schema), partition_by=["origin"], configuration=options)
    fetch(table)
    return table


def owns(table: Path) -> bool:
    """Return True for a table of this format."""
    return (table / "_delta_log").is_dir()


def options(table: Path) -> Mapping[str, str]:
    """Return the adapter's options for the table."""
    return {}


def _with_instants(schema: pa.Schema) -> pa.Schema:
    fields = (each.with_type(_INSTANT) if pa.types.is_timestamp(each.type) else each for each in schema)
    return pa.schema(list(fields))


def append(table: Path, ids: Collection[int]) -> None:
    """Commit as another product does."""
    rows = pa.table({"id": list(ids), "origin": ["y"] * len(ids), "at": [0] * len(ids)})
    write_deltalake(place_for_libraries(table), rows.cast(_with_instants(SCHEMA)), mode="append")


def reader() -> duckdb.DuckDBPyConnection:
    """Open DuckDB with its Delta reader. Use it as a context."""
    found = importlib.util.find_spec("duckdb_extension_delta")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("duckdb-extension-delta is not installed")
    (extension,) = Path(found.origin).parent.rglob("*.duckdb_extension")
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    return connection


def tally(table: Path, expected: Collection[int], user: str) -> Tally:
    """Compare a table with the ids that it must have."""
    fetch(table)
    with reader() as duck:
        ids = [
            number for (number,) in duck.table_function("delta_scan", [str(table)]).project("id").fetchall()
        ]
    commits = list(_commits(table))
    decisions = [
        action["txn"]["version"]
        for actions in commits
        for action in actions
        if "txn" in action and action["txn"]["appId"] == user
    ]
    return tally_of(ids, expected, user, decisions, len(commits))


def rows(table: Path) -> list[dict[str, Any]]:
    """Return the rows as DuckDB reads them, without the column `at`."""
    fetch(table)
    with reader() as duck:
        scan = duck.table_function("delta_scan", [str(table)]).project('* EXCLUDE ("at")')
        found: list[dict[str, Any]] = scan.to_arrow_table().to_pylist()
        return found


def schemas(table: Path) -> int:
    """Return the number of versions that have set the metadata, with the first one."""
    lines = [line for path in _files(table) for line in path.read_text(encoding="utf-8").splitlines()]
    return sum("metaData" in json.loads(line) for line in lines)


def head(table: Path) -> int:
    """Return the newest version."""
    return max((int(path.stem) for path in _files(table)), default=0)


def manifests(table: Path) -> int:
    """Return 0: the format has none."""
    return 0


def rows_told(table: Path) -> int:
    """Return the number of rows that the log names. All commits only append."""
    try:
        return sum(_rows_of(path) for path in sorted(_files(table))[1:])
    except json.JSONDecodeError:
        # The server of the store is writing a version.
        return 0


def _rows_of(version: Path) -> int:
    """Return the rows of a version, of which a line at a time is in memory."""
    with version.open(encoding="utf-8") as file:
        added = (action["add"] for action in map(json.loads, file) if "add" in action)
        return sum(json.loads(each["stats"])["numRecords"] for each in added)


def _commits(table: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield the actions of each version after the first, in order."""
    for path in sorted(_files(table))[1:]:
        yield [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _files(table: Path) -> list[Path]:
    fetch(table / "_delta_log")
    return [path for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit()]
