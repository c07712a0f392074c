"""Schemas, specs and locations of one state of an Iceberg table, and the features that are refused."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote_plus

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import UnknownTransform
from pyiceberg.types import FixedType

from sluicegate.lakes.iceberg.files import uri_of
from sluicegate.lakes.iceberg.metadata import Metadata
from sluicegate.lakes.port import Premises, TableRefused

_VERSIONS: Final = (2, 3)
_KNOWN_TYPES: Final = frozenset(
    (
        *("boolean", "int", "long", "float", "double", "date", "time", "string", "uuid", "binary"),
        *("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"),
    )
)
_KNOWN_PARAMETERS: Final = ("decimal(", "fixed[")


def _on(value: str) -> bool:
    return value.strip().lower() == "true"


def _is_set(value: str) -> bool:
    return value.strip() != ""


def _not_parquet(value: str) -> bool:
    return value.strip().lower() not in ("", "parquet")


_REFUSED_PROPERTIES: Final[dict[str, Callable[[str], bool]]] = {
    "write.wap.enabled": _on,
    "encryption.key-id": _is_set,
    "write.upsert.enabled": _on,
    "write.format.default": _not_parquet,
}
"""Properties that require features without support here, each with a test of its value."""
_USED: Final = ("write.", "commit.", "gc.", "encryption.")
"""Beginnings of the names of the properties that commits depend on."""
_PARTS: Final = (
    *(
        "table-uuid",
        "format-version",
        "location",
        "schemas",
        "current-schema-id",
        "partition-specs",
        "default-spec-id",
    ),
    *("sort-orders", "encryption-keys"),
)
"""Fields of metadata that commits depend on."""
_MEANING: Final = frozenset(
    {"type", "fields", "id", "name", "element-id", "element", "key-id", "key", "value-id", "value"}
)
"""Keys of a schema that say what the columns of a file are."""


def schema_digest(raw: Mapping[str, Any]) -> str:
    """Return the digest of a schema as the metadata has it: ids, names and types, without comments."""
    text = json.dumps(_bare(raw), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _bare(raw: object) -> object:
    """Return a part of a schema without what does not change the meaning of a file."""
    if isinstance(raw, Mapping):
        return {key: _bare(value) for key, value in raw.items() if key in _MEANING}
    return [_bare(each) for each in raw] if isinstance(raw, list) else raw


class TableView:
    """Facts that a commit needs of a table's metadata, beside its snapshots."""

    def __init__(self, metadata: Metadata) -> None:
        """Read the parts. Raises TableRefused if the table is out of scope."""
        reason = out_of_scope(metadata.fields)
        if reason is not None:
            raise TableRefused(
                f"{metadata.table_location}: {reason}. Give the stream an append table without that (a new "
                "one, or this one altered)"
            )
        fields = metadata.fields
        self.parts = parts_of(metadata)
        text = json.dumps(self.parts, sort_keys=True)
        self.premises = Premises(metadata.identity, hashlib.sha256(text.encode()).hexdigest()[:16])
        """Changes with the table, and with everything that checks of files depend on."""
        try:
            self.raw_schemas = {int(each["schema-id"]): each for each in fields["schemas"]}
            self.schemas = {key: Schema.model_validate(each) for key, each in self.raw_schemas.items()}
            self.raw_specs = {int(each["spec-id"]): each for each in fields["partition-specs"]}
            self.specs = {key: PartitionSpec.model_validate(each) for key, each in self.raw_specs.items()}
            self.schema = self.schemas[fields["current-schema-id"]]
            self.spec = self.specs[fields["default-spec-id"]]
        except (KeyError, TypeError, ValueError) as error:
            raise TableRefused(
                f"{metadata.table_location}: its schemas and partition specs cannot be read: {error!r}; look "
                f"at the file {metadata.location}"
            ) from error
        self.version: int = metadata.version
        self.properties: Mapping[str, str] = metadata.properties
        self.sort_orders = [int(each["order-id"]) for each in fields.get("sort-orders") or ()]
        self.raw_sort_fields = _sort_fields(fields)
        self._refuse_partitions(metadata)
        self.metadata_location = metadata.metadata_folder
        path = self.properties.get("write.data.path")
        self.data_location = path.rstrip("/") if path else metadata.table_location
        """Folder that the paths of events are relative to, as the table itself writes it."""
        self.data_prefix = "" if path else "data/"
        """Start of the paths of all data files."""
        self.event_location = uri_of(self.data_location)
        """The same folder, as events write it."""
        for folder in (self.data_location, self.metadata_location):
            if "#" in folder or "?" in folder:
                raise TableRefused(
                    f"the location {folder} has '#' or '?', where some readers end the path, pyiceberg among "
                    "them. Give the table a location without these"
                )
        # Refuse a folder without support before files are written for it.
        uri_of(self.metadata_location)

    def _refuse_partitions(self, metadata: Metadata) -> None:
        for field in self.spec.fields:
            if isinstance(field.transform, UnknownTransform):
                raise TableRefused(
                    f"{metadata.table_location}: its partition field {field.name} has the transform "
                    f"{field.transform}, which is not supported"
                )
        for typed in self.spec.partition_type(self.schema).fields:
            if isinstance(typed.field_type, FixedType):
                # Iceberg's Java library writes the length before such values, against the specification.
                raise TableRefused(
                    f"{metadata.table_location}: its partition field {typed.name} has the type "
                    f"{typed.field_type}, which products write in two ways. Partition by another column"
                )


