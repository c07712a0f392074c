"""The metadata file of an Iceberg table, as data and as text.

Fields that this release does not know stay as they are. Once they are rendered, snapshots are kept as text
beside their values, so that a commit renders one new snapshot and joins the others.
"""

import gzip
import json
import posixpath
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from sluicegate.lakes.drafts import DraftNames
from sluicegate.lakes.port import LakeUnavailable

MAIN: Final = "main"
_LISTS: Final = ("snapshots", "snapshot-log")
_GZIP: Final = b"\x1f\x8b"
_NUMBER: Final = re.compile(r"(\d+)-")
_PREVIOUS_VERSIONS: Final = "write.metadata.previous-versions-max"
_DEFAULT_PREVIOUS_VERSIONS: Final = 100
_DELETES: Final = "write.metadata.delete-after-commit.enabled"
_METADATA: Final = (".metadata.json", ".metadata.json.gz")

Snapshot = Mapping[str, Any]
"""A snapshot, as in the metadata file."""


@dataclass(frozen=True, slots=True)
class Append:
    """One commit: a new snapshot at the end of a branch, and properties that are set with it."""

    snapshot: Snapshot
    branch: str
    head: int | None
    """Id of the snapshot that the branch must end in; None: the branch is empty."""
    properties: Mapping[str, str]
    draft: DraftNames | None = None
    """Names of the commit's drafts; None: it is of no decision."""


