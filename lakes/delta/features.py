"""Features of Delta tables: an allowlist of everything that an append of ours respects."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from sluicegate.lakes.delta.log import Log, Malformed, Metadata, NoTable, Protocol, State
from sluicegate.lakes.delta.schema import (
    MODE,
    Array,
    Column,
    Kind,
    Map,
    Struct,
    TableSchema,
    can_partition,
    read_schema,
)
from sluicegate.lakes.port import TableRefused
from sluicegate.lakes.storage import Storage

MOST_READER: Final = 3
MOST_WRITER: Final = 7

ROW_TRACKING: Final = "rowTracking"
COLUMN_MAPPING: Final = "columnMapping"
TIMESTAMPS: Final = "inCommitTimestamp"
TIMESTAMPS_WITHOUT_ZONE: Final = "timestampNtz"
TYPE_WIDENING: Final = "typeWidening"
CHECKPOINT_PROTECTION: Final = "checkpointProtection"
RETENTION: Final = "delta.setTransactionRetentionDuration"

_ALLOWED: Final = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        CHECKPOINT_PROTECTION,
        "clustering",
        COLUMN_MAPPING,
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        TIMESTAMPS,
        "invariants",
        ROW_TRACKING,
        TIMESTAMPS_WITHOUT_ZONE,
        TYPE_WIDENING,
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""Those with conditions are allowed while the table has none: constraints, invariants, generated columns."""

_OF_CATALOGS: Final = frozenset({"catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview"})
"""Features of tables whose commits a catalog takes, such as Unity Catalog."""
_COORDINATOR: Final = "delta.coordinatedCommits.commitCoordinator-preview"
_BY_CATALOG: Final = (
    "not supported: a catalog takes the commits of the table, so a version that is put into its log beside "
    "that is lost, or takes the place of another one"
)

_OF_WRITER: Final[Mapping[int, frozenset[str]]] = {
    1: frozenset(),
    2: frozenset({"appendOnly", "invariants"}),
    3: frozenset({"appendOnly", "invariants", "checkConstraints"}),
}
"""Features of protocol versions without a list, as far as they matter here."""

_PRIMITIVE: Final = re.compile(
    r"string|long|integer|short|byte|float|double|boolean|binary|date|timestamp|timestamp_ntz"
    r"|decimal\((?:[1-9]|[12][0-9]|3[0-8]),\s*(?:[0-9]|[12][0-9]|3[0-8])\)"
)
_CODEC: Final = "delta.parquet.compression.codec"
_CODECS: Final = frozenset({"none", "uncompressed", "snappy", "gzip", "lz4_raw", "zstd"})


def _is_true(value: str) -> bool:
    return value.strip().lower() == "true"


_REFUSED_PROPERTIES: Final[Mapping[str, Callable[[str], bool]]] = {
    # Readers then drop transactions, and with them the proof that a decision is in the table.
    RETENTION: lambda value: True,
    "delta.enableIcebergCompatV1": _is_true,
    "delta.enableIcebergCompatV2": _is_true,
    "delta.enableIcebergCompatV3": _is_true,
    _COORDINATOR: lambda value: value not in ("", "{}"),
    _CODEC: lambda value: value.strip().lower() not in _CODECS,
    MODE: lambda value: value.strip().lower() not in ("none", "name", "id"),
}
"""Properties that need more than an append, each with a test of its value."""
_CONSTRAINT: Final = "delta.constraints."

_REFUSED_OF_COLUMNS: Final[Mapping[str, str]] = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generation expression",
    "delta.identity.start": "identity values",
    "delta.identity.step": "identity values",
    "__CHAR_VARCHAR_TYPE_STRING": "a length that is checked on write (char or varchar)",
    "__COLLATIONS": "a collation",
}


def supports(protocol: Protocol, feature: str) -> bool:
    """Return True if the protocol has a feature that writers must respect."""
    if protocol.writer >= MOST_WRITER:
        return feature in protocol.writer_features
    if feature == COLUMN_MAPPING:
        return protocol.reader >= 2 and protocol.writer >= 5
    return feature in _OF_WRITER.get(protocol.writer, _OF_WRITER[3])


def tracks_rows(protocol: Protocol, metadata: Metadata) -> bool:
    """Return True if each file of a commit gets row ids."""
    suspended = _is_true(metadata.configuration.get("delta.rowTrackingSuspended", ""))
    return supports(protocol, ROW_TRACKING) and not suspended


