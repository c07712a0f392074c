"""Avro layout of data file records and manifest entries, for one schema, partition spec and format version.

A writer encodes the `data_file` record of format version 2 without knowing the commit. In a manifest entry,
the fields before it are equal for all files of a commit. The fields of version 3 come after all others of
the record, so one encoded record serves both versions.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import Any, Final, NamedTuple

import fastavro
from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_ENTRY_SCHEMAS, MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType, UnknownType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from sluicegate.lakes.avro import BadContainer, Container, Header, read_long, records, write_long
from sluicegate.lakes.iceberg.values import widened
from sluicegate.lakes.port import LakeError, TableRefused

FORMAT: Final = "iceberg"
FORMAT_VERSION: Final = 1
"""Version of the metadata blobs. 1: one Avro record `data_file` of format version 2 of Iceberg."""

_PARTITION: Final = 102
_DATA_FILE: Final = 2

Partition = tuple[Any, ...]
"""Values of a partition, in the order of its spec, as Avro stores them without logical types."""


class Layout:
    """Encoder and decoder of the records of one partition spec, as of one schema."""

    def __init__(self, schema: Schema, spec: PartitionSpec, version: int) -> None:
        """Make the layout. Raises TableRefused if a source column of the spec no longer exists."""
        self.schema = schema
        self.spec = spec
        self.version = version
        self.partition_type = _partition_type(schema, spec)
        self.entry_schema = _entry_schema(self.partition_type, version)
        portable = _without_logical_types(_entry_schema(self.partition_type, 2))
        record = next(field["type"] for field in portable["fields"] if field["name"] == "data_file")
        partition = next(field["type"] for field in record["fields"] if field["name"] == "partition")
        self.fields: tuple[str, ...] = tuple([field["name"] for field in record["fields"]])
        """Names of a record's fields."""
        self._partition_names: list[str] = [field["name"] for field in partition["fields"]]
        self._record = fastavro.parse_schema(record)
        self._partition = fastavro.parse_schema(partition)

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """Encode a `data_file` record; its partition is a tuple of values."""
        out = BytesIO()
        named = dict(zip(self._partition_names, record["partition"], strict=True))
        fastavro.schemaless_writer(out, self._record, {**record, "partition": named})
        return out.getvalue()

    def encode_partition(self, partition: Partition) -> bytes:
        """Encode the values of a partition, as a record contains them."""
        out = BytesIO()
        fastavro.schemaless_writer(
            out, self._partition, dict(zip(self._partition_names, partition, strict=True))
        )
        return out.getvalue()

    def decode(self, encoded: bytes) -> dict[str, Any]:
        """Decode exactly one record, with its partition as a tuple. Raises any error for malformed bytes.

        Avro has several encodings of one value. A list may state its size in bytes, and readers that skip it
        believe that. So only the encoding that `encode` gives is taken.
        """
        stream = BytesIO(encoded)
        record = fastavro.schemaless_reader(stream, self._record)
        if stream.tell() != len(encoded) or not isinstance(record, dict):
            raise ValueError(f"{len(encoded)} bytes are more than one record")
        record["partition"] = self.partition_of(record)
        if self.encode(record) != encoded:
            raise ValueError("it is not in the one form that all readers decode alike")
        return record

    def widened(self, encoded: bytes, current: "Layout") -> tuple[bytes, Partition]:
        """Return a record, and its partition, as of a later layout of the same spec with wider types.

        Raises ValueError if a type is another one.
        """
        record = self.decode(encoded)
        types = zip(self.partition_type.fields, current.partition_type.fields, strict=True)
        kinds = [(before.field_type, now.field_type) for before, now in types]
        partition = tuple(
            [widened(*kind, value) for kind, value in zip(kinds, record["partition"], strict=True)]
        )
        return current.encode({**record, "partition": partition}), partition

    def partition_of(self, record: Mapping[str, Any]) -> Partition:
        """Return the values of a record's partition, in the order of the spec."""
        named = record["partition"]
        return tuple([named[name] for name in self._partition_names])


