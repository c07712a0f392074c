"""Manifest lists: one line for each manifest of a snapshot."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import Any, Final, NamedTuple

import fastavro
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from sluicegate.lakes.avro import BadContainer, Container, Header, records
from sluicegate.lakes.port import LakeError

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
