"""Upkeep of a Paimon table beside its commits: history, file status, copies."""

import json
import re
import time
from collections.abc import Sequence
from typing import Any, Final

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.cleaning import Cleaner
from sluicegate.lakes.committers import refuse_other_schema
from sluicegate.lakes.footers import read_footers
from sluicegate.lakes.history import TableHistory
from sluicegate.lakes.paimon.ancestry import Ancestry
from sluicegate.lakes.paimon.described import columns_of
from sluicegate.lakes.paimon.opening import sample
from sluicegate.lakes.paimon.partition_layout import partition_layout
from sluicegate.lakes.paimon.references import References
from sluicegate.lakes.paimon.snapshots import Snapshots
from sluicegate.lakes.paimon.table import Table
from sluicegate.lakes.paimon.tags import make_tag
from sluicegate.lakes.partition_layout import PartitionLayout
from sluicegate.lakes.port import BadFiles, FileStatus, LakeUnavailable, Opened, SnapshotRef, TableRef
from sluicegate.lakes.samples import open_files
from sluicegate.lakes.storage import Storage
from sluicegate.lakes.storages import open_storage
from sluicegate.lakes.tags import Tag, TagAnswer
from sluicegate.lakes.undescribed import prepared

_DATA_FILE: Final = re.compile(r"(?:[^/=]+=[^/]*/)*bucket-[^/]+/[^/]+")
"""Partitions, a bucket, a name: never the place of a snapshot, manifest or schema."""
_CLEANER: Final = Cleaner(
    "remove_orphan_files",
    86_400.0,
    "",
    "give it the argument older_than with a time that is at least {hours} hours ago",
)
_SCHEMA_SAYS: Final = ("fields", "partitionKeys", "primaryKeys")


