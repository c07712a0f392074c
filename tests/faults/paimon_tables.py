"""Paimon tables for tests of failures. They are judged by a reader that shares no code with any writer."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
from pypaimon import CatalogFactory, Schema

from tests.faults.points import LISTENER_POINTS, UPLOAD_POINTS
from tests.faults.stores import fetch, place_for_libraries
from tests.faults.tallies import Tally, tally_of
from tests.integration.job import SCHEMA
from tests.lakes.paimon.independent_reader import read_table

LACKING: Final = UPLOAD_POINTS | LISTENER_POINTS
"""Places of a commit that this format has not."""
SPARK_TIME: Final = "timestamp_ntz"
"""Type of the column `at` as a Spark job writes it."""


def create_table(folder: Path, name: str, schema: pa.Schema = SCHEMA, **options: str) -> Path:
    """Make an append table that is partitioned by `origin`; return its folder."""
    catalog = CatalogFactory.create({"warehouse": place_for_libraries(folder)})
    catalog.create_database("db", ignore_if_exists=True)
    made = Schema.from_pyarrow_schema(schema, partition_keys=["origin"], options={"bucket": "-1", **options})
    catalog.create_table(f"db.{name}", made, ignore_if_exists=False)
    table = folder / "db.db" / name
    fetch(table)
    return table


def owns(table: Path) -> bool:
    """Return True for a table of this format."""
    return (table / "schema").is_dir()


def options(table: Path) -> Mapping[str, str]:
    """Return the adapter's options for the table."""
    return {}


def append(table: Path, ids: Collection[int]) -> None:
    """Append rows as the library does it by itself, one commit for each."""
    opened = _opened(table)
    for each in ids:
        builder = opened.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        rows = pa.table({"id": [each], "origin": ["foreign"], "at": [0]}).cast(SCHEMA)
        for batch in rows.to_batches():
            write.write_arrow_batch(batch)
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()


def tally(table: Path, expected: Collection[int], user: str, *, compacted: bool = False) -> Tally:
    """Compare a table with the ids that it must have. Raises TableDamaged."""
    fetch(table)
    contents = read_table(table, compacted=compacted)
    ids = contents.rows["id"].to_pylist() if contents.rows.num_rows else []
    decisions = [commit.identifier for commit in contents.commits if commit.user == user]
    return tally_of(ids, expected, user, decisions, len(contents.commits))


def rows(table: Path) -> list[dict[str, Any]]:
    """Return the rows as pypaimon reads them, without the column `at`."""
    builder = _opened(table).new_read_builder()
    splits = builder.new_scan().plan().splits()
    if not splits:
        return []
    found: list[dict[str, Any]] = builder.new_read().to_arrow(splits).drop_columns(["at"]).to_pylist()
    return found


def _opened(table: Path) -> Any:
    """Open the table with pypaimon."""
    catalog = CatalogFactory.create({"warehouse": place_for_libraries(table.parents[1])})
    return catalog.get_table(f"{table.parent.name.removesuffix('.db')}.{table.name}")


def schemas(table: Path) -> int:
    """Return the number of schemas."""
    fetch(table / "schema")
    return sum(path.name.removeprefix("schema-").isdigit() for path in (table / "schema").iterdir())


def head(table: Path) -> int:
    """Return the number of the newest snapshot, 0 if there is none."""
    fetch(table / "snapshot")
    names = [path.name for path in (table / "snapshot").glob("snapshot-*")]
    return max((int(name.removeprefix("snapshot-")) for name in names), default=0)


def manifests(table: Path) -> int:
    """Return the number of manifests of the newest snapshot."""
    number = head(table)
    if not number:
        return 0
    fetch(table / "manifest")
    newest = json.loads((table / "snapshot" / f"snapshot-{number}").read_bytes())
    found = 0
    for kind in ("base", "delta"):
        with (table / "manifest" / newest[f"{kind}ManifestList"]).open("rb") as file:
            found += sum(1 for _ in fastavro.reader(file))
    return found


def rows_told(table: Path) -> int:
    """Return the number of rows that the newest snapshot names."""
    number = head(table)
    if not number:
        return 0
    try:
        told: int = json.loads((table / "snapshot" / f"snapshot-{number}").read_bytes())["totalRecordCount"]
    except (FileNotFoundError, json.JSONDecodeError):
        # It has expired meanwhile, or the server of the store is writing it.
        return 0
    return told
