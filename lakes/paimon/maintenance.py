"""Upkeep of a Paimon table beside its commits, for replay, listeners and the deletion of orphans."""

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pydantic_core import to_json
from pypaimon.table.row.generic_row import GenericRowDeserializer

from sluicegate.events.models import FilesWritten, SnapshotRef
from sluicegate.lakes.capabilities import (
    Cleaner,
    FileStatus,
    Opened,
    PartitionField,
    PartitionLayout,
    SnapshotExpired,
    Tag,
    TagAnswer,
    TagMade,
    TagTaken,
    TagThere,
)
from sluicegate.lakes.committer import missing_file, prepare_describer, refuse_other_schema
from sluicegate.lakes.drafts import draft_files, is_draft
from sluicegate.lakes.footers import read_footers
from sluicegate.lakes.history import TableHistory
from sluicegate.lakes.maintenance import (
    SAMPLE_FILES,
    Sampled,
    attempt_files,
    copy_files,
    open_files,
    require_unchanged,
    sized,
)
from sluicegate.lakes.paimon.entries import partition_folder
from sluicegate.lakes.paimon.manifests import FOLDER
from sluicegate.lakes.paimon.plain_files import columns_of
from sluicegate.lakes.paimon.snapshots import DECISION, Ancestry, Gone, Snapshot, Snapshots, records
from sluicegate.lakes.paimon.table import SchemaTable, Table
from sluicegate.lakes.port import BadFiles, LakeUnavailable, TableRef
from sluicegate.lakes.storage import CannotPut, Storage, Uncertain
from sluicegate.lakes.storages import open_storage

# Tags of a Paimon table: copies of snapshot files, which Paimon's expiry respects.
#
# The file is that of Paimon's own tags. With a retention it has the two fields that Paimon's upkeep reads.

_SAME: Final = ("id", "commitUser", "commitIdentifier", "baseManifestList", "deltaManifestList")
"""Fields that no two snapshots of a table share."""


def make_tag(storage: Storage, tag: Tag) -> TagAnswer:
    """Make a tag, unless its name is taken. Raises LakeUnavailable."""
    name, source = f"tag/tag-{tag.name}", f"snapshot/snapshot-{tag.snapshot.id}"
    found = storage.read(name)
    if found is not None:
        return _compared(storage, tag, found, storage.read(source))
    raw = storage.read(source)
    if raw is None or _identity(raw) != tag.snapshot.identity:
        return SnapshotExpired()
    try:
        put = storage.put_if_absent(name, _content(raw, tag.retained))
    except (Uncertain, CannotPut) as error:
        raise LakeUnavailable(f"the tag {tag.name} was not made, or perhaps it was: {error}") from error
    if not put:
        raise LakeUnavailable(f"another process made the tag {tag.name} meanwhile; it is compared")
    # An expiry that has listed the tags before does not know of this one.
    return TagMade() if storage.size(source) is not None else SnapshotExpired(tag_is_there=True)


def _content(snapshot: bytes, retained: int | None) -> bytes:
    if retained is None:
        return snapshot
    now = datetime.now()
    created = [now.year, now.month, now.day, now.hour, now.minute, now.second, now.microsecond * 1000]
    fields = {**json.loads(snapshot), "tagCreateTime": created, "tagTimeRetained": retained / 1000}
    return to_json(fields, indent=2)


def _compared(storage: Storage, tag: Tag, found: bytes, snapshot: bytes | None) -> TagAnswer:
    """Compare a tag that is there with the snapshot, which may have expired since the tag was made."""
    try:
        fields = json.loads(found)
        same = _is_of(fields, tag, snapshot)
        holder = f"a tag of snapshot {fields['id']}"
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LakeUnavailable(
            f"tag/tag-{tag.name} of {storage.uri} is unreadable: {error!r}. Look at that file"
        ) from error
    return TagThere() if same else TagTaken(holder)


def _is_of(fields: Mapping[str, Any], tag: Tag, snapshot: bytes | None) -> bool:
    if fields["id"] != tag.snapshot.id:
        return False
    if snapshot is not None and _identity(snapshot) == tag.snapshot.identity:
        kept = json.loads(snapshot)
        return all(fields.get(name) == kept.get(name) for name in _SAME)
    # A rollback may have given the number to another snapshot, which is of a later decision, or of none.
    decision = str((fields.get("properties") or {}).get(DECISION, ""))
    return decision.isdigit() and 0 < int(decision) <= tag.decision


