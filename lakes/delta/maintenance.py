"""Upkeep of a Delta table beside its commits: history, file status, copies."""

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final

from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.lakes.cleaning import Cleaner
from sluicegate.lakes.delta.ancestry import Ancestry
from sluicegate.lakes.delta.checkpoints import FOLDER
from sluicegate.lakes.delta.decisions import ACCOUNT, past_of
from sluicegate.lakes.delta.earlier import note
from sluicegate.lakes.delta.examinations import Examinations, UnknownSchema
from sluicegate.lakes.delta.features import keeps_timestamps
from sluicegate.lakes.delta.intervals import interval_seconds
from sluicegate.lakes.delta.log import Log, State, commit_name
from sluicegate.lakes.delta.opening import sample
from sluicegate.lakes.delta.partition_layout import partition_layout
from sluicegate.lakes.delta.references import References
from sluicegate.lakes.delta.versions import WRITER
from sluicegate.lakes.history import TableHistory
from sluicegate.lakes.partition_layout import PartitionLayout
from sluicegate.lakes.port import BadFiles, FileStatus, LakeUnavailable, Opened, SnapshotRef, TableRef
from sluicegate.lakes.samples import open_files
from sluicegate.lakes.storage import CannotPut, Storage, Uncertain
from sluicegate.lakes.storages import open_storage

RETENTION: Final = "delta.deletedFileRetentionDuration"
_WEEK: Final = 7 * 86_400.0
_OF_THE_LOG: Final = (
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
)
"""Properties about versions of one log."""
_DOMAINS: Final = ("delta.clustering",)
"""Metadata domains that belong to the schema."""


class DeltaMaintenance:
    """The maintenance of one table."""

    written_folders: Sequence[str] = ("", FOLDER)

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._log = Log(storage)
        self._references: References | None = None
        self._asked: set[str] = set()
        self._examinations: dict[str, Examinations] = {}
        """Of this table and of those whose files it takes, by place."""
        self.location = storage.uri

    def history(self) -> TableHistory:
        return Ancestry(self._log, self._log.load()).history()

    def account(self, commit_user: str, snapshot: SnapshotRef) -> str:
        found = self._log.version(snapshot.id)
        if found is None or found.ref != snapshot or past_of(found, commit_user).commit_user != commit_user:
            return ""
        return str(found.actions.info.get(ACCOUNT, ""))

    def open_newest(self) -> Opened:
        def head() -> SnapshotRef:
            return self._log.load().head.ref

        return open_files(head, lambda: sample(self._log))

    def file_status(self, paths: Sequence[str]) -> dict[str, FileStatus]:
        data = [path for path in paths if is_data_file(path)]
        names = {_name(path) for path in data}
        if self._references is None or not names <= self._asked:
            self._asked = names
            self._references = References(self._log, names)
        exists = not data or self._references.refresh()
        found = dict.fromkeys(paths, FileStatus.OUTSIDE)
        for path in data:
            found[path] = self._status_of(path, self._references.found, exists=exists)
        return found

    def _status_of(self, path: str, referenced: set[str], *, exists: bool) -> FileStatus:
        if _name(path) in referenced:
            return FileStatus.REFERENCED
        if self._storage.size(path) is None:
            return FileStatus.GONE
        if not exists:
            raise LakeUnavailable(
                f"{self.location} has no log, so it is unknown what refers to {path}. Mount its storage, or "
                "restore its log"
            )
        return FileStatus.UNREFERENCED

    def delete_unreferenced(self, path: str) -> FileStatus:
        status = self.file_status([path])[path]
        if status is not FileStatus.UNREFERENCED:
            return status
        return FileStatus.DELETED if self._storage.remove(path) else FileStatus.GONE

    def partition_layout(self) -> PartitionLayout:
        return partition_layout(self._log)

    def cleaner(self) -> Cleaner:
        said = self._log.load().metadata.configuration.get(RETENTION)
        age = _WEEK if said is None else interval_seconds(said)
        place = self.location.removeprefix("file://")
        change = f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('{RETENTION}' = 'interval {{hours}} hours')"
        return Cleaner("VACUUM", age, RETENTION if said is not None else "", f"set the property: {change}")

    def create_like(self, source: TableRef) -> None:
        if self._log.exists():
            return
        log = Log(open_storage(source.location))
        model = log.load()
        earlier = note(log, model)
        self._storage.make_folder()
        try:
            # Of two that create the table at once, one wins. Both have the same schema.
            self._storage.put_if_absent(commit_name(0), _creation(model, earlier))
            self._storage.settle(FOLDER)
        except (Uncertain, CannotPut) as error:
            raise LakeUnavailable(f"cannot create the table {self.location}: {error}") from error

    def examine(self, event: FilesWritten, *, lost: bool = False) -> None:
        source = open_storage(event.location)
        if not lost:
            self._refuse_other_schema(event, source)
        elif not self._knows(self._log, event.schema_id):
            # The id is a digest of the columns.
            raise BadFiles(
                f"the files of {event.location} were written with the schema {event.schema_id}, which "
                f"{self.location} lacks: give the new table the first columns of the lost one, then add the "
                "others in the same order"
            )
        for file in event.files:
            if not is_data_file(file.path):
                raise BadFiles(f"{file.path} is no place of a data file")
            _look(source, file)

    def adopt(self, event: FilesWritten, *, lost: bool = False) -> FilesWritten:
        self.examine(event, lost=lost)
        source = open_storage(event.location)
        for file in event.files:
            if self._storage.size(file.path) != file.size:
                self._storage.copy(source, file.path)
        self._storage.settle_files([file.path for file in event.files])
        return event.model_copy(update={"location": self.location})

    def _refuse_other_schema(self, event: FilesWritten, source: Storage) -> None:
        """Refuse files that this table does not take, or will not once it is made like the source."""
        made = self._log.exists()
        if made and self._knows(self._log, event.schema_id):
            return
        if not self._knows(Log(source), event.schema_id):
            raise BadFiles(
                f"the files of {event.location} were written with the schema {event.schema_id}, and clean-up "
                "has deleted that schema from its log. Copy the whole folder of the table"
            )
        if made:
            raise BadFiles(
                f"the files of {event.location} were written with the schema {event.schema_id}, and "
                f"{self.location} has another one: make the new table with the same schema, or let it be "
                "made by naming a folder that is not there yet"
            )

    def _knows(self, log: Log, schema_id: int) -> bool:
        """Return True if a table takes files of a schema, False if its log lacks that. Raises BadFiles."""
        place = log.storage.uri
        examinations = self._examinations.setdefault(place, Examinations(log, place))
        try:
            examinations.require(log.load(), schema_id)
        except UnknownSchema:
            return False
        return True


