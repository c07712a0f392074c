"""Manifests: composed of the records that writers encoded, and merged without decoding a record."""

import base64
import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sluicegate.lakes.avro import BadContainer, Container, Header, unpacked, write_long
from sluicegate.lakes.iceberg.entries import Entries
from sluicegate.lakes.iceberg.layout import Layout, Partition
from sluicegate.lakes.iceberg.summaries import merged_summaries, summaries_of
from sluicegate.lakes.iceberg.table import TableView
from sluicegate.lakes.iceberg.values import nan_fields, partition_key

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
