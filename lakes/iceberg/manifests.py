"""Manifests and manifest list of a commit, composed of the records that writers encoded.

Small manifests of ours are merged, without decoding a record.
"""

import base64
import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pyiceberg.conversions import from_bytes
from pyiceberg.types import IcebergType, PrimitiveType

from sluicegate.lakes.avro import BadContainer, Container, Header, records, unpacked, write_long
from sluicegate.lakes.committer import BaseManifests, groups_to_merge, missing_file
from sluicegate.lakes.drafts import DraftNames
from sluicegate.lakes.iceberg.entries import Entries
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.layout import Layout, Line, Lists, Partition
from sluicegate.lakes.iceberg.metadata import Metadata, Snapshot
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.iceberg.values import (
    is_nan,
    nan_fields,
    partition_bound,
    partition_key,
    partition_order,
)
from sluicegate.lakes.port import LakeUnavailable, TableRefused

# Summaries of the partitions of a manifest, by which readers skip it.
#
# A partition field with NaN is apart from its other values: no manifest of ours has both. The bounds leave
# NaN out. DuckDB takes NaN for the highest number, so it would skip a manifest whose bounds are those of
# the other values. It cannot have no bounds instead, because Iceberg's libraries take such a field for one
# without numbers.

Summary = Mapping[str, Any]


def summaries_of(layout: Layout, partitions: Iterable[Partition]) -> list[Summary]:
    """Return one summary for each partition field, of these distinct partitions."""
    columns = list(zip(*partitions, strict=True))
    fields = layout.partition_type.fields
    return [_summary(field.field_type, column) for field, column in zip(fields, columns, strict=True)]


def merged_summaries(layout: Layout, each: Sequence[Sequence[Summary]]) -> list[Summary]:
    """Return summaries that cover those of several manifests."""
    fields = layout.partition_type.fields
    return [
        _merged(field.field_type, parts) for field, parts in zip(fields, zip(*each, strict=True), strict=True)
    ]


def has_nan(summaries: Sequence[Summary]) -> tuple[bool | None, ...]:
    """Return for each partition field if it has NaN, None if that is unknown."""
    return tuple([summary["contains_nan"] for summary in summaries])


def _summary(kind: IcebergType, values: Sequence[Any]) -> Summary:
    known = [value for value in values if value is not None and not is_nan(value)]
    lower = min(known, key=lambda value: partition_order(kind, value), default=None)
    upper = max(known, key=lambda value: partition_order(kind, value), default=None)
    return {
        "contains_null": any(value is None for value in values),
        "contains_nan": any(is_nan(value) for value in values),
        "lower_bound": _bound(kind, lower, -0.0),
        "upper_bound": _bound(kind, upper, 0.0),
    }


def _merged(kind: IcebergType, parts: Sequence[Summary]) -> Summary:
    nan = [part["contains_nan"] for part in parts]
    return {
        "contains_null": any(part["contains_null"] for part in parts),
        "contains_nan": True if True in nan else (None if None in nan else False),
        "lower_bound": _extreme(kind, [part["lower_bound"] for part in parts], min),
        "upper_bound": _extreme(kind, [part["upper_bound"] for part in parts], max),
    }


def _extreme(kind: Any, bounds: Sequence[bytes | None], choose: Any) -> bytes | None:
    known = [bound for bound in bounds if bound is not None]
    found: bytes | None = choose(known, key=lambda bound: from_bytes(kind, bound), default=None)
    return found


def _bound(kind: IcebergType, value: Any, zero: float) -> bytes | None:
    if value is None or not isinstance(kind, PrimitiveType):
        return None
    # Readers order the two zeros, so the bound is the one that covers both.
    return partition_bound(kind, zero if isinstance(value, float) and value == 0 else value)


_RECORDS: Final = "sluicegate.records"
"""Entry of a manifest's header: length in bytes and rows of each record, by which records are separated."""

_EXISTING: Final = write_long(0)
_ADDED: Final = write_long(1)
_NULL: Final = write_long(0)
_PRESENT: Final = write_long(1)
"""Branches of Avro's union of null and a value."""

_GROUP: Final = 256
"""Entries that stay in one block of a manifest."""

_CODECS: Final = {"gzip": "deflate", "zstd": "zstandard", "uncompressed": "null"}
"""Codecs by their names in the properties of a table. In place of others, deflate is used."""


class Unmergeable(Exception):
    """A manifest is not as this product writes it, so it stays as it is."""


class Part(NamedTuple):
    """A manifest to merge."""

    line: Mapping[str, Any]
    entries: Sequence[tuple[bytes, int]]
    """Each of its entries, as of a file that was there before, with the file's rows."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A new manifest, with the part of its list line that is known."""

    content: bytes
    fields: Mapping[str, Any]