def _identity(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:32]


# Partitions of a Paimon table: their fields and folders.

_BUCKET: Final = "/bucket-0"


def partition_layout(table: Table) -> PartitionLayout:
    """Return the layout of a table. Raises TableRefused or LakeUnavailable."""
    newest = table.newest()
    fields = tuple(_field(newest, name) for name in newest.partition_keys)
    return PartitionLayout(fields, table.storage, None, lambda values: _folder(newest, values))


def _field(table: SchemaTable, name: str) -> PartitionField:
    kind = next(str(each.type).upper() for each in table.partition_keys_fields if each.name == name)
    # By default, Paimon names the folder of a date by the days since the epoch.
    as_days = kind.startswith("DATE") and table.path_factory().legacy_partition_name
    return PartitionField(name, "days" if as_days else "identity")


def _folder(table: SchemaTable, values: Mapping[str, str | None]) -> str:
    factory = table.path_factory()
    # The values are texts already: a type would format them a second time.
    factory.partition_types = None
    texts = tuple(values[name] for name in table.partition_keys)
    folder = str(factory.relative_bucket_path(texts, 0, canonical_partition=True))
    return folder.removeprefix("./").removesuffix(_BUCKET)


# The files of a Paimon table that a reader of its newest snapshot opens.

_LISTS: Final = ("baseManifestList", "deltaManifestList")
_DELETED: Final = 1


def sample(storage: Storage, head: Snapshot | None) -> list[Sampled]:
    """Return data files of a snapshot. Raises LakeUnavailable if its metadata lacks a file."""
    table = Table(storage)
    table.identity()
    newest = table.newest()
    if head is None:
        return []
    manifests = [name for which in _LISTS for name in _named(storage, str(head.fields[which]))]
    sizes = storage.sizes([f"{FOLDER}/{name}" for name in manifests])
    for name, size in zip(manifests, sizes, strict=True):
        if size is None:
            raise missing_file(f"{storage.uri}/{FOLDER}/{name}")
    found: list[Sampled] = []
    deleted: set[tuple[bytes, int, str]] = set()
    # An entry that deletes a file comes after the one that adds it.
    for name in reversed(manifests):
        for entry in reversed(_records(storage, name)):
            file = entry["_FILE"]
            key = (entry["_PARTITION"], entry["_BUCKET"], file["_FILE_NAME"])
            if entry["_KIND"] == _DELETED:
                deleted.add(key)
            elif key not in deleted and not file.get("_EXTERNAL_PATH"):
                partition = GenericRowDeserializer.from_bytes(key[0], newest.partition_keys_fields)
                folder = partition_folder(newest, partition, key[1]).folder
                found.append(Sampled(storage, f"{folder}/{key[2]}", file["_FILE_SIZE"]))
        if len(found) >= SAMPLE_FILES:
            break
    return found[:SAMPLE_FILES]


def _named(storage: Storage, name: str) -> list[str]:
    return [str(meta["_FILE_NAME"]) for meta in _records(storage, name)]


def _records(storage: Storage, name: str) -> list[dict[str, Any]]:
    try:
        return records(storage, name)
    except Gone:
        raise missing_file(f"{storage.uri}/{FOLDER}/{name}") from None
    except (KeyError, TypeError) as error:
        raise LakeUnavailable(f"{name} of {storage.uri} cannot be read: {error!r}") from error


# Data files and drafts to which a Paimon table refers from its snapshots, tags, changelogs and branches.

_ALL_LISTS: Final = ("baseManifestList", "deltaManifestList", "changelogManifestList")
_KINDS: Final = ("snapshot", "tag", "changelog")
_BRANCHES: Final = "branch"


