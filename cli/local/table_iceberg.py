"""The demo's table in Iceberg, with a catalog in sqlite. No library of Iceberg reads its metadata here."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import create_engine, text

from sluicegate.cli.local.errors import TableDamaged
from sluicegate.cli.local.flights import PARTITION, SCHEMA
from sluicegate.cli.local.tables import DATABASE, NAME, Commit, Contents

Record = dict[str, Any]

CATALOG: Final = "default"
_DATA: Final = 0


class IcebergTable:
    """The table in a warehouse, with the file of its catalog beside it."""

    format = "iceberg"

    def __init__(self, warehouse: Path) -> None:
        self._uri = f"sqlite:///{warehouse / 'catalog.db'}"
        self.folder = warehouse / DATABASE / NAME
        self.location = str(self.folder)
        self.options: Mapping[str, str] = {
            "type": "sql",
            "uri": self._uri,
            "catalog": CATALOG,
            "identifier": f"{DATABASE}.{NAME}",
        }

    def catalog(self) -> SqlCatalog:
        """Open the catalog with the library."""
        return SqlCatalog(CATALOG, uri=self._uri, warehouse=self.folder.parent.parent.as_uri())

    def read(self) -> Contents:
        try:
            return self._read()
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise TableDamaged(
                f"the table at {self.folder} cannot be read ({type(error).__name__}: {error})"
            ) from error

    def count(self) -> int:
        catalog = self.catalog()
        try:
            return int(catalog.load_table(f"{DATABASE}.{NAME}").scan().count())
        finally:
            catalog.close()

    def _read(self) -> Contents:
        metadata = json.loads(_local(self._metadata_location()).read_bytes())
        commits: list[Commit] = []
        added: dict[str, int] = {}
        newest: list[Record] = []
        for snapshot in sorted(metadata.get("snapshots", []), key=lambda each: each["sequence-number"]):
            number, summary = snapshot["sequence-number"], snapshot["summary"]
            newest = list(_entries(snapshot["manifest-list"]))
            new = [each["data_file"] for each in newest if each["snapshot_id"] == snapshot["snapshot-id"]]
            for file in new:
                path = file["file_path"]
                if path in added:
                    raise TableDamaged(f"{path} is in snapshot {added[path]} and again in snapshot {number}")
                added[path] = number
            rows = sum(file["record_count"] for file in new)
            user, decision = summary["sluicegate.user"], int(summary["sluicegate.decision"])
            commits.append(Commit(number, user, decision, len(new), rows))
        files = [each["data_file"] for each in newest]
        paths = [file["file_path"] for file in files]
        if len(set(paths)) != len(paths) or set(paths) != added.keys():
            raise TableDamaged("the newest snapshot lists other files than all snapshots have added")
        tables = [_read_file(file) for file in files]
        return Contents(pa.concat_tables(tables) if tables else pa.table({}), len(files), tuple(commits))

    def _metadata_location(self) -> str:
        engine = create_engine(self._uri)
        try:
            with engine.connect() as connection:
                found = connection.execute(text("SELECT metadata_location FROM iceberg_tables")).scalar_one()
        finally:
            engine.dispose()
        return str(found)


def _entries(manifest_list: str) -> Iterator[Record]:
    """Yield the entries of a snapshot. Raises TableDamaged if one removes a file or a manifest is cut."""
    for line in _records(manifest_list):
        path = _local(line["manifest_path"])
        if path.stat().st_size != line["manifest_length"]:
            raise TableDamaged(f"{path} has another size than its list says")
        inside = _records(line["manifest_path"])
        told = line["added_files_count"] + line["existing_files_count"]
        if line["content"] != _DATA or len(inside) != told:
            raise TableDamaged(f"{path} removes rows, or has other entries than its list says")
        yield from inside


def _records(location: str) -> list[Record]:
    with _local(location).open("rb") as file:
        return [dict(record) for record in fastavro.reader(file) if isinstance(record, dict)]


def _read_file(file: Record) -> pa.Table:
    path, month = _local(file["file_path"]), file["partition"][PARTITION]
    rows = pq.read_table(path, partitioning=None)
    if (path.stat().st_size, rows.num_rows) != (file["file_size_in_bytes"], file["record_count"]):
        raise TableDamaged(f"{path} has another size or number of rows than its entry says")
    if not pc.all(pc.equal(rows.column(PARTITION), month)).as_py():
        raise TableDamaged(f"{path} has rows of another {PARTITION} than its entry says")
    return rows.replace_schema_metadata(None)


def _local(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def create_table(folder: Path) -> IcebergTable:
    """Create the catalog and the table in a new folder."""
    table = IcebergTable(folder)
    folder.mkdir(parents=True)
    catalog = table.catalog()
    try:
        catalog.create_namespace(DATABASE)
        made = catalog.create_table(f"{DATABASE}.{NAME}", SCHEMA, location=table.folder.as_uri())
        with made.update_spec() as update:
            update.add_identity(PARTITION)
    finally:
        catalog.close()
    return table