@dataclass(frozen=True, slots=True)
class NewSchema:
    """One change of the columns: a schema that becomes the current one, and properties that belong to it."""

    schema: Mapping[str, Any]
    """As in the metadata file, with an id that no schema of the table has."""
    last_column_id: int
    """The highest id of a column that there was."""
    properties: Mapping[str, str]
    time_ms: int
    """Milliseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class NewTag:
    """One tag, under a name that no reference of the table has."""

    name: str
    snapshot_id: int
    retained: int | None
    """Milliseconds after the time of the snapshot, when an expiry may delete the tag; None: it stays."""
    time_ms: int
    """Milliseconds since the Unix epoch."""
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> Mapping[str, Any]:
        """The reference, as in the metadata file."""
        age = {} if self.retained is None else {"max-ref-age-ms": self.retained}
        return {"snapshot-id": self.snapshot_id, "type": "tag", **age}


Change = Append | NewSchema | NewTag


class _Rendered(NamedTuple):
    """The items of the lists of snapshots, as JSON."""

    snapshots: bytes
    log: bytes


def _joined(items: bytes, more: Sequence[Any]) -> bytes:
    return b", ".join([*([items] if items else ()), *(json.dumps(each).encode() for each in more)])


class Metadata:
    """One state of a table. It is never changed."""

    def __init__(
        self,
        location: str,
        fields: Mapping[str, Any],
        snapshots: Sequence[Snapshot],
        log: Sequence[Any],
        rendered: "_Rendered | None" = None,
    ) -> None:
        """`log` is the list of former heads. `rendered`: both lists as text, if they are known so far."""
        self.location = location
        """Location of the metadata file; the catalog's answer stands for one without such a file."""
        self.fields = fields
        """All fields but the lists of snapshots."""
        self.snapshots = snapshots
        self._log = log
        self._rendered = rendered

    @property
    def identity(self) -> str:
        """UUID of the table; it changes when the table is dropped and made again."""
        return str(self.fields["table-uuid"])

    @property
    def version(self) -> int:
        return int(self.fields["format-version"])

    @property
    def table_location(self) -> str:
        return str(self.fields["location"]).rstrip("/")

    @property
    def metadata_folder(self) -> str:
        path = self.properties.get("write.metadata.path")
        return path.rstrip("/") if path else f"{self.table_location}/metadata"

    @cached_property
    def properties(self) -> Mapping[str, str]:
        return {str(key): str(value) for key, value in (self.fields.get("properties") or {}).items()}

    @property
    def next_sequence_number(self) -> int:
        return int(self.fields.get("last-sequence-number") or 0) + 1

    @property
    def next_row_id(self) -> int:
        return int(self.fields.get("next-row-id") or 0)

    @cached_property
    def by_id(self) -> Mapping[int, Snapshot]:
        return {each["snapshot-id"]: each for each in self.snapshots}

    @cached_property
    def by_sequence(self) -> Mapping[int, Snapshot]:
        return {each.get("sequence-number", 0): each for each in self.snapshots}

    def head(self, branch: str) -> Snapshot | None:
        """Return the newest snapshot of a branch, None if it is empty.

        Raises LakeUnavailable if the branch does not exist or its snapshot is missing.
        """
        ref = (self.fields.get("refs") or {}).get(branch)
        if ref is None and branch != MAIN:
            raise LakeUnavailable(f"{self.table_location} has no branch {branch} any more; make it again")
        if ref is not None and ref.get("type", "branch") != "branch":
            raise LakeUnavailable(f"{branch} of {self.table_location} is a tag, not a branch")
        head = ref["snapshot-id"] if ref is not None else self.fields.get("current-snapshot-id")
        # Older writers state -1 in place of a missing snapshot.
        if head is None or head == -1:
            return None
        found = self.by_id.get(head)
        if found is None:
            raise LakeUnavailable(f"{self.location} names the snapshot {head}, but does not list it")
        return found

    def branch_fields(self, branch: str) -> Mapping[str, Any]:
        """Return the fields of a branch, such as its retention; none for a new branch."""
        return dict((self.fields.get("refs") or {}).get(branch, {}))

    def after(self, change: Change, location: str) -> "Metadata":
        """Return the metadata after a change, for a new metadata file."""
        if isinstance(change, NewSchema):
            return self._with_schema(change, location)
        if isinstance(change, NewTag):
            return self._with_tag(change, location)
        return self._with_append(change, location)

    def _with_schema(self, change: NewSchema, location: str) -> "Metadata":
        old = self.fields
        fields = {
            **old,
            "schemas": [*(old.get("schemas") or ()), change.schema],
            "current-schema-id": change.schema["schema-id"],
            "last-column-id": change.last_column_id,
            # Readers refuse times that go back.
            "last-updated-ms": max(change.time_ms, int(old.get("last-updated-ms") or 0)),
            "properties": {**(old.get("properties") or {}), **change.properties},
            "metadata-log": self._metadata_log(),
        }
        return Metadata(location, fields, self.snapshots, self._log, self._texts)

    def _with_tag(self, change: NewTag, location: str) -> "Metadata":
        old, head = self.fields, self.fields.get("current-snapshot-id")
        # Older writers name the main branch by its head alone.
        known = {MAIN: {"snapshot-id": head, "type": "branch"}} if head not in (None, -1) else {}
        fields = {
            **old,
            "refs": {**known, **(old.get("refs") or {}), change.name: change.reference},
            "last-updated-ms": max(change.time_ms, int(old.get("last-updated-ms") or 0)),
            "metadata-log": self._metadata_log(),
        }
        return Metadata(location, fields, self.snapshots, self._log, self._texts)

    def _with_append(self, change: Append, location: str) -> "Metadata":
        snapshot, now = change.snapshot, change.snapshot["timestamp-ms"]
        old, sid = self.fields, snapshot["snapshot-id"]
        refs = dict(old.get("refs") or {})
        refs[change.branch] = {**self.branch_fields(change.branch), "snapshot-id": sid, "type": "branch"}
        fields = {
            **old,
            "last-sequence-number": snapshot["sequence-number"],
            "last-updated-ms": now,
            "refs": refs,
            "properties": {**(old.get("properties") or {}), **change.properties},
            "metadata-log": self._metadata_log(),
        }
        if "added-rows" in snapshot:
            fields["next-row-id"] = snapshot["first-row-id"] + snapshot["added-rows"]
        log: list[Any] = []
        if change.branch == MAIN:
            fields["current-snapshot-id"] = sid
            log.append({"snapshot-id": sid, "timestamp-ms": now})
        snapshots, logged = self._texts
        texts = _Rendered(_joined(snapshots, [snapshot]), _joined(logged, log))
        return Metadata(location, fields, [*self.snapshots, snapshot], [*self._log, *log], texts)

    def _metadata_log(self) -> list[Any]:
        """Return the log of earlier metadata files, with this one."""
        try:
            most = int(self.properties.get(_PREVIOUS_VERSIONS, _DEFAULT_PREVIOUS_VERSIONS))
        except ValueError:
            most = _DEFAULT_PREVIOUS_VERSIONS
        mine = {"timestamp-ms": self.fields.get("last-updated-ms", 0), "metadata-file": self.location}
        log: list[Any] = [*(self.fields.get("metadata-log") or ()), mine]
        return log[-max(most, 1) :]

    def superseded(self, base: "Metadata") -> list[str]:
        """Return the metadata files that the table's properties delete with this state, made on `base`.

        They are those that have left the log of earlier files, as with Iceberg's own library. The log is text
        that others wrote, so only metadata files in the table's folder for them count. A table whose files
        another one may use (`gc.enabled`) keeps all.
        """
        properties = self.properties
        if not _is_on(properties, _DELETES, "false") or not _is_on(properties, "gc.enabled", "true"):
            return []
        kept = {self.location, base.location, *_logged(self)}
        mine = [name for name in _logged(base) if posixpath.dirname(name) == self.metadata_folder]
        return [name for name in mine if name not in kept and name.endswith(_METADATA)]

    def next_location(self, change: Change) -> str:
        """Return a new location for the metadata file after this one.

        Readers need this form, with a UUID. Java's library takes the number before the first hyphen, and
        looks for `.gz` before the ending. After a name without a UUID, pyiceberg counts from 0 again, and the
        library in Rust refuses to commit.
        """
        number = _NUMBER.match(posixpath.basename(self.location))
        packed = ".gz" if self._packs else ""
        following = int(number[1]) + 1 if number else 0
        names = change.draft if isinstance(change, Append) else None
        unique = names.uuid() if names is not None else uuid.uuid4()
        return f"{self.metadata_folder}/{following:05d}-{unique}{packed}.metadata.json"

    @property
    def _texts(self) -> "_Rendered":
        """Both lists as text, rendered once: a REST catalog never asks for it."""
        if self._rendered is None:
            self._rendered = _Rendered(_joined(b"", self.snapshots), _joined(b"", self._log))
        return self._rendered

    @property
    def _packs(self) -> bool:
        return self.properties.get("write.metadata.compression-codec", "none").lower() == "gzip"

    def render(self) -> bytes:
        """Return the content of the metadata file."""
        body, (snapshots, log) = json.dumps(self.fields)[:-1].encode(), self._texts
        text = b'%b, "snapshots": [%b], "snapshot-log": [%b]}' % (body, snapshots, log)
        return gzip.compress(text, 6) if self.location.endswith(".gz.metadata.json") else text