class References:
    """Search for a set of file names in all snapshots, tags, changelogs and branches of a table.

    Manifests never change, so each is read once. Each `refresh` reads only new ones. An entry that deletes a
    file also counts as a reference.
    """

    def __init__(self, storage: Storage, names: set[str]) -> None:
        self._storage = storage
        self._names = names
        self._known: set[str] = set()
        """Digests of snapshots, and names of lists and manifests, that were read to their end."""
        self.found: set[str] = set()

    def refresh(self) -> None:
        """Read new snapshots and manifests.

        Raises LakeUnavailable: then no name may be considered unreferenced.
        """
        for file in list(self._entrances()):
            raw = self._storage.read(file)
            if raw is None:
                continue  # it has expired meanwhile
            digest = hashlib.sha256(raw).hexdigest()
            if digest in self._known:
                continue
            try:
                self._read(_fields(file, raw))
            except Gone:
                # An expiry deletes the manifests first. A file that stays without its manifests is damaged,
                # so its references are unknown.
                if self._storage.size(file) is not None:
                    raise LakeUnavailable(
                        f"{file} of {self._storage.uri} is there, but a manifest of it is not: what it refers"
                        " to cannot be told"
                    ) from None
                continue
            self._known.add(digest)

    def _entrances(self) -> Iterator[str]:
        """Yield the files from which readers start: snapshots, tags and changelogs of all branches."""
        folders = ["", *(f"{_BRANCHES}/{name}/" for name in self._storage.names(_BRANCHES))]
        for folder in folders:
            for kind in _KINDS:
                for name in self._storage.names(f"{folder}{kind}"):
                    if name.startswith(f"{kind}-"):
                        yield f"{folder}{kind}/{name}"

    def _read(self, snapshot: dict[str, Any]) -> None:
        self.found |= {each for each in snapshot.values() if isinstance(each, str)} & self._names
        for each in _ALL_LISTS:
            name = snapshot.get(each)
            if not name or name in self._known:
                continue
            for manifest in records(self._storage, name):
                self._read_manifest(str(manifest["_FILE_NAME"]))
            self._known.add(name)

    def _read_manifest(self, name: str) -> None:
        if name in self._known:
            return
        self.found |= {name} & self._names
        for entry in records(self._storage, name):
            described = entry["_FILE"]
            present = {described["_FILE_NAME"], *(described.get("_EXTRA_FILES") or ())}
            self.found |= present & self._names
        self._known.add(name)


def _fields(file: str, raw: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(raw)
    except ValueError as error:
        raise LakeUnavailable(f"{file} cannot be read: {error}") from error
    if not isinstance(fields, dict):
        raise LakeUnavailable(f"{file} cannot be read: it is no snapshot")
    return fields


_DATA_FILE: Final = re.compile(r"(?:[^/=]+=[^/]*/)*bucket-[^/]+/[^/]+")
"""Partitions, a bucket, a name: never the place of a snapshot, manifest or schema."""
_CLEANER: Final = Cleaner(
    "remove_orphan_files",
    86_400.0,
    "",
    "give it the argument older_than with a time that is at least {hours} hours ago",
)
_DRAFTS: Final = (FOLDER, "snapshot")
_SCHEMA_SAYS: Final = ("fields", "partitionKeys", "primaryKeys")
_REMOVAL: Final = "compaction has rewritten it and its snapshots have expired"


class PaimonMaintenance:
    """The maintenance of one table."""

    branch = ""
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

    def stated_files(self) -> dict[str, int]:
        storage = self._storage
        return sized(storage.sizes, [*attempt_files(storage, ""), *draft_files(storage, _DRAFTS)])

    def file_status(self, paths: Sequence[str]) -> dict[str, FileStatus]:
        data = [path for path in paths if _is_data_file(path) or is_draft(path, _DRAFTS)]
        names = {_name(path) for path in data}
        if self._references is None or not names <= self._asked:
            self._asked = names
            self._references = References(self._storage, names)
        if data:
            self._references.refresh()
        outside = dict.fromkeys(paths, FileStatus.OUTSIDE)
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
            require_unchanged(source, file, _REMOVAL)
        if lost:
            self._compare_columns(source, event)

    def adopt(self, event: FilesWritten, *, lost: bool = False) -> FilesWritten:
        self.examine(event, lost=lost)
        copy_files(open_storage(event.location), self._storage, event.files)
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
        columns = prepare_describer(lambda: columns_of(table))
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