def keeps_timestamps(protocol: Protocol, metadata: Metadata) -> bool:
    """Return True if each commit carries its own, rising time."""
    enabled = _is_true(metadata.configuration.get("delta.enableInCommitTimestamps", ""))
    return supports(protocol, TIMESTAMPS) and enabled


def keeps_changes(metadata: Metadata) -> bool:
    """Return True if readers may ask the table for its changes, which adds columns to their rows."""
    return _is_true(metadata.configuration.get("delta.enableChangeDataFeed", ""))


def out_of_scope(protocol: Protocol, metadata: Metadata) -> str | None:
    """Return the first thing of a table that an append of ours would not respect, None if there is none."""
    if not 1 <= protocol.reader <= MOST_READER or not 1 <= protocol.writer <= MOST_WRITER:
        return (
            f"its protocol has the reader version {protocol.reader} and the writer version "
            f"{protocol.writer}; this release knows up to {MOST_READER} and {MOST_WRITER}"
        )
    unknown = sorted((protocol.reader_features | protocol.writer_features) - _ALLOWED)
    if of_catalogs := _OF_CATALOGS.intersection(unknown):
        return f"its table feature {min(of_catalogs)} is {_BY_CATALOG}"
    if unknown:
        return f"its table feature {unknown[0]} is not supported"
    for key, value in metadata.configuration.items():
        forbids = _REFUSED_PROPERTIES.get(key)
        if key.startswith(_CONSTRAINT) or (forbids is not None and forbids(value)):
            known = f", only {', '.join(sorted(_CODECS))}" if key == _CODEC else ""
            why = _BY_CATALOG if key == _COORDINATOR else f"not supported{known}"
            return f"its property {key} = {value} is {why}"
    if metadata.provider.lower() != "parquet":
        return f"its data files have the format {metadata.provider}, which is not supported"
    try:
        schema = read_schema(metadata)
    except Malformed as error:
        return f"{error}"
    if schema.mode != "none" and not supports(protocol, COLUMN_MAPPING):
        return f"its property {MODE} = {schema.mode} needs the table feature {COLUMN_MAPPING}, which it lacks"
    return _refused_column(schema)


def _refused_column(schema: TableSchema) -> str | None:
    for column in schema.all_columns():
        for key, meaning in _REFUSED_OF_COLUMNS.items():
            if column.metadata.get(key) not in (None, ""):
                return f"its column {column.name} has {meaning} ({key}), which is not supported"
    for column in schema.columns:
        kind = _unsupported(column.kind)
        if kind is not None:
            return f"its column {column.name} has the type {kind}, which is not supported"
    if not schema.data:
        return "it has no column beside its partition columns, which is not supported"
    return next(filter(None, map(_refused_partition, schema.partitions)), None)


def _refused_partition(column: Column) -> str | None:
    if isinstance(column.kind, str) and can_partition(column.kind):
        return None
    return f"it is partitioned by {column.name}, and partitions by its type are not supported"


def _unsupported(kind: Kind) -> str | None:
    """Return the first primitive type in a type that data files of ours cannot have."""
    if isinstance(kind, str):
        return None if _PRIMITIVE.fullmatch(kind) else kind
    if isinstance(kind, Struct):
        return next(filter(None, (_unsupported(field.kind) for field in kind.fields)), None)
    if isinstance(kind, Array):
        return _unsupported(kind.element)
    return _unsupported(kind.key) or _unsupported(kind.value) if isinstance(kind, Map) else None


# Refusal of tables that are out of scope, with the way out.


def open_in_scope(storage: Storage) -> State:
    """Return the newest state of a table in scope. Raises TableRefused or LakeUnavailable."""
    try:
        state = Log(storage).load()
    except NoTable as error:
        raise TableRefused(str(error)) from error
    refuse_out_of_scope(state, storage.uri)
    return state


def refuse_out_of_scope(state: State, uri: str) -> None:
    """Raise TableRefused with the first feature of the table that an append would not respect."""
    reason = out_of_scope(state.protocol, state.metadata)
    if reason is not None:
        raise TableRefused(
            f"{uri}: {reason}. Give the stream an append table without that (a new one, or this one altered)"
        )
