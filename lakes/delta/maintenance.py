"""Upkeep of a Delta table beside its commits, for replay, listeners and the deletion of orphans."""

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from sluicegate.events.models import FilesWritten, SnapshotRef
from sluicegate.lakes.capabilities import Cleaner, FileStatus, Opened, PartitionField, PartitionLayout
from sluicegate.lakes.delta.checks import EventChecks, UnknownSchema, schemas_field
from sluicegate.lakes.delta.features import keeps_timestamps
from sluicegate.lakes.delta.log import (
    FOLDER,
    Gone,
    Log,
    Malformed,
    State,
    checkpoint_paths,
    commit_name,
    live_files,
    read_line,
)
from sluicegate.lakes.delta.schema import partition_folder, read_schema
from sluicegate.lakes.delta.versions import ACCOUNT, WRITER, Ancestry, past_of
from sluicegate.lakes.drafts import draft_files, is_draft
from sluicegate.lakes.history import TableHistory
from sluicegate.lakes.maintenance import (
    SAMPLE_FILES,
    Sampled,
    attempt_files,
    copy_files,
    first_of,
    open_files,
    require_unchanged,
    sized,
    spread,
)
from sluicegate.lakes.port import BadFiles, LakeUnavailable, TableRef
from sluicegate.lakes.storage import CannotPut, Storage, Uncertain
from sluicegate.lakes.storages import open_storage

# Intervals in properties of Delta tables, such as `interval 1 week`.

_UNITS: Final[Mapping[str, float]] = {
    "nanosecond": 1e-9,
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3_600.0,
    "day": 86_400.0,
    "week": 604_800.0,
}
_PART: Final = re.compile(r"([+-]?[0-9]{1,12})\s+([a-z]+?)s?(?:\s+|$)")


def interval_seconds(text: str) -> float:
    """Return the seconds of an interval; 0 for a text that is none, since it protects nothing."""
    rest = text.strip().lower().removeprefix("interval").strip()
    seconds = 0.0
    while rest:
        found = _PART.match(rest)
        if found is None or found[2] not in _UNITS:
            return 0.0
        seconds += int(found[1]) * _UNITS[found[2]]
        rest = rest[found.end() :]
    return seconds


# The files of a Delta table that a reader of its newest version opens.

_OF_CHECKPOINT: Final = 10_000
"""Files of a checkpoint from which a sample is chosen."""


def sample(log: Log) -> list[Sampled]:
    """Return data files of the newest version. Raises LakeUnavailable if the log lacks a file."""
    version = log.load().version
    log.require_base(version)
    try:
        return _sample(log, version)
    except (Gone, Malformed) as error:
        raise LakeUnavailable(
            f"the Delta log of {log.storage.uri} cannot be read: {error}. Restore that file from a backup"
        ) from error


def _sample(log: Log, version: int) -> list[Sampled]:
    """Read the log back from a version, until there are enough files. Raises Gone or Malformed."""
    newest = next((each for each in log.listing().checkpoints if each.version <= version), None)
    found: list[Sampled] = []
    removed: set[str] = set()
    for number in range(version, newest.version if newest is not None else -1, -1):
        added = []
        for kind, fields in _actions(log.storage, commit_name(number)):
            path = fields.get("path")
            if kind == "remove" and isinstance(path, str):
                removed.add(path)
            elif kind == "add" and path not in removed:
                added.append(fields)
        found += [each for each in (_file(log.storage, fields) for fields in added) if each is not None]
        if len(found) >= SAMPLE_FILES:
            return found[:SAMPLE_FILES]
    if newest is None:
        return found
    older = first_of(
        (fields for fields in live_files(log.storage, newest) if fields.get("path") not in removed),
        _OF_CHECKPOINT,
    )
    files = [each for each in (_file(log.storage, fields) for fields in older) if each is not None]
    return [*found, *spread(files, SAMPLE_FILES - len(found))]


