"""Upkeep of an Iceberg table beside its commits: history, file status, copies."""

import re
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.bases import missing
from sluicegate.lakes.cleaning import Cleaner
from sluicegate.lakes.history import TableHistory
from sluicegate.lakes.iceberg.ancestry import Ancestry, account_property
from sluicegate.lakes.iceberg.catalog import Catalog, NoTable
from sluicegate.lakes.iceberg.files import Files, location_of
from sluicegate.lakes.iceberg.metadata import Metadata, Snapshot
from sluicegate.lakes.iceberg.opening import sample
from sluicegate.lakes.iceberg.partition_layout import partition_layout
from sluicegate.lakes.iceberg.records import path_in, with_path
from sluicegate.lakes.iceberg.references import References
from sluicegate.lakes.iceberg.table import TableView, schema_digest
from sluicegate.lakes.iceberg.tags import make_tag
from sluicegate.lakes.partition_layout import PartitionLayout
from sluicegate.lakes.port import BadFiles, FileStatus, LakeUnavailable, Opened, SnapshotRef, TableRef
from sluicegate.lakes.samples import open_files
from sluicegate.lakes.storages import open_storage
from sluicegate.lakes.tags import Tag, TagAnswer
from sluicegate.lakes.twins import is_plain

_DATA_FILE: Final = re.compile(r"(?!metadata/).+")
_CLEANER: Final = Cleaner(
    "remove_orphan_files",
    3 * 86_400.0,
    "",
    "give it the argument older_than with a time that is at least {hours} hours ago",
)
_NOT_COPIED: Final = ("current-snapshot-id", "statistics", "partition-statistics")
_COPIED_PROPERTIES: Final = re.compile(r"(?!sluicegate\.|write\.data\.path$|write\.metadata\.path$).*")