def metric_pairs(values: Mapping[int, Any] | None) -> list[dict[str, Any]] | None:
    """Return a map of metrics in the form in which Iceberg stores maps with other keys than strings."""
    return None if values is None else [{"key": key, "value": value} for key, value in values.items()]


def _partition_type(schema: Schema, spec: PartitionSpec) -> StructType:
    """Return the type of a spec's partitions. All fields are optional, as in other writers' manifests."""
    fields: Sequence[NestedField] = spec.partition_type(schema).fields
    dropped = [field.name for field in fields if isinstance(field.field_type, UnknownType)]
    if dropped:
        raise TableRefused(
            f"the source columns of the partition fields {', '.join(dropped)} of spec {spec.spec_id} were "
            "dropped, so no file of that spec can be described"
        )
    return StructType(
        *(NestedField(field.field_id, field.name, field.field_type, required=False) for field in fields)
    )


def _entry_schema(partition_type: StructType, version: int) -> dict[str, Any]:
    record = StructType(
        *(
            NestedField(field.field_id, field.name, partition_type, required=True, doc=field.doc)
            if field.field_id == _PARTITION
            else field
            for field in DATA_FILE_TYPE[version].fields
        )
    )
    entry = Schema(
        *(
            NestedField(field.field_id, field.name, record, required=True)
            if field.field_id == _DATA_FILE
            else field
            for field in MANIFEST_ENTRY_SCHEMAS[version].fields
        )
    )
    converted: Any = AvroSchemaConversion().iceberg_to_avro(entry, schema_name="manifest_entry")
    avro: dict[str, Any] = converted
    return avro


def _without_logical_types(avro: Any) -> Any:
    """Return the schema with plain types.

    A logical type limits values to what Python can represent: a date after the year 9999 would be an error.
    """
    if isinstance(avro, dict):
        return {key: _without_logical_types(each) for key, each in avro.items() if key != "logicalType"}
    if isinstance(avro, list):
        return [_without_logical_types(each) for each in avro]
    return avro


# Manifest lists: one line for each manifest of a snapshot.

_NEWEST: Final = 3
_PARTITIONS: Final = 507
_SUMMARY_NAMES: Final = {
    509: "contains_null",
    518: "contains_nan",
    510: "lower_bound",
    511: "upper_bound",
}
_DEFAULTS: Final = {
    "content": 0,
    "sequence_number": 0,
    "min_sequence_number": 0,
    "partitions": None,
    "key_metadata": None,
    "first_row_id": None,
}
_REQUIRED: Final = (
    *("manifest_path", "manifest_length", "partition_spec_id", "added_snapshot_id"),
    *("added_files_count", "existing_files_count", "deleted_files_count"),
    *("added_rows_count", "existing_rows_count", "deleted_rows_count"),
)


class UnknownMetadata(LakeError):
    """A manifest list has fields that this release would lose, or lacks some, so it cannot be rewritten."""


class Line(NamedTuple):
    """One manifest of a snapshot."""

    fields: Mapping[str, Any]
    """Fields by the names of this release: files of others may name them otherwise."""
    encoded: bytes
    """The same, as an Avro record of the list's format version."""

    @property
    def path(self) -> str:
        return str(self.fields["manifest_path"])