def _logged(metadata: Metadata) -> list[str]:
    """Return the earlier metadata files that a state names."""
    return [str(each.get("metadata-file")) for each in metadata.fields.get("metadata-log") or ()]


def _is_on(properties: Mapping[str, str], name: str, default: str) -> bool:
    return properties.get(name, default).strip().lower() == "true"


def parse(location: str, raw: bytes) -> Metadata:
    """Parse a metadata file. Raises LakeUnavailable if it is not one."""
    try:
        fields = json.loads(gzip.decompress(raw) if raw.startswith(_GZIP) else raw)
        return from_fields(location, fields)
    except (ValueError, TypeError, KeyError, AttributeError, OSError, EOFError) as error:
        raise LakeUnavailable(
            f"{location} is no metadata of an Iceberg table: {error!r}. Restore the file, or correct the "
            "table in its catalog"
        ) from error


def from_fields(location: str, fields: Mapping[str, Any]) -> Metadata:
    """Make metadata from its JSON object. Raises KeyError, TypeError or AttributeError if it is none."""
    snapshots = list(fields.get("snapshots") or ())
    rest = {key: value for key, value in fields.items() if key not in _LISTS}
    found = Metadata(location, rest, snapshots, list(fields.get("snapshot-log") or ()))
    # The fields without which nothing else makes sense.
    _ = (found.identity, found.version, fields["location"], found.by_id)
    return found
