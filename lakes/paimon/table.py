"""A Paimon table, read from its folder: identity, schemas, buckets, and supported features."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pypaimon.common.options import CoreOptions, Options
from pypaimon.schema.table_schema import TableSchema
from pypaimon.utils.file_store_path_factory import FileStorePathFactory

from sluicegate.lakes.paimon.keys import KEY_TYPES, key_columns, refusal_of_keys, type_of
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.storage import Storage
from sluicegate.texts import counted

# Minimal table object for one schema, sufficient for a commit.
#
# An import of pypaimon's own table class also loads its readers, with pandas and polars. That takes
# seconds, in which a coordinator that was just started commits nothing. Only the writer half needs that
# class.


class SchemaTable:
    """Table with the attributes that pypaimon's functions read for partitions and paths."""

    def __init__(self, root: str, schema: TableSchema) -> None:
        self.table_path = root
        self.table_schema = schema
        self.fields = schema.fields
        by_name = {field.name: field for field in schema.fields}
        self.partition_keys: list[str] = schema.partition_keys
        self.partition_keys_fields = [by_name[name] for name in schema.partition_keys]
        self.is_primary_key_table = bool(schema.primary_keys)
        self.options = CoreOptions(Options(schema.options))
        # Raises an error for an invalid number, as pypaimon's own table does.
        self.total_buckets = self.options.bucket()

    def path_factory(self) -> FileStorePathFactory:
        """Return pypaimon's factory of paths. The writer half alone determines the names of new files."""
        options = self.options.options
        return FileStorePathFactory(
            root=self.table_path,
            partition_keys=self.partition_keys,
            partition_types=[field.type for field in self.partition_keys_fields],
            default_part_value=options.get(CoreOptions.PARTITION_DEFAULT_NAME, "__DEFAULT_PARTITION__"),
            format_identifier="parquet",
            data_file_prefix="data-",
            changelog_file_prefix="changelog-",
            legacy_partition_name=options.get(CoreOptions.PARTITION_GENERATE_LEGACY_NAME),
            file_suffix_include_compression=False,
            file_compression="none",
        )


# Bucket layouts of tables: the supported ones, and the assignment of rows to buckets.

UNAWARE: Final = -1
"""Number of buckets of a table without fixed buckets, whose files are all in bucket 0."""

_KEY_TYPES: Final = re.compile(
    r"STRING|CHAR\b.*|VARCHAR\b.*|BOOLEAN|TINYINT|SMALLINT|INT|INTEGER|BIGINT|DATE"
)
"""Types whose hash is known to be equal in Paimon's Java library and in pypaimon."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Properties of a table that determine the bucket of a row."""

    total: int
    """Number of buckets, as in every manifest entry. UNAWARE: any writer puts any row into bucket 0."""
    key: tuple[tuple[int, str], ...] = ()
    """Id and type of each field of the bucket key, in order. Names are left out, because renaming moves no
    row."""
    function: str = "default"

    @property
    def fixed(self) -> bool:
        return self.total != UNAWARE

    @property
    def numbers(self) -> range:
        """Bucket numbers that files can have."""
        return range(self.total if self.fixed else 1)

    @property
    def joined(self) -> str | None:
        """Reason why all writers of such a table are one region; None if they are not."""
        if not self.fixed:
            return None
        return f"the table has {counted(self.total, 'fixed bucket')}, which all writers share"


def layout(schema: TableSchema) -> Layout:
    """Return the layout of a schema. It is only meaningful for a schema without a `refusal`."""
    options = schema.options
    total = int(options.get("bucket", UNAWARE))
    if total == UNAWARE:
        return Layout(UNAWARE)
    fields = {field.name: field for field in schema.fields}
    key = ((fields[name].id, type_of(fields[name])) for name in _key(schema) if name in fields)
    return Layout(total, tuple(key), str(options.get("bucket-function.type", "default")).lower())


def refusal(schema: TableSchema) -> str | None:
    """Return the first unsupported property of a schema's buckets, None if there is none."""
    options = schema.options
    found = layout(schema)
    if not found.fixed:
        return None
    if found.total < 1:
        return f"the option bucket = {options['bucket']} is not supported; only -1 and fixed numbers are"
    if found.function != "default":
        return f"the option bucket-function.type = {options['bucket-function.type']} is not supported"
    fields = {field.name: field for field in schema.fields}
    names = _key(schema)
    types = KEY_TYPES if schema.primary_keys else _KEY_TYPES
    if not names:
        return f"it has fixed buckets (bucket = {found.total}), but no bucket-key that says what goes where"
    for name in names:
        if name not in fields:
            return f"its bucket-key names the column {name}, which it does not have"
        if not types.fullmatch(type_of(fields[name])):
            return f"its bucket-key is {name}, and keys of the type {type_of(fields[name])} are not supported"
        if schema.primary_keys and name not in schema.primary_keys:
            return f"its bucket-key names the column {name}, which is not in its primary key"
    return None


