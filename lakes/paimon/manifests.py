"""Manifest files and manifest lists of a commit, composed from existing bytes without decoding entries."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import fastavro
from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA
from pypaimon.manifest.schema.manifest_file_meta import MANIFEST_FILE_META_SCHEMA
from pypaimon.table.row.generic_row import GenericRow, GenericRowDeserializer, GenericRowSerializer

from sluicegate.lakes.avro import BadContainer, Block, Container, Header, joined, records, supported_codec
from sluicegate.lakes.committer import BaseManifests, missing_file, runs_to_merge
from sluicegate.lakes.drafts import DraftNames
from sluicegate.lakes.paimon.entries import Entries
from sluicegate.lakes.paimon.snapshots import ListFile, Snapshot
from sluicegate.lakes.paimon.table import SchemaTable, layout
from sluicegate.lakes.port import LakeError, LakeUnavailable
from sluicegate.lakes.storage import Storage

# Selection of manifests to merge, so that lists and read times do not grow with every commit.
#
# Only adjacent manifests without deletions are merged. This keeps the order of entries, which determines
# the effect of a deletion.

MIN_COUNT: Final = 30
"""Number of manifests of a tier that are merged; Paimon's own default of `manifest.merge-min-count`."""


def plan(metas: Sequence[dict[str, Any]], target: int, excluded: Collection[str]) -> list[tuple[int, int]]:
    """Return the runs to merge as (start, end) in `metas`, in order and disjoint."""
    return runs_to_merge([_size(meta, excluded) for meta in metas], target, MIN_COUNT)


def _size(meta: dict[str, Any], excluded: Collection[str]) -> int | None:
    """Return the manifest's size in bytes, None if it must not be merged."""
    if (
        meta["_NUM_DELETED_FILES"] != 0
        or meta["_VERSION"] != 2
        or meta.get("_EXTRA_FILES")
        or meta.get("_MIN_ROW_ID") is not None
        or meta["_FILE_NAME"] in excluded
        or not _has_stats(meta["_PARTITION_STATS"])
    ):
        return None
    return int(meta["_FILE_SIZE"])


def _has_stats(stats: dict[str, Any]) -> bool:
    nulls = stats["_NULL_COUNTS"]
    return bool(stats["_MIN_VALUES"]) and nulls is not None and None not in nulls


FOLDER: Final = "manifest"
_LISTS: Final = ("baseManifestList", "deltaManifestList")
Meta = dict[str, Any]
"""A line of a manifest list, decoded by fastavro."""

_META_SCHEMA: Final = fastavro.parse_schema(MANIFEST_FILE_META_SCHEMA)
_META_FIELDS: Final = frozenset(each["name"] for each in MANIFEST_FILE_META_SCHEMA["fields"])


class Damaged(LakeUnavailable):
    """A file is there, but is not a whole Avro container."""


class UnknownMetadata(LakeError):
    """A manifest list contains fields unknown to this release, so it must not be rewritten."""


class Files(dict[str, bytes]):
    """Files to write, by their names in the manifest folder."""

    def __init__(self, names: DraftNames) -> None:
        super().__init__()
        self.names = names


@dataclass(frozen=True, slots=True)
class Draft:
    """Files of a commit except its snapshot, and the two manifest lists that the snapshot names."""

    files: Files
    base: ListFile
    delta: ListFile


