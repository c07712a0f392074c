"""Earlier schemas of a table: those of its log, and those of the table that it was made like.

A table that is made for a rebuild has no versions of earlier schemas. Files of them are committed to it, so
version 0 names them: in its `commitInfo`, which may have any content and which no reader needs.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sluicegate.lakes.delta.actions import Actions, Malformed, Metadata, read_metadata
from sluicegate.lakes.delta.checkpoints import Gone, read_checkpoint
from sluicegate.lakes.delta.log import Log, State
from sluicegate.lakes.delta.schema import MODE, TableSchema, read_schema

NOTED: Final = "sluicegate.schemas"


def schemas_of(log: Log, after: int, until: int) -> Iterator[tuple[TableSchema, Metadata]]:
    """Yield all schemas that the log has in versions `after` < version <= `until`. Raises LakeUnavailable.

    With `after` below 0, also those that only its checkpoints have. Schemas that cannot be read are left out.
    """
    for metadata in _metadata_of(log, after, until):
        try:
            yield read_schema(metadata), metadata
        except Malformed:
            continue


def note(log: Log, newest: State) -> dict[str, str]:
    """Return the field for version 0 of a table like this one; none if its schema has never changed.

    Raises LakeUnavailable.
    """
    found = {schema.id: metadata for schema, metadata in schemas_of(log, -1, newest.version)}
    said = [
        {
            "schemaString": metadata.schema,
            "partitionColumns": list(metadata.partition_columns),
            "configuration": {key: text for key, text in metadata.configuration.items() if key == MODE},
        }
        for metadata in found.values()
        if metadata.schema != newest.metadata.schema
    ]
    return {NOTED: json.dumps(said, separators=(",", ":"))} if said else {}


def _metadata_of(log: Log, after: int, until: int) -> Iterator[Metadata]:
    listing = log.listing()
    for number in listing.commits:
        version = log.version(number) if after < number <= until else None
        if version is not None:
            yield from _of_version(number, version.actions)
    if after < 0:
        for checkpoint in listing.checkpoints:
            try:
                metadata = read_checkpoint(log.storage, checkpoint).metadata
            except (Gone, Malformed):
                continue
            if metadata is not None:
                yield metadata


def _of_version(number: int, actions: Actions) -> Iterator[Metadata]:
    if number == 0:
        yield from _noted(actions.info)
    if actions.metadata is not None:
        yield actions.metadata


def _noted(info: Mapping[str, Any]) -> Iterator[Metadata]:
    """Yield the schemas that version 0 names. Anything else in their place is none."""
    try:
        for said in json.loads(info.get(NOTED, "[]")):
            yield read_metadata({**said, "id": ""})
    except (ValueError, TypeError, RecursionError, Malformed):
        return
