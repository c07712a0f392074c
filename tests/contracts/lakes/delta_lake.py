"""Delta under the contract, with deltalake itself as the reader and as the other writer."""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake

from sluicegate.events.models import FilesWritten, SnapshotRef
from sluicegate.lakes.delta.adapter import ADAPTER
from sluicegate.lakes.delta.committer import DeltaCommitter
from sluicegate.lakes.delta.log import Log, read_line
from sluicegate.lakes.delta.maintenance import DeltaMaintenance
from sluicegate.lakes.port import CommitRequest, LakeUnavailable
from sluicegate.lakes.storage import Content, Storage
from sluicegate.lakes.storage_local import LocalStorage
from tests.contracts.lakes.harness import USER, Fault, Killed, written

PATIENT = CommitProperties(max_commit_retries=10_000)
"""For commits of the library that may meet many others."""
ID_ONLY = pa.schema([pa.field("id", pa.int64())])


class FaultyStorage(LocalStorage):
    """Fails once: at the link that decides a commit, or before it."""

    def __init__(self, location: str, fault: Fault | None) -> None:
        super().__init__(location)
        self.fault = fault

    def put_if_absent(self, name: str, content: Content, draft: str = "") -> bool:
        if self.fault is Fault.AWAY:
            self.fault = None
            raise LakeUnavailable("injected")
        return super().put_if_absent(name, content, draft)

    def link(self, draft: str, target: str) -> None:
        fault, self.fault = self.fault, None
        if fault is not Fault.LOST:
            super().link(draft, target)
        if fault is not None:
            raise OSError(errno.EIO, "injected")


class ThawingStorage(LocalStorage):
    """Stands still once, at the link that decides a commit, and may be killed right after it."""

    def __init__(self, location: str, meanwhile: Callable[[], None], *, killed: bool = True) -> None:
        super().__init__(location)
        self._meanwhile: Callable[[], None] | None = meanwhile
        self._killed = killed

    def link(self, draft: str, target: str) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().link(draft, target)
        if self._killed:
            raise Killed


class DeltaLake:
    marked = True
    options: Mapping[str, str] | None = {}

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema = ID_ONLY,
        partition_keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.adapter = ADAPTER
        self.root = folder / "numbers"
        """Folder of the table's files."""
        self.location = self.place_of(folder)
        self._schema = schema
        self._partition_keys = list(partition_keys)
        self._properties = dict(properties or {})
        self._create()

    def place_of(self, folder: Path) -> str:
        """Return the location of the table that is in this folder."""
        return str(folder / "numbers")

    @property
    def access(self) -> dict[str, str] | None:
        """Options with which the library reaches the table."""
        return None

    def storage(self, fault: Fault | None) -> Storage:
        """Open the storage, with a fault of its next publication."""
        return FaultyStorage(self.location, fault)

    def _create(self) -> None:
        DeltaTable.create(
            self.location,
            self._schema,
            partition_by=self._partition_keys,
            configuration=self._properties or None,
            storage_options=self.access,
        )

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.location, storage_options=self.access)

    @property
    def log(self) -> Path:
        return self.root / "_delta_log"

    def committer(self, user: str = USER, fault: Fault | None = None) -> DeltaCommitter:
        return DeltaCommitter(self.storage(fault), user)

    def maintenance(self, location: str | None = None) -> DeltaMaintenance:
        return self.adapter.open_maintenance(self.adapter.parse_table(location or self.location))

    def event(self, ids: Iterable[int]) -> FilesWritten:
        return self.write(pa.record_batch({"id": pa.array(list(ids), pa.int64())}))

    def write(self, *batches: pa.RecordBatch, event_time: str | None = None) -> FilesWritten:
        return written(self.adapter, self.adapter.parse_table(self.location), *batches, event_time=event_time)

    def ids(self) -> list[int]:
        """Read the files that the library finds in the newest version."""
        paths = [self.root / uri.partition("/numbers/")[2] for uri in self.table.file_uris()]
        return sorted(number for path in paths for number in pq.ParquetFile(path).read()["id"].to_pylist())

    def read(self) -> pa.Table:
        return pa.table(self.table.scan())

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.read().to_pylist(), key=lambda row: row["id"])

    def alter(self, name: str, kind: pa.DataType) -> None:
        self.table.alter.add_columns(Field.from_arrow(pa.field(name, kind)))

    def schemas(self) -> int:
        return sum(len(self.actions(version, "metaData")) for version in self.versions())

    def data_files(self) -> int:
        return sum(1 for path in self.root.rglob("*.parquet") if self.log not in path.parents)

    def watermark(self) -> int | None:
        return Log(self.storage(None)).load().watermark

    def foreign(self, ids: Sequence[int] = ()) -> None:
        self.foreign_write(pa.table({"id": pa.array(list(ids), pa.int64())}))

    def foreign_write(self, rows: pa.Table, properties: CommitProperties = PATIENT) -> None:
        if rows.num_rows:
            # The library wants all columns.
            schema = pa.schema(self.table.schema())
            for field in [field for field in schema if field.name not in rows.schema.names]:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
            write_deltalake(
                self.location, rows, mode="append", commit_properties=properties, storage_options=self.access
            )
            return
        # The library commits nothing for no rows.
        table = self.table
        table.create_write_transaction([], "append", table.schema(), self._partition_keys)

    def impostor(self, decision: int, ids: Sequence[int]) -> None:
        theirs = CommitProperties(app_transactions=[Transaction(USER, decision)])
        self.foreign_write(pa.table({"id": pa.array(list(ids), pa.int64())}), theirs)

    def place(self, ref: SnapshotRef) -> int:
        return ref.id

    def versions(self) -> list[int]:
        names = (name for name in os.listdir(self.log) if name.endswith(".json"))
        return sorted(int(name[:20]) for name in names if name[:20].isdigit() and len(name) == 25)

    def commit_file(self, version: int) -> Path:
        return self.log / f"{version:020d}.json"

    def actions(self, version: int, kind: str) -> list[dict[str, Any]]:
        lines = self.commit_file(version).read_bytes().splitlines()
        return [dict(fields) for line in lines for name, fields in read_line(line) if name == kind]

    def lose(self, place: int) -> None:
        # Without a newer checkpoint, nobody could read the table any more.
        self.table.create_checkpoint()
        self.commit_file(place).unlink()

    def expire(self, keep: int) -> None:
        """Do as clean-up does: keep a checkpoint, its own version, and everything after it."""
        first = self.versions()[-keep:][0]
        DeltaTable(self.location, version=first, storage_options=self.access).create_checkpoint()
        for name in os.listdir(self.log):
            if name[:20].isdigit() and int(name[:20]) < first:
                (self.log / name).unlink()

    def rollback(self, to: int) -> None:
        for name in os.listdir(self.log):
            if name[:20].isdigit() and int(name[:20]) > to:
                (self.log / name).unlink()
        hint = self.log / "_last_checkpoint"
        if hint.exists() and json.loads(hint.read_bytes())["version"] > to:
            hint.unlink()

    def replace(self) -> None:
        self.drop()
        self._create()

    def drop(self) -> None:
        shutil.rmtree(self.root)

    def strand(self, decision: int, event: FilesWritten, meanwhile: Callable[[], None]) -> None:
        """Publish by a process that stands still right before its version appears, and dies right after.

        What others do meanwhile lets the history at its place expire.
        """
        committer = DeltaCommitter(ThawingStorage(self.location, meanwhile), USER)
        committer.check([event])
        request = CommitRequest(decision, f"digest-{decision}", committer.inspect().head, None, [event])
        with contextlib.suppress(Killed):
            committer.publish(request)
