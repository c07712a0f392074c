"""Delta tables for tests of failures. They are judged by DuckDB's reader, and by the files of their log."""

import importlib.util
import json
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.faults.tallies import Tally

SCHEMA = pa.schema([("id", pa.int64()), ("origin", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])


def create_table(folder: Path, name: str) -> Path:
    """Make an append table that is partitioned by `origin`; returns its folder."""
    table = folder / name
    DeltaTable.create(str(table), SCHEMA, partition_by=["origin"])
    return table


def append(table: Path, ids: Collection[int]) -> None:
    """Commit as another product does."""
    rows = pa.table({"id": list(ids), "origin": ["y"] * len(ids), "at": [0] * len(ids)})
    write_deltalake(str(table), rows.cast(SCHEMA), mode="append")


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
    with reader() as duck:
        ids = [
            number for (number,) in duck.table_function("delta_scan", [str(table)]).project("id").fetchall()
        ]
    found, wanted = Counter(ids), set(expected)
    commits = list(_commits(table))
    decisions = [
        action["txn"]["version"]
        for actions in commits
        for action in actions
        if "txn" in action and action["txn"]["appId"] == user
    ]
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
    """Return the newest version."""
    return max((int(path.stem) for path in _files(table)), default=0)


def rows_told(table: Path) -> int:
    """Return the number of rows that the log names. All commits only append."""
    return sum(
        json.loads(action["add"]["stats"])["numRecords"]
        for actions in _commits(table)
        for action in actions
        if "add" in action
    )


def _commits(table: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield the actions of each version after the first, in order."""
    for path in sorted(_files(table))[1:]:
        yield [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _files(table: Path) -> list[Path]:
    return [path for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit()]