def _actions(storage: Storage, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    raw = storage.read(name)
    if raw is None:
        raise Gone(name)
    for line in raw.split(b"\n"):
        yield from read_line(line)


def _file(storage: Storage, fields: Mapping[str, Any]) -> Sampled | None:
    """Return the file of an action; None for one of another table, which has an absolute path."""
    path, size = fields.get("path"), fields.get("size")
    if not isinstance(path, str) or not isinstance(size, int):
        raise Malformed(f"an action has no path or no size: {path!r}")
    name = unquote(path)
    return None if "://" in name or name.startswith("/") else Sampled(storage, name, size)


# Data files to which a Delta table refers: from any version or checkpoint that its log still has.

_ABOUT_FILES: Final = frozenset({"add", "remove", "cdc"})


class References:
    """Search for a set of file names in all versions and checkpoints of a log.

    A removed file counts, too: older versions can be read, and a restore brings it back. Files of the log
    never change, so each is read once. Each `refresh` reads only new ones.
    """

    def __init__(self, log: Log, names: set[str]) -> None:
        self._log = log
        self._names = names
        self._known: set[str] = set()
        """Files of the log that were read to their end."""
        self.found: set[str] = set()

    def refresh(self) -> bool:
        """Read new files of the log; return False if there is no log.

        Raises LakeUnavailable: then no name may be considered unreferenced.
        """
        listing = self._log.listing()
        commits = {commit_name(number) for number in listing.commits}
        checkpoints = {f"{FOLDER}/{name}" for each in listing.checkpoints for name in each.names}
        # Clean-up may delete a file that was listed. Its content is in a newer checkpoint, so that one is
        # read afterwards.
        for name in sorted(commits - self._known):
            self._add(name, self._in_commit(name))
        for name in sorted(checkpoints - self._known):
            self._add(name, checkpoint_paths(self._log.storage, name.rpartition("/")[2]))
        return bool(listing.commits or listing.checkpoints)

    def _add(self, name: str, paths: Iterable[str]) -> None:
        try:
            for path in paths:
                # A name may be encoded, and an absolute path leads to a file of another table.
                for each in (path, unquote(path)):
                    base = each.rpartition("/")[2]
                    if base in self._names:
                        self.found.add(base)
        except Gone:
            raise LakeUnavailable(
                f"{name} of {self._log.storage.uri} was deleted while its references were read. Try again"
            ) from None
        except Malformed as error:
            raise LakeUnavailable(
                f"{name} of {self._log.storage.uri} cannot be read, so its references are unknown: {error}. "
                "Restore that file from a backup"
            ) from error
        self._known.add(name)

    def _in_commit(self, name: str) -> Iterator[str]:
        raw = self._log.storage.read(name)
        if raw is None:
            raise Gone(name)
        for line in raw.split(b"\n"):
            for kind, fields in read_line(line):
                if kind in _ABOUT_FILES and isinstance(path := fields.get("path"), str):
                    yield path


# Partitions of a Delta table: their fields and folders.

_RANDOM: Final = "delta.randomizeFilePrefixes"


def partition_layout(log: Log) -> PartitionLayout:
    """Return the layout of a table. Raises LakeUnavailable."""
    metadata = log.load().metadata
    schema = read_schema(metadata)
    fields = tuple(PartitionField(column.physical, "identity") for column in schema.partitions)
    no_folder = None
    if schema.mode != "none":
        no_folder = f"it has column mapping by {schema.mode}, with which other writers use random folders"
    elif metadata.configuration.get(_RANDOM, "").strip().lower() == "true":
        no_folder = f"its property {_RANDOM} is true, so other writers use random folders"
    return PartitionLayout(
        fields, log.storage, no_folder, lambda values: partition_folder(schema.partitions, values)
    )


RETENTION: Final = "delta.deletedFileRetentionDuration"
_WEEK: Final = 7 * 86_400.0
_OF_THE_LOG: Final = (
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
)
"""Properties about versions of one log."""
_DOMAINS: Final = ("delta.clustering",)
"""Metadata domains that belong to the schema."""
_DRAFTS: Final = (FOLDER,)
_REMOVAL: Final = "compaction has rewritten it and it was vacuumed"


class DeltaMaintenance:
    """The maintenance of one table."""

    branch = ""
    written_folders: Sequence[str] = ("", FOLDER)

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._log = Log(storage)
        self._references: References | None = None
        self._asked: set[str] = set()
        self._checks: dict[str, EventChecks] = {}
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

    def stated_files(self) -> dict[str, int]:
        storage = self._storage
        return sized(storage.sizes, [*attempt_files(storage, ""), *draft_files(storage, _DRAFTS)])

    def file_status(self, paths: Sequence[str]) -> dict[str, FileStatus]:
        # No file of the log names another one that a draft could be: a version is a second link to it.
        data = [path for path in paths if is_data_file(path) or is_draft(path, _DRAFTS)]
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
        earlier = schemas_field(log, model)
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
            require_unchanged(source, file, _REMOVAL)

    def adopt(self, event: FilesWritten, *, lost: bool = False) -> FilesWritten:
        self.examine(event, lost=lost)
        copy_files(open_storage(event.location), self._storage, event.files)
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
        checks = self._checks.setdefault(place, EventChecks(log, place))
        try:
            checks.require(log.load(), schema_id)
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