class Lists:
    """Reader and writer of the manifest lists of one format version."""

    def __init__(self, version: int, codec: str) -> None:
        self._schema, self._parsed = _schemas(version)
        self._codec = codec

    def line(self, fields: Mapping[str, Any]) -> Line:
        """Encode a line."""
        out = BytesIO()
        fastavro.schemaless_writer(out, self._parsed, fields)
        return Line(fields, out.getvalue())

    def read(self, raw: bytes) -> list[Line]:
        """Read a list of any writer and version. Raises BadContainer or UnknownMetadata."""
        container = Container(raw)
        try:
            schema = json.loads(container.schema)
            return [self.line(_renamed(schema, record)) for record in records(raw)]
        except (KeyError, TypeError, ValueError) as error:
            raise BadContainer(f"it is no manifest list ({error!r})") from error

    def file(self, lines: Sequence[Line], more: Mapping[str, str]) -> bytes:
        """Return the content of a list; `more` are entries of the file's metadata."""
        header = Header(self._schema, self._codec, more)
        return header.file(list(header.blocks([line.encoded for line in lines])))


@cache
def _schemas(version: int) -> tuple[dict[str, Any], Any]:
    """Return the Avro schema of a list, for its file and for fastavro."""
    schema: Any = AvroSchemaConversion().iceberg_to_avro(
        MANIFEST_LIST_FILE_SCHEMAS[version], schema_name="manifest_file"
    )
    # fastavro keeps and changes parts of what it is given.
    return schema, fastavro.parse_schema(json.loads(json.dumps(schema)))


@cache
def _names() -> dict[int, str]:
    return {field.field_id: field.name for field in MANIFEST_LIST_FILE_SCHEMAS[_NEWEST].fields}


def _renamed(schema: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line with the names of this release. Fields are found by their ids, as Iceberg requires."""
    found: dict[str, Any] = {}
    for field in schema["fields"]:
        number, value = field["field-id"], record[field["name"]]
        name = _names().get(number)
        if name is None and value is not None:
            raise UnknownMetadata(
                f"a manifest list has the field {field['name']}, which this release would lose"
            )
        if name is not None:
            found[name] = _summaries(field, value) if number == _PARTITIONS else value
    for name, value in _DEFAULTS.items():
        found[name] = value if found.get(name) is None else found[name]
    lacking = [name for name in _REQUIRED if found.get(name) is None]
    if lacking:
        raise UnknownMetadata(
            f"a manifest list of an older format lacks {', '.join(lacking)}. Let another engine rewrite the "
            "manifests of the table once"
        )
    return found


def _summaries(field: Mapping[str, Any], value: Sequence[Mapping[str, Any]] | None) -> Any:
    """Return the partition summaries of a line with the names of this release."""
    if value is None:
        return None
    kind = field["type"]
    array = next(each for each in kind if each != "null") if isinstance(kind, list) else kind
    items = array["items"]
    names = {each["name"]: each["field-id"] for each in items["fields"]}
    found = []
    for each in value:
        unknown = [name for name, number in names.items() if number not in _SUMMARY_NAMES]
        if any(each[name] is not None for name in unknown):
            raise UnknownMetadata(
                f"a manifest list has one of the fields {', '.join(unknown)}, which this release would lose"
            )
        named = {_SUMMARY_NAMES[names[name]]: each[name] for name in names if name not in unknown}
        found.append({"contains_nan": None, "lower_bound": None, "upper_bound": None, **named})
    return found


# The path in an encoded `data_file` record, read and replaced without decoding the rest.

_DATA: Final = b"\x00"
"""Content of the record: a data file. It is the first field, and the path is the second."""


def path_in(record: bytes) -> str:
    """Return the path in the record of a data file. Raises ValueError if it cannot be read."""
    start, end = _borders(record)
    return record[start:end].decode()


def with_path(record: bytes, path: str) -> bytes:
    """Return the record with another path. Raises ValueError if it cannot be read."""
    _, end = _borders(record)
    raw = path.encode()
    return _DATA + write_long(len(raw)) + raw + record[end:]


def _borders(record: bytes) -> tuple[int, int]:
    if not record.startswith(_DATA):
        raise ValueError("it is not the record of a data file")
    length, start = read_long(record, len(_DATA))
    end = start + length
    if length < 0 or end > len(record):
        raise ValueError("it ends inside of its path")
    return start, end