def is_data_file(path: str) -> bool:
    """Return True for a place of a data file: no hidden folder or name, unless it is one of a partition."""
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or parts[-1][0] in "._":
        return False
    return all("=" in part or part[0] not in "._" for part in parts[:-1]) and parts[0] != FOLDER


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _look(storage: Storage, file: FileInfo) -> None:
    size = storage.size(file.path)
    if size is None:
        raise BadFiles(
            f"the file {file.path} is not in {storage.uri} any more: compaction has rewritten it and it was "
            "vacuumed, it was deleted, or the table was moved"
        )
    if size != file.size:
        raise BadFiles(f"the file {file.path} has {size} bytes instead of {file.size}")


def _creation(model: State, earlier: dict[str, str]) -> bytes:
    """Return version 0 of a table with the schema, properties and features of another one.

    `earlier`: the field with the other one's earlier schemas.
    """
    now_ms = time.time_ns() // 1_000_000
    info: dict[str, Any] = {
        "timestamp": now_ms,
        "operation": "CREATE TABLE",
        "operationParameters": {},
        "engineInfo": WRITER,
        "txnId": str(uuid.uuid4()),
        **earlier,
    }
    if keeps_timestamps(model.protocol, model.metadata):
        info["inCommitTimestamp"] = now_ms
    protocol: dict[str, Any] = {
        "minReaderVersion": model.protocol.reader,
        "minWriterVersion": model.protocol.writer,
    }
    if model.protocol.reader >= 3:
        protocol["readerFeatures"] = sorted(model.protocol.reader_features)
    if model.protocol.writer >= 7:
        protocol["writerFeatures"] = sorted(model.protocol.writer_features)
    kept = {key: value for key, value in model.metadata.configuration.items() if key not in _OF_THE_LOG}
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": model.metadata.provider, "options": {}},
        "schemaString": model.metadata.schema,
        "partitionColumns": list(model.metadata.partition_columns),
        "configuration": kept,
        "createdTime": now_ms,
    }
    actions: list[dict[str, Any]] = [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}]
    for domain in _DOMAINS:
        if (configuration := model.domains.get(domain)) is not None:
            said = {"domain": domain, "configuration": configuration, "removed": False}
            actions.append({"domainMetadata": said})
    return b"\n".join(json.dumps(action, separators=(",", ":")).encode() for action in actions) + b"\n"