def parts_of(metadata: Metadata) -> tuple[Any, ...]:
    """Return the parts of metadata that a view depends on, to compare them."""
    properties = {key: value for key, value in metadata.properties.items() if key.startswith(_USED)}
    return (*(metadata.fields.get(name) for name in _PARTS), properties)


def out_of_scope(fields: Mapping[str, Any]) -> str | None:
    """Return the first unsupported feature of the table, None if there is none."""
    version = fields.get("format-version")
    if version == 1:
        return (
            "it has format version 1, whose snapshots have no sequence numbers; upgrade it: ALTER TABLE ... "
            "SET TBLPROPERTIES ('format-version' = '2')"
        )
    if version not in _VERSIONS:
        return f"it has format version {version}; only 2 and 3 are supported"
    properties = fields.get("properties") or {}
    for key, forbids in _REFUSED_PROPERTIES.items():
        if key in properties and forbids(str(properties[key])):
            return f"the property {key} = {properties[key]} is not supported"
    if fields.get("encryption-keys"):
        return "it has encryption keys; encrypted tables are not supported"
    for schema in fields.get("schemas") or ():
        reason = _schema_out_of_scope(schema, schema.get("schema-id") == fields.get("current-schema-id"))
        if reason is not None:
            return reason
    return None


def _schema_out_of_scope(schema: Mapping[str, Any], current: bool) -> str | None:
    if current and schema.get("identifier-field-ids"):
        return (
            "it has identifier fields, which mean upserts; a commit here only appends, so rows with one key "
            "would be there twice"
        )
    for field in schema.get("fields") or ():
        reason = _field_out_of_scope(field)
        if reason is not None:
            return reason
    return None


def _field_out_of_scope(field: Mapping[str, Any]) -> str | None:
    name = field.get("name")
    if field.get("initial-default") is not None or field.get("write-default") is not None:
        return f"its column {name} has a default value, which is not supported"
    reason = _type_out_of_scope(field.get("type"))
    return f"its column {name} has {reason}" if reason is not None else None


def _type_out_of_scope(kind: Any) -> str | None:
    if isinstance(kind, str):
        text = kind.replace(" ", "")
        known = text in _KNOWN_TYPES or text.startswith(_KNOWN_PARAMETERS)
        return None if known else f"the type {kind}, which is not supported"
    if not isinstance(kind, Mapping):
        return "no readable type"
    match kind.get("type"):
        case "struct":
            found = (_field_out_of_scope(field) for field in kind.get("fields") or ())
        case "list":
            found = (_type_out_of_scope(kind.get("element")) for _ in range(1))
        case "map":
            found = (_type_out_of_scope(kind.get(part)) for part in ("key", "value"))
        case other:
            return f"the type {other}, which is not supported"
    return next((reason for reason in found if reason is not None), None)


def _sort_fields(fields: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the fields of the table's own sort order, as its metadata has them."""
    own = fields.get("default-sort-order-id", 0)
    orders = [each.get("fields", ()) for each in fields.get("sort-orders") or () if each["order-id"] == own]
    return orders[0] if orders else ()


# Names of the folders of partitions. Readers do not parse them.

_LONGEST: Final = 120
"""Characters of each half of a folder's name. File systems allow 255 bytes in all."""


def folder_name(field: str, text: str | None) -> str:
    """Return the name of the folder of a partition value, given as text; None for null."""
    name, escaped = quote_plus(field, safe=""), quote_plus("null" if text is None else text, safe="")
    return f"{_shortened(name)}={_shortened(escaped)}"


def folder_path(values: Mapping[str, str | None]) -> str:
    """Return the folder of a partition, without a slash at its end."""
    return "/".join(folder_name(field, text) for field, text in values.items())


def _shortened(escaped: str) -> str:
    """Return a text, or its digest if it is too long for the half of a name of a folder."""
    if len(escaped) <= _LONGEST:
        return escaped
    return hashlib.sha256(escaped.encode()).hexdigest()[:32]