class IcebergMaintenance:
    """The maintenance of one branch of one table."""

    def __init__(
        self,
        catalog: Catalog,
        files: Files,
        table: TableRef,
        branch: str,
        open_other: Callable[[TableRef], Catalog],
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._branch = branch
        self._open_other = open_other
        self._references: References | None = None
        self._asked: set[str] = set()
        self._like: dict[int, str] = {}
        """By id, digests of the schemas of the table that this one was made like."""
        self.location = table.location

    def history(self) -> TableHistory:
        return Ancestry(self._load(), self._branch).history()

    def account(self, commit_user: str, snapshot: SnapshotRef) -> str:
        # One property has that of the newest commit alone: each snapshot is listed in all later metadata.
        metadata = self._load()
        text = metadata.properties.get(account_property(commit_user, self._branch), "")
        identity, _, account = text.partition(":")
        return account if identity == metadata.identity else ""

    def open_newest(self) -> Opened:
        def head() -> Snapshot | None:
            metadata = self._load()
            self._require_file(metadata)
            return metadata.head(self._branch)

        return open_files(head, lambda: sample(self._files, head()))

    def _require_file(self, metadata: Metadata) -> None:
        if self._catalog.reads_files and not self._files.is_there(metadata.location):
            raise missing(metadata.location)

    def file_status(self, paths: Sequence[str]) -> dict[str, FileStatus]:
        view, metadata = self._view()
        data = {path: path.rpartition("/")[2] for path in paths if _is_data_file(view, path)}
        names = set(data.values())
        if self._references is None or not names <= self._asked:
            self._asked = names
            self._references = References(self._files, names)
        if data:
            self._references.refresh(metadata)
        outside = {path: FileStatus.OUTSIDE for path in paths if path not in data}
        found = self._references.found
        return outside | {path: self._status_of(view, path, name in found) for path, name in data.items()}

    def _status_of(self, view: TableView, path: str, referenced: bool) -> FileStatus:
        if referenced:
            return FileStatus.REFERENCED
        size = self._files.folder(view.data_location).size(path)
        return FileStatus.GONE if size is None else FileStatus.UNREFERENCED

    def delete_unreferenced(self, path: str) -> FileStatus:
        status = self.file_status([path])[path]
        view, _ = self._view()
        if status is not FileStatus.UNREFERENCED or _is_shared(view):
            return status
        removed = self._files.folder(view.data_location).remove(path)
        return FileStatus.DELETED if removed else FileStatus.GONE

    def partition_layout(self) -> PartitionLayout:
        return partition_layout(self._view()[0], self._files)

    def make_tag(self, tag: Tag) -> TagAnswer:
        return make_tag(self._catalog, self._load, tag)

    def cleaner(self) -> Cleaner | None:
        return None if _is_shared(self._view()[0]) else _CLEANER

    def create_like(self, source: TableRef) -> None:
        model = self._open_other(source)
        try:
            found = model.load()
        except NoTable:
            raise LakeUnavailable(f"{source.name} has no metadata to make a table like it") from None
        finally:
            model.close()
        self._like = {key: schema_digest(raw) for key, raw in TableView(found).raw_schemas.items()}
        try:
            self._catalog.load()
        except NoTable:
            fields = _copied(found, location_of(self.location))
        else:
            return
        location = f"{fields['location']}/metadata/00000-{uuid.uuid4()}.metadata.json"
        self._catalog.create(fields, location)

    def examine(self, event: FilesWritten, *, lost: bool = False) -> None:
        source = open_storage(event.location)
        for file in event.files:
            if not is_plain(file.path) or file.path.startswith("metadata/"):
                raise BadFiles(f"{file.path} is no place of a data file")
            size = source.size(file.path)
            if size is None:
                raise BadFiles(
                    f"the file {file.path} is not in {event.location} any more: a rewrite has replaced it "
                    "and its snapshots have expired, it was deleted, or the table was moved"
                )
            if size != file.size:
                raise BadFiles(f"the file {file.path} has {size} bytes instead of {file.size}")
        try:
            view = TableView(self._catalog.load())
        except NoTable:
            return
        way = "let the new table be made by this command, at a place without a table"
        if lost:
            way = (
                "give the new table the first columns of the lost one, then add the others in the same order"
            )
        if event.schema_id not in view.schemas or event.spec_id not in view.specs:
            raise BadFiles(
                f"the files of {event.location} were written with schema {event.schema_id} and partition "
                f"spec {event.spec_id}, which {self.location} lacks: {way}"
            )
        digest = schema_digest(view.raw_schemas[event.schema_id])
        if event.schema_digest not in ("", digest) or self._like.get(event.schema_id, digest) != digest:
            raise BadFiles(
                f"the files of {event.location} were written with schema {event.schema_id}, which is another "
                f"in {self.location}: {way}"
            )

    def adopt(self, event: FilesWritten, *, lost: bool = False) -> FilesWritten:
        self.examine(event, lost=lost)
        view, _ = self._view()
        source, target = open_storage(event.location), self._files.folder(view.data_location)
        adopted = [self._adopted(view, event, file) for file in event.files]
        for file in event.files:
            if target.size(file.path) != file.size:
                target.copy(source, file.path)
        target.settle_files([file.path for file in event.files])
        changes = {"location": view.event_location, "files": tuple(adopted)}
        return event.model_copy(update=changes)

    def _adopted(self, view: TableView, event: FilesWritten, file: FileInfo) -> FileInfo:
        """Return a file as of this table. Raises BadFiles."""
        if not file.metadata:
            return file
        try:
            _check_path(file)
            record = with_path(file.metadata, f"{view.data_location}/{file.path}")
        except ValueError as error:
            raise BadFiles(
                f"the record of {file.path} in {event.location} cannot be read: {error}"
            ) from error
        return file.model_copy(update={"metadata": record})

    def _view(self) -> tuple[TableView, Metadata]:
        metadata = self._load()
        return TableView(metadata), metadata

    def _load(self) -> Metadata:
        try:
            return self._catalog.load()
        except NoTable:
            raise LakeUnavailable(
                f"the catalog has no table for {self.location}: it was dropped or renamed. Register its "
                "newest metadata file under that name (register_table), or correct the options identifier "
                "and catalog"
            ) from None


def _is_shared(view: TableView) -> bool:
    """True if the table has the property that says that other tables may have its files, too."""
    return view.properties.get("gc.enabled", "true").strip().lower() == "false"


def _check_path(file: FileInfo) -> None:
    """Check that a record has the path of its file. Raises ValueError."""
    if not path_in(file.metadata).endswith(f"/{file.path}"):
        raise ValueError("it has the path of another file")


def _is_data_file(view: TableView, path: str) -> bool:
    if ".." in path.split("/") or not path.startswith(view.data_prefix):
        return False
    return _DATA_FILE.fullmatch(path) is not None


def _copied(metadata: Metadata, location: str) -> dict[str, Any]:
    """Return metadata of a new table with the schemas, specs and properties of another one."""
    fields = {key: value for key, value in metadata.fields.items() if key not in _NOT_COPIED}
    properties = {key: value for key, value in metadata.properties.items() if _COPIED_PROPERTIES.match(key)}
    fields |= {
        "table-uuid": str(uuid.uuid4()),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": time.time_ns() // 1_000_000,
        "properties": properties,
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {},
    }
    if metadata.version > 2:
        fields["next-row-id"] = 0
    return fields