def codec_of(properties: Mapping[str, str]) -> str:
    """Return the Avro codec that a table's properties ask for."""
    return _CODECS.get(properties.get("write.avro.compression-codec", "gzip").lower(), "deflate")


class SpecManifests:
    """Composer of the manifests of one partition spec."""

    def __init__(self, table: TableView, spec_id: int) -> None:
        """Prepare the parts that all manifests share. Raises TableRefused as Layout does."""
        self._layout = Layout(table.schema, table.specs[spec_id], table.version)
        self._codec = codec_of(table.properties)
        self._more = {
            "schema": json.dumps(table.raw_schemas[table.schema.schema_id]),
            "schema-id": str(table.schema.schema_id),
            "partition-spec": json.dumps(table.raw_specs[spec_id]["fields"]),
            "partition-spec-id": str(spec_id),
            "format-version": str(table.version),
            "content": "data",
        }
        self._spec_id = spec_id
        self._version = table.version

    def added(self, entries: Sequence[Entries], snapshot_id: int, sequence_number: int) -> Manifest:
        """Compose the manifest of new files. Their sequence numbers are inherited from its list line."""
        start, end = _added_start(snapshot_id), _end(self._version)
        more = len(start) + len(end)
        lengths = [length + more for each in entries for length in each.lengths]
        rows = [count for each in entries for count in each.rows]
        partitions = frozenset[Partition]().union(*(each.partitions for each in entries))
        fields = self._fields(snapshot_id, sequence_number, sequence_number) | {
            "added_files_count": len(lengths),
            "added_rows_count": sum(rows),
            "partitions": summaries_of(self._layout, partitions),
        }
        header = self._header(lengths, rows)
        return Manifest(header.file(list(header.grouped(_groups(entries, start, end)))), fields)

    def by_nan(self, entries: Entries) -> Iterator[Entries]:
        """Yield the files of an event, apart by the partition fields in which their value is NaN."""
        if len({nan_fields(partition) for partition in entries.partitions}) < 2:
            yield entries
            return
        shared = {partition_key(partition): partition for partition in entries.partitions}
        found: dict[tuple[bool, ...], list[tuple[bytes, int, Partition]]] = defaultdict(list)
        for record, rows in zip(entries.records(), entries.rows, strict=True):
            decoded: Partition = self._layout.decode(record)["partition"]
            # One object for all NaN, since two of them are not equal.
            partition = shared.setdefault(partition_key(decoded), decoded)
            found[nan_fields(partition)].append((record, rows, partition))
        for files in found.values():
            records, numbers, partitions = zip(*files, strict=True)
            lengths = list(map(len, records))
            yield Entries(b"".join(records), lengths, numbers, frozenset(partitions), entries.spec_id)

    def part(self, line: Mapping[str, Any], raw: bytes) -> Part:
        """Read a manifest that is to be merged. Raises Unmergeable if it is not one of ours."""
        return Part(line, list(self._existing(line, raw)))

    def merged(self, parts: Sequence[Part], snapshot_id: int, sequence_number: int) -> Manifest:
        """Compose one manifest of the entries of others.

        The files keep their snapshots, sequence numbers and row ids, which are explicit from now on.
        """
        lines = [part.line for part in parts]
        encoded = [record for part in parts for record, _ in part.entries]
        rows = [count for part in parts for _, count in part.entries]
        oldest = min(line["min_sequence_number"] for line in lines)
        fields = self._fields(snapshot_id, sequence_number, oldest) | {
            "existing_files_count": len(encoded),
            "existing_rows_count": sum(rows),
            "partitions": merged_summaries(self._layout, [line["partitions"] for line in lines]),
        }
        if self._version > 2:
            # All row ids are explicit. Without this field, readers would ignore them, and later commits
            # would assign other ones.
            fields["first_row_id"] = min(line["first_row_id"] for line in lines)
        header = self._header(list(map(len, encoded)), rows)
        return Manifest(header.file(list(header.blocks(encoded))), fields)

    def _fields(self, snapshot_id: int, sequence_number: int, oldest: int) -> dict[str, Any]:
        return {
            "partition_spec_id": self._spec_id,
            "content": 0,
            "sequence_number": sequence_number,
            "min_sequence_number": oldest,
            "added_snapshot_id": snapshot_id,
            **dict.fromkeys(("added_files_count", "existing_files_count", "deleted_files_count"), 0),
            **dict.fromkeys(("added_rows_count", "existing_rows_count", "deleted_rows_count"), 0),
            "key_metadata": None,
            "first_row_id": None,
        }

    def _header(self, lengths: Sequence[int], rows: Sequence[int]) -> Header:
        return Header(
            self._layout.entry_schema, self._codec, {**self._more, _RECORDS: _packed(lengths, rows)}
        )

    def _existing(self, line: Mapping[str, Any], raw: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield the entries of a manifest as those of files that were there before, with their rows."""
        added = _is_added(line)
        first_row = line["first_row_id"] if self._version > 2 else None
        if added is None or (self._version > 2 and first_row is None):
            raise Unmergeable
        start, end = _added_start(line["added_snapshot_id"]), _end(self._version)
        before = _existing_start(line["added_snapshot_id"], line["sequence_number"])
        for record, rows in self._records(line, raw):
            if not added:
                yield record, rows
                continue
            if not (record.startswith(start) and record.endswith(end)):
                raise Unmergeable
            yield before + record[len(start) : len(record) - len(end)] + _end(self._version, first_row), rows
            if first_row is not None:
                first_row += rows

    def _records(self, line: Mapping[str, Any], raw: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield the records of one of our own manifests. Raises Unmergeable."""
        try:
            container = Container(raw)
            data = b"".join([unpacked(block, container.codec) for block in container.blocks])
            borders = _unpacked(container.meta.get(_RECORDS.encode(), b""))
        except (BadContainer, ValueError, struct.error, zlib.error) as error:
            raise Unmergeable from error
        schema = json.dumps(self._layout.entry_schema).encode()
        counts = (line["added_files_count"] + line["existing_files_count"], line["manifest_length"])
        if container.schema != schema or counts != (len(borders), len(raw)):
            raise Unmergeable
        rows = line["added_rows_count"] + line["existing_rows_count"]
        if (sum(length for length, _ in borders), sum(each for _, each in borders)) != (len(data), rows):
            raise Unmergeable
        at = 0
        for length, count in borders:
            yield data[at : at + length], count
            at += length


def is_mergeable(line: Mapping[str, Any], version: int) -> bool:
    """Return True if a line allows that its manifest is merged; only its content can show the rest."""
    return (
        line["content"] == 0
        and line["key_metadata"] is None
        and line["partitions"] is not None
        and _is_added(line) is not None
        and (version < 3 or line["first_row_id"] is not None)
    )


def _is_added(line: Mapping[str, Any]) -> bool | None:
    """Return True for a manifest of new files only, False for one of existing files only, else None."""
    added, existing = line["added_files_count"], line["existing_files_count"]
    if line["deleted_files_count"] or bool(added) == bool(existing):
        return None
    return bool(added)


def _added_start(snapshot_id: int) -> bytes:
    """Return the fields before the record of a new file: both sequence numbers are null, so inherited."""
    return _ADDED + _PRESENT + write_long(snapshot_id) + _NULL + _NULL


def _existing_start(snapshot_id: int, sequence_number: int) -> bytes:
    number = _PRESENT + write_long(sequence_number)
    return _EXISTING + _PRESENT + write_long(snapshot_id) + number + number


def _end(version: int, first_row: int | None = None) -> bytes:
    """Return the fields that version 3 has behind the record of version 2: all null but the first row id."""
    if version < 3:
        return b""
    row = _NULL if first_row is None else _PRESENT + write_long(first_row)
    return row + _NULL + _NULL + _NULL


def _groups(entries: Sequence[Entries], start: bytes, end: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield groups of complete entries, each with the number of its entries."""
    between = end + start
    for each in entries:
        records = each.records()
        for at in range(0, len(records), _GROUP):
            group = records[at : at + _GROUP]
            yield len(group), start + between.join(group) + end


def _packed(lengths: Sequence[int], rows: Sequence[int]) -> str:
    numbers = struct.pack(f"<{2 * len(lengths)}q", *lengths, *rows)
    # As text, since other readers decode all entries of a header.
    return base64.b64encode(zlib.compress(numbers, 1)).decode()


def _unpacked(text: bytes) -> list[tuple[int, int]]:
    raw = zlib.decompress(base64.b64decode(text, validate=True))
    numbers = struct.unpack(f"<{len(raw) // 8}q", raw)
    middle = len(numbers) // 2
    return list(zip(numbers[:middle], numbers[middle:], strict=True))


# The files of one commit before its metadata: manifests and a manifest list.

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
    names: DraftNames


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
        self._base = BaseManifests()
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
        draft.list_path = f"{folder}/{new.names.name(f'snap-{new.snapshot_id}-0')}.avro"
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
        name = f"{new.names.name('manifest')}-m{len(draft.files)}.avro"
        path = f"{self._table.metadata_location}/{name}"
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
            raise missing_file(path)
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
        for group in groups_to_merge(sizes, self._target, self._least):
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
