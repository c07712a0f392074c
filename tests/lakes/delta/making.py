"""Delta tables made by hand, with features that no library here writes."""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.contracts.lakes.delta_lake import DeltaLake

Fields = Mapping[str, Any]


def column(name: str, kind: Any = "long", *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    """Return a column of a schema; `_` in the names of its metadata stands for a dot."""
    said = {key.replace("_", "."): value for key, value in metadata.items()}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": said}


def mapped(name: str, number: int, kind: Any = "long", *, nullable: bool = True) -> dict[str, Any]:
    """Return a column of a table with column mapping."""
    said = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": said}


ID = (column("id"),)


def protocol(
    writer_features: Sequence[str] = (), reader_features: Sequence[str] = (), reader: int = 1, writer: int = 2
) -> Fields:
    """Return a protocol action: with features, or with plain versions."""
    if not writer_features:
        return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer}}
    fields: dict[str, Any] = {
        "minReaderVersion": 3 if reader_features else 1,
        "minWriterVersion": 7,
        "writerFeatures": list(writer_features),
    }
    return {"protocol": {**fields, **({"readerFeatures": list(reader_features)} if reader_features else {})}}


def metadata(
    columns: Iterable[Fields] = ID,
    partitions: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    table: str = "",
) -> Fields:
    """Return a metaData action."""
    return {
        "metaData": {
            "id": table or str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(columns)}),
            "partitionColumns": list(partitions),
            "configuration": dict(properties or {}),
            "createdTime": 1,
        }
    }


def info(**fields: Any) -> Fields:
    """Return a commitInfo action."""
    return {"commitInfo": {"timestamp": 1, "operation": "TEST", **fields}}


def put(root: Path, version: int, *actions: Fields | str) -> None:
    """Write a version of a log."""
    log = root / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    lines = [each if isinstance(each, str) else json.dumps(each) for each in actions]
    (log / f"{version:020d}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")


class HandMade(DeltaLake):
    """A table whose first version has these actions."""

    def __init__(self, folder: Path, *actions: Fields) -> None:
        self._actions = actions
        super().__init__(folder)

    def _create(self) -> None:
        put(self.root, 0, info(inCommitTimestamp=1), *self._actions)

    def put(self, *actions: Fields | str) -> None:
        """Write the next version, as another product does."""
        put(self.root, self.versions()[-1] + 1, info(), *actions)
