"""Upkeep of an Iceberg table beside its commits, for replay, listeners and the deletion of orphans."""

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.types import TimestamptzNanoType, TimestamptzType

from sluicegate.events.models import FileInfo, FilesWritten, SnapshotRef
from sluicegate.lakes.avro import BadContainer, records
from sluicegate.lakes.capabilities import (
    CatalogAccess,
    Cleaner,
    FieldKind,
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
from sluicegate.lakes.committer import is_plain, missing_file
from sluicegate.lakes.drafts import draft_files, is_draft, stated_draft
from sluicegate.lakes.history import TableHistory
from sluicegate.lakes.iceberg.ancestry import Ancestry, account_property
from sluicegate.lakes.iceberg.catalog import Catalog, NoTable
from sluicegate.lakes.iceberg.files import Files, location_of
from sluicegate.lakes.iceberg.layout import Lists, path_in, with_path
from sluicegate.lakes.iceberg.metadata import Metadata, NewTag, Snapshot, parse
from sluicegate.lakes.iceberg.table import TableView, folder_path, schema_digest
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
from sluicegate.lakes.port import BadFiles, LakeError, LakeUnavailable, TableRef, TableRefused
from sluicegate.lakes.storage import KeySource, Storage, Uncertain
from sluicegate.lakes.storages import open_storage

# Partitions of an Iceberg table: their fields and folders.

_TRANSFORMS: Final[tuple[tuple[type, FieldKind], ...]] = (
    (IdentityTransform, "identity"),
    (YearTransform, "year"),
    (MonthTransform, "month"),
    (DayTransform, "day"),
    (HourTransform, "hour"),
)
_PROVIDERS: Final = ("write.location-provider.impl", "write.py-location-provider.impl")


def partition_layout(view: TableView, files: Files) -> PartitionLayout:
    """Return the layout of a table."""
    fields: dict[str, PartitionField] = {}
    for field in _fields(view):
        fields.setdefault(field.name, _partition_field(view.schema, field))
    return PartitionLayout(
        tuple(fields.values()),
        files.folder(view.data_location),
        _no_folder(view),
        lambda values: f"{view.data_prefix}{folder_path(values)}",
    )


def _fields(view: TableView) -> Iterator[SpecField]:
    """Yield the fields of all specs, those of the current one first."""
    yield from view.spec.fields
    for spec in view.specs.values():
        yield from spec.fields


def _partition_field(schema: Schema, field: SpecField) -> PartitionField:
    kinds = [name for transform, name in _TRANSFORMS if isinstance(field.transform, transform)]
    kind: FieldKind = kinds[0] if kinds else "opaque"
    try:
        source = schema.find_type(field.source_id)
    except ValueError:
        # The column of an earlier spec was dropped.
        return PartitionField(field.name, kind)
    return PartitionField(field.name, kind, isinstance(source, TimestamptzType | TimestamptzNanoType))


def _no_folder(view: TableView) -> str | None:
    hidden = [field.name for field in view.spec.fields if not isinstance(field.transform, IdentityTransform)]
    if hidden:
        return f"its partition field {hidden[0]} is a hidden transform, whose folders mean nothing to readers"
    if view.properties.get("write.object-storage.enabled", "").strip().lower() == "true":
        return "its property write.object-storage.enabled is true, which spreads a partition's files"
    if named := next((key for key in _PROVIDERS if view.properties.get(key, "").strip()), None):
        return f"its property {named} names a provider of locations, which may use other folders"
    return None


# The files of an Iceberg table that a reader of its newest snapshot opens.

_NEWEST: Final = 3
_MANIFESTS: Final = 16
"""Manifests that are read; all others are looked at."""
_DELETED: Final = 2


def sample(files: Files, head: Snapshot | None) -> list[Sampled]:
    """Return data files and delete files of a snapshot. Raises LakeUnavailable if a manifest is missing."""
    if head is None or "manifest-list" not in head:
        return []
    path = str(head["manifest-list"])
    try:
        manifests = [line.path for line in Lists(_NEWEST, "null").read(_read(files, path))]
    except (BadContainer, LakeError) as error:
        raise unreadable(path, error) from error
    for manifest, size in zip(manifests, files.sizes(manifests), strict=True):
        if size is None:
            raise missing_file(manifest)
    found = [first_of(_live(files, manifest)) for manifest in spread(manifests, _MANIFESTS)]
    return spread([each for of_one in found for each in of_one], SAMPLE_FILES)


def _live(files: Files, manifest: str) -> Iterator[Sampled]:
    """Yield the files of one manifest. Raises LakeUnavailable."""
    try:
        for entry in records(_read(files, manifest)):
            if entry["status"] != _DELETED:
                file = entry["data_file"]
                storage, path = files.place(file["file_path"])
                yield Sampled(storage, path, file["file_size_in_bytes"])
    except (BadContainer, KeyError, TypeError, TableRefused) as error:
        raise unreadable(manifest, error) from error


def _read(files: Files, path: str) -> bytes:
    raw = files.read(path)
    if raw is None:
        raise missing_file(path)
    return raw


def unreadable(path: str, error: Exception) -> LakeUnavailable:
    """Return the error of a file of the metadata that is damaged."""
    if isinstance(error, LakeUnavailable):
        return error
    return LakeUnavailable(f"{path} cannot be read: {error}. Restore the file from a backup")


# Data files to which an Iceberg table refers from its snapshots, which all branches and tags are among; and
# drafts to which any text of its metadata refers, or of the earlier metadata that it lists.


def _name_forms(path: str) -> tuple[str, str]:
    """Return the name at the end of an address, as it is and decoded."""
    name = path.rpartition("/")[2]
    return name, unquote(name)


_NAMES: Final = re.compile(r'[^/"\\]+')
"""Parts of the paths in the text of a state."""


class References:
    """Search for a set of names of data files and drafts in all snapshots of a table.

    Names are compared without their folders: products write the address of one file in several forms.
    Manifests and lists never change, so each is read once. An entry that deletes a file also counts as a
    reference.
    """

    def __init__(self, files: Files, names: set[str]) -> None:
        self._files = files
        self._names = names
        self._drafts = {name: stated for name in names if (stated := stated_draft(name)) is not None}
        self._known: set[str] = set()
        """Locations of lists and manifests that were read to their end."""
        self._lists = Lists(_NEWEST, "null")
        self.found: set[str] = set()
        """Places of the files with a reference."""

    def refresh(self, metadata: Metadata) -> None:
        """Read new lists and manifests.

        Raises LakeUnavailable: then no file may be considered unreferenced.
        """
        self._note_texts(metadata)
        for snapshot in metadata.snapshots:
            if "manifest-list" not in snapshot:
                raise LakeUnavailable(
                    f"the snapshot {snapshot['snapshot-id']} of {metadata.table_location} has no manifest "
                    "list, as only format version 1 allows: what it refers to cannot be told. Expire it"
                )
            path = str(snapshot["manifest-list"])
            if path in self._known:
                continue
            for manifest in self._manifests(path):
                self._read_manifest(manifest)
            self._known.add(path)
        if self._drafts.keys() - self.found:
            try:
                for each in metadata.fields.get("metadata-log") or ():
                    self._read_earlier(str(each.get("metadata-file")))
            except (LakeError, AttributeError):
                # What it names is unknown. Data files do not depend on it.
                self.found |= self._drafts.keys()
        # What names any draft of an attempt proves that it was published: its other files are no drafts. A
        # metadata file leaves the list of earlier ones long before its snapshot expires.
        named = {self._drafts[name].publication for name in self.found & self._drafts.keys()}
        self.found |= {name for name, stated in self._drafts.items() if stated.publication in named}

    def _note_texts(self, metadata: Metadata) -> None:
        """Note the names in a state itself: of lists, metadata files, statistics, and whatever else."""
        if metadata.location not in self._known:
            text = json.dumps([metadata.location, metadata.fields, list(metadata.snapshots)])
            self.found |= self._names.intersection(_NAMES.findall(text))
            self._known.add(metadata.location)

    def _read_earlier(self, location: str) -> None:
        """Note the drafts of an earlier state, to which a catalog may be set back."""
        raw = self._files.read(location) if location not in self._known else None
        if raw is None:
            return
        earlier = parse(location, raw)
        for path in {str(each.get("manifest-list")) for each in earlier.snapshots} - self._known:
            # An expired snapshot may have left its list.
            if self._files.is_there(path):
                for manifest in self._manifests(path):
                    self.found |= self._names.intersection(_name_forms(manifest))
        self._note_texts(earlier)

    def _manifests(self, path: str) -> list[str]:
        try:
            return [line.path for line in self._lists.read(self._read(path))]
        except (BadContainer, LakeError) as error:
            raise LakeUnavailable(f"{path} cannot be read: {error}") from error

    def _read_manifest(self, path: str) -> None:
        if path in self._known:
            return
        self.found |= self._names.intersection(_name_forms(path))
        try:
            for entry in records(self._read(path)):
                file: dict[str, Any] = entry["data_file"]
                # A deletion vector names the data file that it is about.
                paths = (file["file_path"], file.get("referenced_data_file") or "")
                self.found |= {each for path in paths for each in _name_forms(path)} & self._names
        except (BadContainer, KeyError, TypeError, AttributeError) as error:
            raise LakeUnavailable(f"{path} cannot be read: {error!r}") from error
        self._known.add(path)

    def _read(self, path: str) -> bytes:
        try:
            raw = self._files.read(path)
        except TableRefused as error:
            raise LakeUnavailable(f"{path} cannot be read: {error}") from error
        if raw is None:
            raise LakeUnavailable(
                f"{path} is not there, but a snapshot of the table names it: what it refers to cannot be told"
            )
        return raw


# Tags of an Iceberg table: references of its metadata to snapshots.

_TRIES: Final = 20
"""Commits of others that may come in between before the caller tries again later."""


def make_tag(catalog: Catalog, load: Callable[[], Metadata], tag: Tag) -> TagAnswer:
    """Make a tag, unless its name is taken. Raises LakeUnavailable or TableRefused."""
    for _ in range(_TRIES):
        metadata = load()
        ref = (metadata.fields.get("refs") or {}).get(tag.name)
        if ref is not None:
            kind, holder = ref.get("type", "branch"), str(ref["snapshot-id"])
            same = kind == "tag" and holder == tag.snapshot.identity
            return TagThere() if same else TagTaken(f"a {kind} of snapshot {holder}")
        snapshot = int(tag.snapshot.identity)
        if snapshot not in metadata.by_id:
            return SnapshotExpired()
        now, kept = time.time_ns() // 1_000_000, tag.retained
        if kept is not None:
            # Iceberg counts from the time of the snapshot. Tags of one cut over several tables end together.
            kept += max(0, now - int(metadata.by_id[snapshot]["timestamp-ms"]))
        change = NewTag(tag.name, snapshot, kept, now)
        try:
            if catalog.commit(metadata, change, {}):
                return TagMade()
        except Uncertain as error:
            raise LakeUnavailable(f"the tag {tag.name} was not made, or perhaps it was: {error}") from error
    raise LakeUnavailable(f"the tag {tag.name} was not made: other writers changed the table each time")


_DATA_FILE: Final = re.compile(r"(?!metadata/).+")
_CLEANER: Final = Cleaner(
    "remove_orphan_files",
    3 * 86_400.0,
    "",
    "give it the argument older_than with a time that is at least {hours} hours ago",
)
_NOT_COPIED: Final = ("current-snapshot-id", "statistics", "partition-statistics")
_COPIED_PROPERTIES: Final = re.compile(r"(?!sluicegate\.|write\.data\.path$|write\.metadata\.path$).*")
_REMOVAL: Final = "a rewrite has replaced it and its snapshots have expired"


class IcebergMaintenance:
    """The maintenance of one branch of one table."""

    def __init__(
        self,
        catalog: Catalog,
        files: Files,
        table: TableRef,
        branch: str,
        open_other: Callable[[TableRef, Files], Catalog],
    ) -> None:
        self._catalog = catalog
        self._files = files
        self.branch = branch
        self._open_other = open_other
        self._others = Files()
        """Files of the table that this one was made like."""
        self._references: References | None = None
        self._asked: set[str] = set()
        self._like: dict[int, str] = {}
        """By id, digests of the schemas of the table that this one was made like."""
        self.location = table.location

    @property
    def source(self) -> KeySource | None:
        """Source of the keys of the storage; None: the environment has them."""
        return self._files.source

    def history(self) -> TableHistory:
        return Ancestry(self._load(), self.branch).history()

    def account(self, commit_user: str, snapshot: SnapshotRef) -> str:
        # One property has that of the newest commit alone: each snapshot is listed in all later metadata.
        metadata = self._load()
        text = metadata.properties.get(account_property(commit_user, self.branch), "")
        identity, _, account = text.partition(":")
        return account if identity == metadata.identity else ""

    def catalog_access(self) -> CatalogAccess:
        self._load()
        return self._catalog.access()

    def open_newest(self) -> Opened:
        def head() -> Snapshot | None:
            metadata = self._load()
            self._require_file(metadata)
            return metadata.head(self.branch)

        return open_files(head, lambda: sample(self._files, head()))

    def _require_file(self, metadata: Metadata) -> None:
        if self._catalog.reads_files and not self._files.is_there(metadata.location):
            raise missing_file(metadata.location)

    def stated_files(self) -> dict[str, int]:
        view, _ = self._view()
        folder, metadata = self._files.folder(view.data_location), view.metadata_location
        found = sized(folder.sizes, attempt_files(folder, view.data_prefix.rstrip("/")))
        # Drafts may be in another store, so their paths are whole locations.
        drafts = draft_files(self._files.folder(metadata), ["."])
        return found | sized(self._files.sizes, (f"{metadata}/{path[2:]}" for path in drafts))

    def file_status(self, paths: Sequence[str]) -> dict[str, FileStatus]:
        view, metadata = self._view()
        ours = [path for path in paths if _is_data_file(view, path) or _is_draft(view, path)]
        data = {path: path.rpartition("/")[2] for path in ours}
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
        storage, name = self._place(view, path)
        size = storage.size(name)
        return FileStatus.GONE if size is None else FileStatus.UNREFERENCED

    def delete_unreferenced(self, path: str) -> FileStatus:
        status = self.file_status([path])[path]
        view, _ = self._view()
        if status is not FileStatus.UNREFERENCED or _is_shared(view):
            return status
        storage, name = self._place(view, path)
        return FileStatus.DELETED if storage.remove(name) else FileStatus.GONE

    def _place(self, view: TableView, path: str) -> tuple[Storage, str]:
        """Return the storage of a data file or draft, and its name there."""
        if _is_draft(view, path):
            return self._files.place(path)
        return self._files.folder(view.data_location), path

    def partition_layout(self) -> PartitionLayout:
        return partition_layout(self._view()[0], self._files)

    def make_tag(self, tag: Tag) -> TagAnswer:
        return make_tag(self._catalog, self._load, tag)

    def cleaner(self) -> Cleaner | None:
        return None if _is_shared(self._view()[0]) else _CLEANER

    def create_like(self, source: TableRef) -> None:
        model = self._open_other(source, self._others)
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
        source = open_storage(event.location, self._others.source)
        for file in event.files:
            if not is_plain(file.path) or file.path.startswith("metadata/"):
                raise BadFiles(f"{file.path} is no place of a data file")
            require_unchanged(source, file, _REMOVAL)
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
        source = open_storage(event.location, self._others.source)
        target = self._files.folder(view.data_location)
        adopted = [self._adopted(view, event, file) for file in event.files]
        copy_files(source, target, event.files)
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
                f"the catalog has no table {self._catalog.identifier}: it was dropped or renamed. Register "
                "its newest metadata file under that name (register_table), or correct the options "
                "identifier and catalog"
            ) from None


def _is_shared(view: TableView) -> bool:
    """True if the table has the property that says that other tables may have its files, too."""
    return view.properties.get("gc.enabled", "true").strip().lower() == "false"


def _check_path(file: FileInfo) -> None:
    """Check that a record has the path of its file. Raises ValueError."""
    if not path_in(file.metadata).endswith(f"/{file.path}"):
        raise ValueError("it has the path of another file")


def _is_draft(view: TableView, path: str) -> bool:
    return is_draft(path, [view.metadata_location])


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
