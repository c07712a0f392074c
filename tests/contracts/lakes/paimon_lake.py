"""Paimon under the contract, with pypaimon itself as the reader and as the other writer."""

import contextlib
import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.write.table_commit import StreamTableCommit

from sluicegate.events.models import FilesWritten, SnapshotRef
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.paimon.committer import PaimonCommitter
from sluicegate.lakes.paimon.maintenance import PaimonMaintenance
from sluicegate.lakes.paimon.snapshots import Snapshots
from sluicegate.lakes.port import CommitRequest, LakeUnavailable
from sluicegate.lakes.storage import Storage
from sluicegate.lakes.storage_local import LocalStorage
from sluicegate.lakes.storages import open_storage
from tests.contracts.lakes.harness import USER, Fault, Killed, written

ID_ONLY = pa.schema([pa.field("id", pa.int64())])


class FaultyStorage(LocalStorage):
    """Fails once: at the link that decides a commit, or at the manifests before it."""

    def __init__(self, location: str, fault: Fault | None) -> None:
        super().__init__(location)
        self.fault = fault

    def write(self, folder: str, files: Mapping[str, bytes]) -> None:
        super().write(folder, files)
        if self.fault is Fault.AWAY:
            self.fault = None
            raise LakeUnavailable("injected")

    def link(self, draft: str, target: str) -> None:
        fault, self.fault = self.fault, None
        if fault is not Fault.LOST:
            super().link(draft, target)
        if fault is not None:
            raise OSError(errno.EIO, "injected")


class ThawingStorage(LocalStorage):
    """Stands still at the link that decides a commit, goes on, and is killed right behind it."""

    def __init__(self, location: str, meanwhile: Callable[[], None]) -> None:
        super().__init__(location)
        self._meanwhile = meanwhile

    def link(self, draft: str, target: str) -> None:
        self._meanwhile()
        super().link(draft, target)
        raise Killed


class PaimonLake:
    marked = False
    options: Mapping[str, str] | None = MappingProxyType({})

    def __init__(
        self,
        warehouse: Path | str,
        schema: pa.Schema = ID_ONLY,
        partition_keys: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        access: Mapping[str, str] | None = None,
        primary_keys: Sequence[str] = (),
    ) -> None:
        """Make the table in a folder or at a URI; `access` are pypaimon's own options of an object store."""
        self.adapter = ADAPTER
        self._schema = Schema.from_pyarrow_schema(
            schema,
            partition_keys=list(partition_keys),
            primary_keys=list(primary_keys),
            options={"bucket": "-1", **(options or {})},
        )
        self.catalog = CatalogFactory.create({"warehouse": str(warehouse), **(access or {})})
        self.catalog.create_database("db", True)
        self.catalog.create_table("db.numbers", self._schema, False)
        self.location = f"{warehouse}/db.db/numbers"
        self.root = Path(self.location)
        self.foreign_commits = 0

    @property
    def table(self) -> Any:
        return self.catalog.get_table("db.numbers")

    @property
    def storage(self) -> Storage:
        return open_storage(self.location)

    def faulty(self, fault: Fault | None) -> Storage:
        return FaultyStorage(self.location, fault)

    def thawing(self, meanwhile: Callable[[], None]) -> Storage:
        return ThawingStorage(self.location, meanwhile)

    def committer(self, user: str = USER, fault: Fault | None = None) -> PaimonCommitter:
        return PaimonCommitter(self.faulty(fault), user)

    def maintenance(self, location: str | None = None) -> PaimonMaintenance:
        return self.adapter.open_maintenance(self.adapter.parse_table(location or self.location))

    def event(self, ids: Iterable[int]) -> FilesWritten:
        return self.write(pa.record_batch({"id": pa.array(list(ids), pa.int64())}))

    def write(self, *batches: pa.RecordBatch, event_time: str | None = None) -> FilesWritten:
        return written(self.adapter, self.adapter.parse_table(self.location), *batches, event_time=event_time)

    def read(self) -> pa.Table:
        builder = self.table.new_read_builder()
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    def ids(self) -> list[int]:
        return sorted(self.read().column("id").to_pylist())

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.read().to_pylist(), key=lambda row: row["id"])

    def alter(self, name: str, kind: pa.DataType) -> None:
        added = PyarrowFieldParser.to_paimon_type(kind, True)
        self.catalog.alter_table("db.numbers", [SchemaChange.add_column(name, added)])

    def schemas(self) -> int:
        return sum(name.startswith("schema-") for name in self.storage.names("schema"))

    def data_files(self) -> int:
        folders = [name for name in self.storage.names(".") if name.startswith("bucket-")]
        return sum(len(self.storage.names(folder)) for folder in folders)

    def watermark(self) -> int | None:
        head = Snapshots(self.storage).newest()
        mark = head.fields.get("watermark") if head is not None else None
        return mark if isinstance(mark, int) else None

    def foreign(self, ids: Sequence[int] = ()) -> None:
        self.foreign_write(pa.table({"id": pa.array(list(ids), pa.int64())}))

    def foreign_write(self, rows: pa.Table) -> None:
        table = self.table.copy({"snapshot.ignore-empty-commit": "false"})
        schema = PyarrowFieldParser.from_paimon_schema(table.fields).remove_metadata()
        for field in [field for field in schema if field.name not in rows.schema.names]:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        write = table.new_stream_write_builder().new_write()
        if rows.num_rows:
            write.write_arrow(rows)
        self.foreign_commits += 1
        commit = StreamTableCommit(table, "another-product")
        commit.commit(write.prepare_commit(self.foreign_commits), self.foreign_commits)
        commit.close()
        write.close()

    def snapshot_ids(self) -> list[int]:
        names = self.storage.names("snapshot")
        return sorted(int(name[9:]) for name in names if name.startswith("snapshot-"))

    def impostor(self, decision: int, ids: Sequence[int]) -> None:
        write = self.table.new_stream_write_builder().new_write()
        write.write_arrow(pa.table({"id": pa.array(list(ids), pa.int64())}))
        commit = StreamTableCommit(self.table, USER)
        commit.commit(write.prepare_commit(decision), decision)
        commit.close()
        write.close()

    def place(self, ref: SnapshotRef) -> int:
        return ref.id

    def lose(self, place: int) -> None:
        assert self.storage.remove(f"snapshot/snapshot-{place}")

    def expire(self, keep: int) -> None:
        for number in self.snapshot_ids()[:-keep]:
            assert self.storage.remove(f"snapshot/snapshot-{number}")

    def rollback(self, to: int) -> None:
        self.table.rollback_to(to)

    def strand(self, decision: int, event: FilesWritten, meanwhile: Callable[[], None]) -> None:
        """Publish by a process that stands still right before its snapshot appears, and dies right after.

        What others do meanwhile lets the history at its place expire.
        """
        committer = PaimonCommitter(self.thawing(meanwhile), USER)
        committer.check([event])
        request = CommitRequest(decision, f"digest-{decision}", committer.inspect().head, None, [event])
        with contextlib.suppress(Killed):
            committer.publish(request)

    def drop(self) -> None:
        self.catalog.drop_table("db.numbers", False)

    def rewrite(self) -> None:
        """Put all rows into new files, and the old ones out of the table."""
        rows = self.read()
        builder = self.table.new_batch_write_builder().overwrite({})
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(rows)
        commit.commit(write.prepare_commit())
        commit.close()
        write.close()

    def replace(self) -> None:
        self.catalog.drop_table("db.numbers", False)
        self.catalog.create_table("db.numbers", self._schema, False)