def changed(older: Layout, newer: Layout) -> str | None:
    """Return the difference between two layouts of a table, None if they are equal."""
    if older.total != newer.total:
        before = f"from {older.total}" if older.fixed else "from none"
        return f"its number of buckets was changed {before} to {newer.total}"
    return None if older == newer else "its bucket-key was changed"


def hash_once(extractor: Any) -> Any:
    """Make pypaimon's bucket assignment hash each distinct key of a batch only once; return the extractor.

    The hash function itself stays pypaimon's, which takes about ten microseconds for each key.
    """
    of_each = extractor._extract_buckets_batch

    def assign(data: pa.RecordBatch) -> list[int]:
        codes = np.zeros(data.num_rows, np.int64)
        for column in extractor._input_columns(data, extractor.bucket_key_indices):
            encoded = column.dictionary_encode(null_encoding="encode")
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
            # Replace the combined codes by their ranks, so that the product with the next column cannot
            # overflow.
            _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
        buckets = of_each(data.take(pa.array(first)))
        placed: list[int] = np.asarray(buckets, np.int32)[codes].tolist()
        return placed

    extractor._extract_buckets_batch = assign
    return extractor


def one_group(extractor: Any) -> Any:
    """Make pypaimon leave all rows together, for a table without partitions and fixed buckets."""
    extractor.extract_partition_bucket_groups = lambda rows: [((), 0, None)] if rows.num_rows else []
    return extractor


def _key(schema: TableSchema) -> list[str]:
    parts = str(schema.options.get("bucket-key") or "").split(",")
    return [part.strip() for part in parts if part.strip()] or key_columns(schema)


_SCHEMA: Final = re.compile(r"schema-(\d+)")
_PARTITION_TYPES: Final = re.compile(
    r"(STRING|CHAR\b.*|VARCHAR\b.*|BOOLEAN|TINYINT|SMALLINT|INT|INTEGER|BIGINT|DATE)( NOT NULL)?"
)
_FILE_FORMATS: Final = ("parquet", "orc", "avro")
_DELTA_LOG: Final = "_delta_log"


def _on(value: str) -> bool:
    return value.strip().lower() == "true"


def _is_set(value: str) -> bool:
    return value.strip().lower() not in ("", "none")


_REFUSED_OPTIONS: Final[dict[str, Callable[[str], bool]]] = {
    "deletion-vectors.enabled": _on,
    "changelog-producer": _is_set,
    "row-tracking.enabled": _on,
    "data-evolution.enabled": _on,
    "data-file.external-paths": _is_set,
    "data-file.path-directory": _is_set,
    "target-file-row-num": _is_set,
    "vector.file.format": _is_set,
    "metastore.partitioned-table": _on,
    "branch": lambda name: _is_set(name) and name != "main",
}
"""Options that require features without support here, each with a test of its value."""


