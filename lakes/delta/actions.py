"""Actions of a Delta log, as far as commits need them.

They come from lines of JSON or from rows of a checkpoint. Both are input from outside, so all types are
checked.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final, TypeGuard

_SKIPPED: Final = (b'{"add":{', b'{"remove":{', b'{"cdc":{')
"""Beginnings of lines about files, which are most lines of a log."""
_READ: Final = (b'"protocol"', b'"metaData"', b'"txn"', b'"commitInfo"', b'"domainMetadata"')

WATERMARK: Final = "sluicegate.watermark"


class Malformed(ValueError):
    """The log has something that is no action of Delta; the text says what."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Versions and features that readers and writers of the table must know."""

    reader: int
    writer: int
    reader_features: frozenset[str]
    writer_features: frozenset[str]


@dataclass(frozen=True, slots=True)
class Metadata:
    """Identity, schema and properties of the table."""

    id: str
    schema: str
    """JSON, as written."""
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    provider: str
    """Format of the data files."""
    fields: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The whole action, as written."""


@dataclass(frozen=True, slots=True)
class Txn:
    """The newest transaction of an application."""

    version: int
    last_updated: int | None
    """Milliseconds since the Unix epoch, by the clock of the writer."""


@dataclass(slots=True)
class Actions:
    """The newest action of each kind in a version, or in a checkpoint."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: dict[str, Txn] = field(default_factory=dict)
    """By application id."""
    domains: dict[str, str | None] = field(default_factory=dict)
    """Configuration of each metadata domain; None: removed."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """The `commitInfo`, which may have any content."""

    @property
    def watermark(self) -> int | None:
        """The watermark that a commit of ours carries, in milliseconds since the Unix epoch."""
        found = self.info.get(WATERMARK)
        try:
            return int(found) if isinstance(found, str) else None
        except ValueError:
            return None

    def update(self, later: "Actions") -> None:
        """Add the actions of a later version."""
        self.protocol = later.protocol or self.protocol
        self.metadata = later.metadata or self.metadata
        self.txns |= later.txns
        self.domains |= later.domains

    def add(self, name: str, fields: Mapping[str, Any]) -> None:
        """Add an action; others than those of this class have no effect. Raises Malformed."""
        if name == "protocol":
            self.protocol = _protocol(fields)
        elif name == "metaData":
            self.metadata = read_metadata(fields)
        elif name == "txn":
            last_updated = fields.get("lastUpdated")
            self.txns[_text(fields, "appId")] = Txn(
                _whole(fields, "version"),
                None if last_updated is None else _whole(fields, "lastUpdated"),
            )
        elif name == "domainMetadata":
            removed = fields.get("removed") is True
            self.domains[_text(fields, "domain")] = None if removed else _text(fields, "configuration")
        elif name == "commitInfo":
            self.info = fields


def read_actions(raw: bytes) -> Actions:
    """Return the actions of a log file, without those about files. Raises Malformed."""
    found = Actions()
    # A version may have a million files, so its lines are not all made at once.
    for line in BytesIO(raw):
        if line.startswith(_SKIPPED) and not any(name in line for name in _READ):
            continue
        for name, fields in read_line(line):
            found.add(name, fields)
    return found


def read_line(line: bytes) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Return the actions of a line, each with its name; none for an empty line. Raises Malformed."""
    if not line.strip():
        return ()
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"a line is no JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Malformed("a line is no JSON object")
    return [(name, fields) for name, fields in parsed.items() if isinstance(fields, dict)]


def _protocol(fields: Mapping[str, Any]) -> Protocol:
    reader, writer = _whole(fields, "minReaderVersion"), _whole(fields, "minWriterVersion")
    return Protocol(
        reader,
        writer,
        frozenset(_texts(fields, "readerFeatures") if reader >= 3 else ()),
        frozenset(_texts(fields, "writerFeatures") if writer >= 7 else ()),
    )


def read_metadata(fields: Mapping[str, Any]) -> Metadata:
    """Return the metadata of an action `metaData`. Raises Malformed."""
    configuration = fields.get("configuration")
    if configuration is None:
        configuration = {}
    if not isinstance(configuration, dict):
        raise Malformed("the configuration of the table is no map")
    provider = fields.get("format")
    return Metadata(
        _text(fields, "id"),
        _text(fields, "schemaString"),
        tuple(_texts(fields, "partitionColumns")),
        {key: str(value) for key, value in configuration.items() if value is not None},
        str(provider.get("provider", "parquet")) if isinstance(provider, dict) else "parquet",
        fields,
    )


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise _wrong(value, key)
    return value


def _whole(fields: Mapping[str, Any], key: str) -> int:
    value = fields.get(key)
    if not is_whole(value):
        raise _wrong(value, key)
    return value


def _texts(fields: Mapping[str, Any], key: str) -> list[str]:
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _wrong(value, key)
    return value


def _wrong(value: Any, key: str) -> Malformed:
    return Malformed(f"{key} is missing or has the wrong type ({type(value).__name__})")


def is_whole(value: object) -> TypeGuard[int]:
    """Return True for an integer of 64 bits. JSON's true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