class Manifests:
    """Composer of the manifests of one table's commits."""

    def __init__(self, storage: Storage, table: SchemaTable) -> None:
        self._storage = storage
        self._partition_fields = table.partition_keys_fields
        self._target = int(table.options.manifest_target_size())
        codec = supported_codec(str(table.options.manifest_compression()))
        self._entries = Header(MANIFEST_ENTRY_SCHEMA, codec)
        self._lists = Header(MANIFEST_FILE_META_SCHEMA, codec)
        buckets = layout(table.table_schema)
        # Readers skip manifests by this field, so it is set only for fixed buckets.
        self._total_buckets = buckets.total if buckets.fixed else None
        self._seen = BaseManifests(f"{storage.uri}/")
        self._named: dict[str, list[str]] = {}
        """By list of the newest draft, the manifests that it names."""
        # Names of manifests that were found unfit for a merge; they are not read again.
        self._unmergeable: set[str] = set()

    def compose(self, head: Snapshot | None, entries: Iterable[Entries], names: DraftNames) -> Draft:
        """Return all files to write before the snapshot. At most one manifest's entries are in memory at a
        time.

        Raises LakeUnavailable or UnknownMetadata, and the errors of the iteration over `entries`.
        """
        files = Files(names)
        added = [self._new_manifest(files, chunk) for chunk in self._chunks(entries)]
        delta = self._list(added)
        base, kept = self._base(files, head)
        name = names.name("manifest-list")
        self._named = {f"{name}-0": kept, f"{name}-1": _names(added)}
        files[f"{name}-0"] = base
        files[f"{name}-1"] = delta
        return Draft(files, ListFile(f"{name}-0", len(base)), ListFile(f"{name}-1", len(delta)))

    def _require_manifests(self, head: Snapshot, lists: Sequence[Container]) -> list[str]:
        """Look at the manifests of a head's lists, and return their names. Raises LakeUnavailable."""
        names: list[str] = []
        for which, content in zip(_LISTS, lists, strict=True):
            known = self._named.get(head.fields[which])
            names += _names(_decode_list(content)) if known is None else known
        self._seen.require((), [f"{FOLDER}/{name}" for name in names], self._storage.sizes)
        return names

    def _chunks(self, entries: Iterable[Entries]) -> Iterator[Sequence[Entries]]:
        """Split the entries between events, so that no manifest is much larger than the target size before
        compression.
        """
        chunk: list[Entries] = []
        size = 0
        for each in entries:
            chunk.append(each)
            size += len(each.encoded)
            if size >= self._target:
                yield chunk
                chunk, size = [], 0
        if size:
            yield chunk

    def _new_manifest(self, files: Files, entries: Sequence[Entries]) -> Meta:
        blocks = list(self._entries.grouped((each.files, each.encoded) for each in entries))
        name, size = self._add_manifest(files, blocks)
        buckets = frozenset[int]().union(*(each.buckets for each in entries))
        partitions = Counter[bytes]()
        for each in entries:
            for partition, count in each.partitions.items():
                partitions[partition] += count
        return {
            "_VERSION": 2,
            "_FILE_NAME": name,
            "_FILE_SIZE": size,
            "_NUM_ADDED_FILES": partitions.total(),
            "_NUM_DELETED_FILES": 0,
            "_PARTITION_STATS": self._partition_stats(partitions),
            "_SCHEMA_ID": max(each.schema_id for each in entries if each.encoded),
            "_MIN_BUCKET": min(buckets),
            "_MAX_BUCKET": max(buckets),
            "_MIN_LEVEL": 0,
            "_MAX_LEVEL": 0,
            "_TOTAL_BUCKETS": self._total_buckets,
        }

    def _add_manifest(self, files: Files, blocks: Sequence[Block]) -> tuple[str, int]:
        name, content = f"{files.names.name('manifest')}-{len(files)}", self._entries.file(blocks)
        files[name] = content
        return name, len(content)

    def _partition_stats(self, partitions: Counter[bytes]) -> Meta:
        weighted = [(self._values(raw), count) for raw, count in partitions.items()]
        nulls = [
            sum(count for values, count in weighted if values[at] is None)
            for at in range(len(self._partition_fields))
        ]
        return self._stats([values for values, _ in weighted], nulls)

    def _stats(self, rows: Sequence[Sequence[Any]], nulls: list[int]) -> Meta:
        known = [
            [row[at] for row in rows if row[at] is not None] for at in range(len(self._partition_fields))
        ]
        return {
            "_MIN_VALUES": self._row([min(column, default=None) for column in known]),
            "_MAX_VALUES": self._row([max(column, default=None) for column in known]),
            "_NULL_COUNTS": nulls,
        }

    def _values(self, raw: bytes) -> list[Any]:
        return list(GenericRowDeserializer.from_bytes(raw, self._partition_fields).values)

    def _row(self, values: list[Any]) -> bytes:
        encoded: bytes = GenericRowSerializer.to_bytes(GenericRow(values, self._partition_fields))
        return encoded

    def _list(self, metas: Iterable[Meta]) -> bytes:
        return self._lists.file(list(self._lists.blocks([_encode_meta(meta) for meta in metas])))

    def _base(self, files: Files, head: Snapshot | None) -> tuple[bytes, list[str]]:
        """Return the list of all manifests up to the head, for the new snapshot, with their names."""
        if head is None:
            return self._list([]), []
        lists = self._read_lists(head)
        names = self._require_manifests(head, lists)
        # Without a merge, the lists are copied as bytes, which is faster than decoding them.
        spliced = self._splice(lists)
        if spliced is not None and sum(block.records for each in lists for block in each.blocks) < MIN_COUNT:
            return spliced, names
        metas = [meta for each in lists for meta in _decode_list(each)]
        merged = self._merge(files, metas)
        if merged is None:
            return spliced or self._list(metas), names
        return self._list(merged), _names(merged)

    def _read_lists(self, head: Snapshot) -> list[Container]:
        # A list that is cut between two blocks is well-formed, and a commit on it would lose rows.
        fields = head.fields
        return [_container(self._storage, fields[each], fields.get(f"{each}Size")) for each in _LISTS]

    def _splice(self, lists: Sequence[Container]) -> bytes | None:
        """Return the first list with the second one's blocks appended, None if schema or codec differ."""
        base, delta = lists
        if not (self._lists.matches(base) and self._lists.matches(delta)):
            return None
        return base.data + joined(delta.blocks, base.sync)

    def _merge(self, files: Files, metas: Sequence[Meta]) -> list[Meta] | None:
        """Merge runs of small manifests; return None if there is nothing to merge."""
        runs = plan(metas, self._target, self._unmergeable)
        out: list[Meta] = []
        at = 0
        for start, end in runs:
            blocks = self._blocks_of(metas[start:end])
            if blocks is None:
                continue
            out += metas[at:start]
            out.append(self._merged(files, metas[start:end], blocks))
            at = end
        return [*out, *metas[at:]] if at else None

    def _blocks_of(self, metas: Sequence[Meta]) -> list[Block] | None:
        """Return the blocks of these manifests in order.

        Return None if one has another schema or codec, or differs from its description.
        """
        blocks: list[Block] = []
        for meta in metas:
            name = meta["_FILE_NAME"]
            try:
                container = _container(self._storage, name)
            except Damaged:
                # It stays in the list as it is: nothing of it is lost by this commit.
                self._unmergeable.add(name)
                return None
            found = container.blocks
            if (
                not self._entries.matches(container)
                or len(container.data) != meta["_FILE_SIZE"]
                or sum(block.records for block in found) != meta["_NUM_ADDED_FILES"]
            ):
                self._unmergeable.add(name)
                return None
            blocks += found
        return blocks

    def _merged(self, files: Files, metas: Sequence[Meta], blocks: Sequence[Block]) -> Meta:
        name, size = self._add_manifest(files, blocks)
        stats = [meta["_PARTITION_STATS"] for meta in metas]
        rows = [self._values(each[which]) for each in stats for which in ("_MIN_VALUES", "_MAX_VALUES")]
        nulls = [sum(each["_NULL_COUNTS"][at] for each in stats) for at in range(len(self._partition_fields))]
        return {
            **metas[0],
            "_FILE_NAME": name,
            "_FILE_SIZE": size,
            "_NUM_ADDED_FILES": sum(meta["_NUM_ADDED_FILES"] for meta in metas),
            "_PARTITION_STATS": self._stats(rows, nulls),
            "_SCHEMA_ID": max(meta["_SCHEMA_ID"] for meta in metas),
            "_MIN_BUCKET": _of_all(metas, "_MIN_BUCKET", min),
            "_MAX_BUCKET": _of_all(metas, "_MAX_BUCKET", max),
            "_MIN_LEVEL": _of_all(metas, "_MIN_LEVEL", min),
            "_MAX_LEVEL": _of_all(metas, "_MAX_LEVEL", max),
            "_TOTAL_BUCKETS": _of_all(metas, "_TOTAL_BUCKETS", _the_same),
        }