class Table:
    """Reader of the schemas in a table folder.

    Paimon never changes a schema file, so each is read once. If the newest one has changed, the table was
    restored from a copy and then altered, and all are read again.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._digests: dict[int, str] = {}
        self._opened: dict[int, SchemaTable] = {}
        self._layouts: dict[int, Layout] = {}

    def exists(self) -> bool:
        return bool(self._schema_ids())

    def identity(self) -> str:
        """Return a digest of the first schema.

        It contains the table's creation time, so it differs after the table is dropped and created again.
        Raises LakeUnavailable if the table does not exist.
        """
        first = self.storage.read("schema/schema-0")
        if first is None:
            raise LakeUnavailable(
                f"{self.storage.uri} has no schema: the table was dropped, or its storage is not mounted"
            )
        return hashlib.sha256(first).hexdigest()[:32]

    def has_schema(self, schema_id: int) -> bool:
        return schema_id in self._opened or schema_id in self._schema_ids()

    def newest(self) -> SchemaTable:
        """Return the table with its newest schema. Raises TableRefused if it is out of scope."""
        ids = self._schema_ids()
        if not ids:
            raise self._no_table()
        newest = max(ids)
        if newest in self._opened and self._digest(newest) != self._digests[newest]:
            self._opened.clear()
            self._layouts.clear()
            self._digests.clear()
        if newest not in self._opened:
            opened = self._open(newest)
            reason = out_of_scope(opened)
            if reason is not None:
                raise TableRefused(
                    f"{self.storage.uri}: {reason}. Give the stream a table without that (a new one, or this "
                    "one altered)"
                )
            self._refuse_other_layouts(ids, opened)
            self._digests[newest] = self._digest(newest)
            self._opened[newest] = opened
        return self._opened[newest]

    def at(self, schema_id: int) -> SchemaTable:
        """Return the table with a schema that it has. Raises LakeUnavailable or TableRefused."""
        return self._opened.get(schema_id) or self._open(schema_id)

    def schema_digest(self, schema_id: int) -> str:
        """Return the digest of a schema's file. It contains the time when the schema was made.

        Raises LakeUnavailable.
        """
        if schema_id not in self._digests:
            self._digests[schema_id] = self._digest(schema_id)
        return self._digests[schema_id]

    def _digest(self, schema_id: int) -> str:
        return hashlib.sha256(self._read(schema_id)).hexdigest()[:32]

    def _read(self, schema_id: int) -> bytes:
        raw = self.storage.read(f"schema/schema-{schema_id}")
        if raw is None:
            raise LakeUnavailable(f"{self.storage.uri}: schema {schema_id} is gone")
        return raw

    def _no_table(self) -> TableRefused:
        """Return the refusal of a folder without schemas. Raises LakeUnavailable."""
        start = f"no Paimon table at {self.storage.uri}: "
        if found := _other_format(self.storage):
            sign, name = found
            return TableRefused(
                f"{start}it has {sign}, as a table of another format; set `format` to {name}, or correct the "
                "table's location"
            )
        return TableRefused(
            f"{start}it has no schema folder. If the table was there, mount its storage, or put it back; if "
            "it is new, create it; or correct the table's location"
        )

    def _refuse_other_layouts(self, ids: Sequence[int], opened: SchemaTable) -> None:
        """Raise TableRefused if an older schema has another bucket layout.

        One partition may then contain files of two layouts, and readers search a row in one bucket only.
        """
        newest = layout(opened.table_schema)
        for schema_id in ids if newest.fixed else ():
            if schema_id not in self._layouts:
                self._layouts[schema_id] = layout(self._open(schema_id).table_schema)
            how = changed(self._layouts[schema_id], newest)
            if how is not None:
                raise TableRefused(
                    f"{self.storage.uri}: {how} after schema {schema_id}, and files of both may be there. "
                    "Make a new table with the buckets that you want, copy the rows, and give the stream that"
                )

    def _schema_ids(self) -> list[int]:
        matches = (_SCHEMA.fullmatch(name) for name in self.storage.names("schema"))
        return [int(match[1]) for match in matches if match]

    def _open(self, schema_id: int) -> SchemaTable:
        raw = self._read(schema_id)
        try:
            return SchemaTable(self.storage.root, TableSchema.from_json(raw.decode()))
        except Exception as error:
            raise TableRefused(
                f"{self.storage.uri}: schema {schema_id} cannot be read: {error}; look at the file "
                f"schema/schema-{schema_id} of the table"
            ) from error


def out_of_scope(table: SchemaTable) -> str | None:
    """Return the first unsupported feature of the table, None if there is none."""
    if table.is_primary_key_table and (reason := refusal_of_keys(table.table_schema)) is not None:
        return reason
    options: dict[str, str] = {key: str(value) for key, value in table.table_schema.options.items()}
    buckets = refusal(table.table_schema)
    if buckets is not None:
        return buckets
    if options.get("type", "table") != "table":
        return f"its type is {options['type']}; only plain tables are supported"
    for key, forbids in _REFUSED_OPTIONS.items():
        if key in options and forbids(options[key]):
            return f"the option {key} = {options[key]} is not supported"
    file_format = options.get("file.format", "parquet").lower()
    if file_format not in _FILE_FORMATS:
        return f"the option file.format = {file_format} is not supported"
    for field in table.fields:
        kind = str(field.type).upper()
        if field.name in table.partition_keys and not _PARTITION_TYPES.fullmatch(kind):
            return f"it is partitioned by {field.name}, and partitions by {kind} are not supported"
        if re.search(r"\b(BLOB|VECTOR)\b", kind):
            return f"its column {field.name} has the type {kind}, which is not supported"
    return None


def _other_format(storage: Storage) -> tuple[str, str] | None:
    """Return the sign of another format's table in a folder, and that format. Raises LakeUnavailable."""
    if storage.names(_DELTA_LOG):
        return _DELTA_LOG, "delta"
    found = [name for name in storage.names("metadata") if name.endswith(".metadata.json")]
    return (f"metadata/{max(found)}", "iceberg") if found else None