class PaimonMaintenance:
    """The maintenance of one table."""

    written_folders: Sequence[str] = ("", "snapshot", "manifest")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._references: References | None = None
        self._asked: set[str] = set()
        self.location = storage.uri

    def history(self) -> TableHistory:
        identity = Table(self._storage).identity()
        snapshots = Snapshots(self._storage)
        return Ancestry(snapshots, snapshots.newest()).history(identity)

    def account(self, commit_user: str, snapshot: SnapshotRef) -> str:
        found = Snapshots(self._storage).at(snapshot.id)
        made = found is not None and found.ref == snapshot and found.past().commit_user == commit_user
        return found.account if found is not None and made else ""

    def open_newest(self) -> Opened:
        snapshots = Snapshots(self._storage)

        def head() -> SnapshotRef | None:
            found = snapshots.newest()
            return None if found is None else found.ref

        return open_files(head, lambda: sample(self._storage, snapshots.newest()))

    def file_status(self, paths: Sequence[str]) -> dict[str, FileStatus]:
        data = [path for path in paths if _is_data_file(path)]
        names = {_name(path) for path in data}
        if self._references is None or not names <= self._asked:
            self._asked = names
            self._references = References(self._storage, names)
        if data:
            self._references.refresh()
        outside = {path: FileStatus.OUTSIDE for path in paths if not _is_data_file(path)}
        return outside | {path: self._status_of(path, self._references.found) for path in data}

    def _status_of(self, path: str, referenced: set[str]) -> FileStatus:
        if _name(path) in referenced:
            return FileStatus.REFERENCED
        return FileStatus.GONE if self._storage.size(path) is None else FileStatus.UNREFERENCED

    def delete_unreferenced(self, path: str) -> FileStatus:
        status = self.file_status([path])[path]
        if status is not FileStatus.UNREFERENCED:
            return status
        return FileStatus.DELETED if self._storage.remove(path) else FileStatus.GONE

    def partition_layout(self) -> PartitionLayout:
        return partition_layout(Table(self._storage))

    def make_tag(self, tag: Tag) -> TagAnswer:
        return make_tag(self._storage, tag)

    def cleaner(self) -> Cleaner:
        return _CLEANER

    def create_like(self, source: TableRef) -> None:
        if self._storage.names("schema"):
            return
        model = open_storage(source.location)
        schemas = {name: model.read(f"schema/{name}") for name in sorted(model.names("schema"))}
        files = {name: _made_now(raw) for name, raw in schemas.items() if raw and name.startswith("schema-")}
        if not files:
            raise LakeUnavailable(f"{model.uri} has no schema to make a table like it")
        self._storage.make_folder()
        self._storage.write("schema", files)

    def examine(self, event: FilesWritten, *, lost: bool = False) -> None:
        source = open_storage(event.location)
        if not lost and event.schema_digest:
            refuse_other_schema(event, Table(source).schema_digest(event.schema_id))
        if not lost and self._storage.names("schema"):
            self._refuse_other_schema(source, event.schema_id)
        for file in event.files:
            if not _is_data_file(file.path):
                raise BadFiles(f"{file.path} is no place of a data file")
            _look(source, file)
        if lost:
            self._compare_columns(source, event)

    def adopt(self, event: FilesWritten, *, lost: bool = False) -> FilesWritten:
        self.examine(event, lost=lost)
        source = open_storage(event.location)
        for file in event.files:
            if self._storage.size(file.path) != file.size:
                self._storage.copy(source, file.path)
        self._storage.settle_files([file.path for file in event.files])
        # A schema's digest contains the time when it was made, and the contents were compared.
        return event.model_copy(update={"location": self.location, "schema_digest": ""})

    def _compare_columns(self, source: Storage, event: FilesWritten) -> None:
        """Compare files with the schema of their id in this table. Raises BadFiles, LakeUnavailable.

        The digest of a schema contains the time when it was made, so it proves nothing of another table.
        """
        ours = Table(self._storage)
        if not ours.has_schema(event.schema_id):
            raise BadFiles(
                f"the files of {event.location} were written with schema {event.schema_id}, which "
                f"{self.location} lacks: give the new table the first columns of the lost one, then add the "
                "others in the same order"
            )
        table = ours.at(event.schema_id)
        keys = {*table.partition_keys}
        for file in event.files:
            if {*file.partition} != keys:
                raise BadFiles(
                    f"the file {file.path} has the partition columns {sorted(file.partition)}, and "
                    f"{self.location} has {sorted(keys)}: make the new table with those of the lost one"
                )
        columns = prepared(lambda: columns_of(table))
        for file, footer in zip(event.files, read_footers(source, event.files), strict=True):
            columns.check(file.path, footer)

    def _refuse_other_schema(self, source: Storage, schema_id: int) -> None:
        ours, theirs = (_schema(storage, schema_id) for storage in (self._storage, source))
        if ours != theirs:
            raise BadFiles(
                f"the files of {source.uri} were written with its schema {schema_id}, which is another in "
                f"{self.location}: make the new table with the same schemas, or let it be made by naming "
                "a folder that is not there yet"
            )


def _is_data_file(path: str) -> bool:
    return _DATA_FILE.fullmatch(path) is not None and ".." not in path.split("/")


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _look(storage: Storage, file: FileInfo) -> None:
    size = storage.size(file.path)
    if size is None:
        raise BadFiles(
            f"the file {file.path} is not in {storage.uri} any more: compaction has rewritten it and its "
            "snapshots have expired, it was deleted, or the table was moved"
        )
    if size != file.size:
        raise BadFiles(f"the file {file.path} has {size} bytes instead of {file.size}")


def _schema(storage: Storage, schema_id: int) -> dict[str, Any] | None:
    raw = storage.read(f"schema/schema-{schema_id}")
    if raw is None:
        return None
    says = json.loads(raw)
    return {each: says.get(each) for each in _SCHEMA_SAYS}


def _made_now(raw: bytes) -> bytes:
    """Return the schema with the current time: the time of the first schema identifies a table."""
    says = json.loads(raw)
    says["timeMillis"] = time.time_ns() // 1_000_000
    return json.dumps(says, indent=2).encode()
