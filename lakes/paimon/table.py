"""A Paimon table, read from its folder: identity, schemas, and supported features."""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Final

from pypaimon.schema.table_schema import TableSchema

from sluicegate.lakes.paimon.buckets import Layout, changed, layout, refusal
from sluicegate.lakes.paimon.schema_table import SchemaTable
from sluicegate.lakes.port import LakeUnavailable, TableRefused
from sluicegate.lakes.storage import Storage

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
                    f"{self.storage.uri}: {reason}. Give the stream an append table without that (a new "
                    "one, or this one altered)"
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
            f"{start}it has no schema folder; create the table there first, mount its storage, or correct "
            "the table's location"
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
    if table.is_primary_key_table:
        return (
            "it has a primary key; only append tables are supported, since writers do not wait for the "
            "commit before theirs"
        )
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