def _of_all(metas: Sequence[Meta], field: str, choose: Callable[[set[int]], int | None]) -> int | None:
    """Return the common value of a field for all manifests, None if one lacks it.

    With None, readers skip no manifest.
    """
    values = {meta.get(field) for meta in metas}
    known = {value for value in values if value is not None}
    return choose(known) if len(known) == len(values) else None


def _the_same(values: set[int]) -> int | None:
    return next(iter(values)) if len(values) == 1 else None


def _container(storage: Storage, name: str, size: int | None = None) -> Container:
    """Read a file of the manifest folder, of `size` bytes if that is known. Raises LakeUnavailable."""
    raw = storage.read(f"{FOLDER}/{name}")
    if raw is None:
        raise missing_file(f"{storage.uri}/{FOLDER}/{name}")
    if size is not None and size != len(raw):
        there = f"{name} of {storage.uri} has {len(raw)} bytes instead of {size}"
        raise Damaged(f"{there}: it was cut or changed; restore it")
    try:
        return Container(raw)
    except BadContainer as error:
        raise Damaged(f"{name} of {storage.uri} cannot be read: {error}") from error


def _names(metas: Iterable[Meta]) -> list[str]:
    return [str(meta["_FILE_NAME"]) for meta in metas]


def _decode_list(container: Container) -> list[Meta]:
    try:
        metas = records(container.data)
    except BadContainer as error:
        raise Damaged(f"a manifest list of the head cannot be read: {error}") from error
    for meta in metas:
        unknown = [key for key, value in meta.items() if key not in _META_FIELDS and value is not None]
        if unknown:
            raise UnknownMetadata(
                f"a manifest list has the fields {', '.join(unknown)}, which this release would lose"
            )
    return metas


def _encode_meta(meta: Meta) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, _META_SCHEMA, meta)
    return out.getvalue()
