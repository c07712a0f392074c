"""Avro layout of data file records and manifest entries, for one schema, partition spec and format version.

A writer encodes the `data_file` record of format version 2 without knowing the commit. In a manifest entry,
the fields before it are equal for all files of a commit. The fields of version 3 come after all others of
the record, so one encoded record serves both versions.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import fastavro
from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_ENTRY_SCHEMAS
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType, UnknownType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from sluicegate.lakes.iceberg.values import widened
from sluicegate.lakes.port import TableRefused

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
