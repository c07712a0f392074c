"""The demo's table in Delta, in a local folder. Its log is read without any library of the format."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from sluicegate.cli.local.errors import TableDamaged
from sluicegate.cli.local.flights import PARTITION, SCHEMA
from sluicegate.cli.local.tables import DATABASE, NAME, Commit, Contents

Action = dict[str, Any]


class TableOfDelta:
    """The table in a folder."""

    format = "delta"
    options: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.location = str(folder)

    def read(self) -> Contents:
        try:
            return self._read()
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise TableDamaged(
                f"the table at {self.folder} cannot be read ({type(error).__name__}: {error})"
            ) from error

    def count(self) -> int:
        return int(DeltaTable(self.location).to_pyarrow_dataset().count_rows())

    def _read(self) -> Contents:
        added: dict[str, int] = {}
        tables: list[pa.Table] = []
        commits: list[Commit] = []
        for number, actions in self._versions():
            if any("remove" in action for action in actions):
                raise TableDamaged(f"version {number} removes files, which nobody should have done")
            lines = [action["add"] for action in actions if "add" in action]
            for line in lines:
                if line["path"] in added:
                    first = added[line["path"]]
                    raise TableDamaged(f"{line['path']} is in version {first} and again in version {number}")
                added[line["path"]] = number
            found = [self._read_file(line) for line in lines]
            tables += found
            if number > 0:
                user, decision = next((each["appId"], each["version"]) for each in _transactions(actions))
                rows = sum(each.num_rows for each in found)
                commits.append(Commit(number, user, decision, len(lines), rows))
        return Contents(pa.concat_tables(tables) if tables else pa.table({}), len(added), tuple(commits))

    def _versions(self) -> Iterator[tuple[int, list[Action]]]:
        """Yield all versions from the first one, without a gap. Raises TableDamaged."""
        files = sorted(path for path in (self.folder / "_delta_log").glob("*.json") if path.stem.isdigit())
        if [int(path.stem) for path in files] != list(range(len(files))):
            raise TableDamaged(f"versions are missing: there are only {[path.stem for path in files]}")
        for number, path in enumerate(files):
            yield number, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def _read_file(self, line: Action) -> pa.Table:
        path = self.folder / unquote(line["path"])
        rows = pq.read_table(path, partitioning=None)
        told = json.loads(line["stats"])["numRecords"]
        if (path.stat().st_size, rows.num_rows) != (line["size"], told):
            raise TableDamaged(f"{path} has another size or number of rows than its line says")
        month = line["partitionValues"][PARTITION]
        if PARTITION in rows.column_names:
            if not pc.all(pc.equal(rows.column(PARTITION), month)).as_py():
                raise TableDamaged(f"{path} has rows of another {PARTITION} than its line says")
            return rows
        return rows.append_column(PARTITION, pa.array([month] * rows.num_rows, pa.string()))


def _transactions(actions: list[Action]) -> Iterator[Action]:
    for action in actions:
        if "txn" in action:
            yield action["txn"]


def create_table(folder: Path) -> TableOfDelta:
    """Create the table in a new folder."""
    table = TableOfDelta(folder / DATABASE / NAME)
    DeltaTable.create(table.location, SCHEMA, partition_by=[PARTITION])
    return table
