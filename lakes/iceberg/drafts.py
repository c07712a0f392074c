"""The files of one commit before its metadata: manifests and a manifest list."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sluicegate.lakes.avro import BadContainer, records
from sluicegate.lakes.bases import Base, missing
from sluicegate.lakes.iceberg.entries import Entries
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.layout import Partition
from sluicegate.lakes.iceberg.lists import Line, Lists
from sluicegate.lakes.iceberg.manifests import (
    Manifest,
    Part,
    SpecManifests,
    Unmergeable,
    codec_of,
    is_mergeable,
)
from sluicegate.lakes.iceberg.metadata import Metadata, Snapshot
from sluicegate.lakes.iceberg.summaries import has_nan
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.iceberg.values import nan_fields
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.tiers import groups

_TARGET: Final = "commit.manifest.target-size-bytes"
_DEFAULT_TARGET: Final = 8 << 20
_LEAST: Final = "commit.manifest.min-count-to-merge"
_DEFAULT_LEAST: Final = 100
_MERGES: Final = "commit.manifest-merge.enabled"


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """Names of a commit that its files contain."""

    snapshot_id: int
    sequence_number: int
    head: Snapshot | None


@dataclass(slots=True)
class Draft:
    """Files to write before the metadata, and what the snapshot says of them."""

    list_path: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """Content by location."""
    lines: list[Line] = field(default_factory=list)
    added_files: int = 0
    added_rows: int = 0
    partitions: set[tuple[int, Partition]] = field(default_factory=set)
    """Partitions that get files, with their specs."""
    first_row_id: int = 0
    """Row id of the first row to which this commit assigns one."""
    assigned_rows: int = 0
    """Number of rows to which this commit assigns a row id."""


class Drafts:
    """Composer of the manifests and lists of one table's commits."""

    def __init__(self, files: Files, table: TableView) -> None:
        self._files = files
        self._table = table
        self._version = table.version
        self._lists = Lists(table.version, codec_of(table.properties))
        self._specs: dict[int, SpecManifests] = {}
        self._target = _number(table.properties, _TARGET, _DEFAULT_TARGET)
        self._least = _number(table.properties, _LEAST, _DEFAULT_LEAST)
        self._merges = table.properties.get(_MERGES, "true").strip().lower() != "false"
        self._unmergeable: set[str] = set()
        """Locations of manifests that were found unfit for a merge; they are not read again."""
        self._base = Base()
        self._shown: dict[tuple[str, int], bool] = {}
        """By list and snapshot, the newest answer about the entries of rewritten manifests."""
        self._known: tuple[str, list[Line]] = "", []
        """Location and lines of the newest list that was read or made."""

    def compose(self, metadata: Metadata, new: NewSnapshot, entries: Iterable[Entries]) -> Draft:
        """Compose all files of a commit.

        Raises LakeUnavailable, UnknownMetadata or TableRefused, and the errors of the iteration.
        """
        draft = Draft(first_row_id=metadata.next_row_id)
        added = [
            self._add(draft, new, self._spec(spec_id).added(chunk, new.snapshot_id, new.sequence_number))
            for spec_id, chunk in self._chunks(draft, entries)
        ]
        kept = self._merge(draft, new, self._lines_of(new.head)) if new.head is not None else []
        draft.lines = self._with_row_ids(draft, [*added, *kept])
        folder, head = self._table.metadata_location, new.head
        draft.list_path = f"{folder}/snap-{new.snapshot_id}-0-{uuid.uuid4()}.avro"
        more = {
            "snapshot-id": str(new.snapshot_id),
            "parent-snapshot-id": str(head["snapshot-id"]) if head is not None else "null",
            "sequence-number": str(new.sequence_number),
            "format-version": str(self._version),
        }
        if self._version > 2:
            more["first-row-id"] = str(draft.first_row_id)
        draft.files[draft.list_path] = self._lists.file(draft.lines, more)
        return draft

    def require_base(self, metadata: Metadata, head: Snapshot | None, *, with_file: bool) -> None:
        """Look at the files that a commit on this head builds on. Raises LakeUnavailable if one is missing.

        `with_file`: the metadata file is one of them.
        """
        always = [metadata.location] if with_file else []
        manifests = []
        if head is not None:
            always.append(str(head.get("manifest-list") or ""))
            manifests = [line.path for line in self._lines_of(head)]
        self._base.require(always, manifests, self._files.sizes)

    def remember(self, draft: Draft) -> None:
        """Keep the lines of a list that was committed, so that the next commit does not read it."""
        self._known = draft.list_path, draft.lines

    def has_files_of(self, head: Snapshot, other: Snapshot) -> bool:
        """Return True if the manifests of a head show that it was made on another snapshot.

        A manifest names the snapshot that made it. One that was rewritten names in its entries the snapshots
        that added the files, and the sequence numbers of these, which no other snapshot has. Raises
        LakeUnavailable or UnknownMetadata.
        """
        number, position = other["snapshot-id"], other.get("sequence-number")
        lines = self._lines_of(head)
        if any(line.fields["added_snapshot_id"] == number for line in lines):
            return True
        known = self._shown.get((str(head.get("manifest-list")), number))
        if known is None:
            # It costs a read of all manifests, once for each head, until the next commit of ours.
            entries = (entry for line in lines for entry in self._entries(line.path))
            known = any(
                entry.get("snapshot_id") == number or entry.get("file_sequence_number") == position
                for entry in entries
            )
            self._shown = {(str(head.get("manifest-list")), number): known}
        return known

    def _entries(self, path: str) -> list[dict[str, Any]]:
        try:
            return records(self._read(path))
        except BadContainer as error:
            raise LakeUnavailable(f"{path} cannot be read: {error}. Restore the file") from error

    def _chunks(self, draft: Draft, entries: Iterable[Entries]) -> Iterator[tuple[int, Sequence[Entries]]]:
        """Split the entries by spec and NaN, into manifests of about the target size before compression."""
        chunks: dict[tuple[int, tuple[bool, ...]], list[Entries]] = defaultdict(list)
        sizes: dict[tuple[int, tuple[bool, ...]], int] = defaultdict(int)
        for event in entries:
            if not event.lengths:
                continue
            spec_id = event.spec_id
            draft.added_files += len(event.lengths)
            draft.added_rows += sum(event.rows)
            draft.partitions.update((spec_id, partition) for partition in event.partitions)
            for each in self._spec(spec_id).by_nan(event):
                key = spec_id, nan_fields(next(iter(each.partitions)))
                chunks[key].append(each)
                sizes[key] += len(each.encoded)
                if sizes[key] >= self._target:
                    yield spec_id, chunks.pop(key)
                    del sizes[key]
        for (spec_id, _), chunk in chunks.items():
            yield spec_id, chunk

    def _spec(self, spec_id: int) -> SpecManifests:
        if spec_id not in self._specs:
            self._specs[spec_id] = SpecManifests(self._table, spec_id)
        return self._specs[spec_id]

    def _add(self, draft: Draft, new: NewSnapshot, manifest: Manifest) -> Line:
        path = f"{self._table.metadata_location}/{uuid.uuid4()}-m{len(draft.files)}.avro"
        draft.files[path] = manifest.content
        named = {"manifest_path": path, "manifest_length": len(manifest.content)}
        return self._lists.line({**manifest.fields, **named})

    def _lines_of(self, head: Snapshot) -> list[Line]:
        path = str(head.get("manifest-list") or "")
        if path != self._known[0]:
            try:
                self._known = path, self._lists.read(self._read(path))
            except BadContainer as error:
                raise LakeUnavailable(f"{path} cannot be read: {error}. Restore the file") from error
        return self._known[1]

    def _read(self, path: str) -> bytes:
        raw = self._files.read(path)
        if raw is None:
            raise missing(path)
        return raw

    def _merge(self, draft: Draft, new: NewSnapshot, lines: Sequence[Line]) -> list[Line]:
        """Return the lines with small manifests replaced by merged ones."""
        if not self._merges or len(lines) < self._least:
            return list(lines)
        self._unmergeable.intersection_update([line.path for line in lines])
        instead: dict[str, Line | None] = {}
        for spec_id in {line.fields["partition_spec_id"] for line in lines} & self._table.specs.keys():
            if not self._is_composable(spec_id):
                continue
            for group in self._groups(spec_id, lines):
                merged = self._spec(spec_id).merged(group, new.snapshot_id, new.sequence_number)
                instead |= dict.fromkeys((str(part.line["manifest_path"]) for part in group), None)
                instead[str(group[0].line["manifest_path"])] = self._add(draft, new, merged)
        replaced = (instead.get(line.path, line) for line in lines)
        return [line for line in replaced if line is not None]

    def _is_composable(self, spec_id: int) -> bool:
        """Return False for an old spec whose source column was dropped: its manifests stay as they are."""
        try:
            self._spec(spec_id)
        except TableRefused:
            return False
        return True

    def _groups(self, spec_id: int, lines: Sequence[Line]) -> list[list[Part]]:
        """Return the manifests of one spec to merge, with their entries. All of them are ours."""
        parts: dict[str, Part] = {}
        while True:
            fitting = [line for line in lines if self._fits(line, spec_id)]
            chosen = [group for alike in _by_nan(fitting) for group in self._tiers(alike)]
            # The line of a foreign manifest may look like ours. Without it, the groups are others.
            foreign = [line for group in chosen for line in group if not self._learn(spec_id, line, parts)]
            if not foreign:
                return [[parts[line.path] for line in group] for group in chosen]

    def _tiers(self, lines: Sequence[Line]) -> Iterator[list[Line]]:
        """Yield the groups of manifests that are merged."""
        sizes = [int(line.fields["manifest_length"]) for line in lines]
        for group in groups(sizes, self._target, self._least):
            yield [lines[at] for at in group]

    def _fits(self, line: Line, spec_id: int) -> bool:
        fields = line.fields
        return (
            fields["partition_spec_id"] == spec_id
            and is_mergeable(fields, self._version)
            and line.path not in self._unmergeable
        )

    def _learn(self, spec_id: int, line: Line, parts: dict[str, Part]) -> bool:
        """Read the entries of a manifest; return False if it is not ours."""
        if line.path not in parts:
            try:
                parts[line.path] = self._spec(spec_id).part(line.fields, self._read(line.path))
            except Unmergeable:
                self._unmergeable.add(line.path)
                return False
        return True

    def _with_row_ids(self, draft: Draft, lines: Sequence[Line]) -> list[Line]:
        """Assign row ids to the manifests that have none, as each commit to a table of version 3 does."""
        if self._version < 3:
            return list(lines)
        found = []
        for line in lines:
            fields = line.fields
            if fields["content"] != 0 or fields["first_row_id"] is not None:
                found.append(line)
                continue
            first = draft.first_row_id + draft.assigned_rows
            draft.assigned_rows += fields["added_rows_count"] + fields["existing_rows_count"]
            found.append(self._lists.line({**fields, "first_row_id": first}))
        return found


def _by_nan(lines: Sequence[Line]) -> Iterable[Sequence[Line]]:
    """Return the lines of one spec, apart by the partition fields that have NaN."""
    found: dict[tuple[bool | None, ...], list[Line]] = defaultdict(list)
    for line in lines:
        found[has_nan(line.fields["partitions"])].append(line)
    return found.values()


def summary_totals(before: Mapping[str, Any] | None, added: Mapping[str, int]) -> dict[str, str]:
    """Return the totals of a summary after additions. Totals that the head lacks stay unknown.

    `before`: summary of the head, None if the table has no snapshot.
    """
    totals = {}
    for name, more in added.items():
        total = 0 if before is None else _total(before.get(name))
        if total is not None:
            totals[name] = str(total + more)
    return totals


def _total(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isdigit() else None


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "").strip()
    return int(text) if text.isdigit() and int(text) > 0 else default
