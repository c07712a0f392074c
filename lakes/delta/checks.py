"""Checks of an event by a committer, against the schema of its files and the newest one of the table."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from sluicegate.events.models import CURRENT_SCHEMA, FilesWritten
from sluicegate.lakes.committer import prepare_describer, refuse_other_format, refuse_specs, with_metadata
from sluicegate.lakes.delta.entries import FORMAT, FORMAT_VERSION, Entries, Examiner
from sluicegate.lakes.delta.features import TYPE_WIDENING, supports
from sluicegate.lakes.delta.log import (
    Actions,
    Gone,
    Log,
    Malformed,
    Metadata,
    Protocol,
    State,
    read_checkpoint,
    read_metadata,
)
from sluicegate.lakes.delta.schema import MODE, TableSchema, problem_of_older, read_schema
from sluicegate.lakes.port import BadFiles, LakeUnavailable, Premises

if TYPE_CHECKING:
    from sluicegate.lakes.delta.plain_files import Describer


# Earlier schemas of a table are those of its log, and those of the table that it was made like. A table that
# is made for a rebuild has no versions of earlier schemas. Files of them are committed to it, so version 0
# names them: in its `commitInfo`, which may have any content and which no reader needs.

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


def schemas_field(log: Log, newest: State) -> dict[str, str]:
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


class UnknownSchema(BadFiles):
    """The log of the table has no such schema."""


class EventChecks:
    """Examiners of the schemas whose files a table takes, until its schema changes."""

    def __init__(self, log: Log, location: str) -> None:
        self._log = log
        self._location = location
        self._metadata: Metadata | None = None
        self._protocol: Protocol | None = None
        self._schema: TableSchema | None = None
        """The table's at the last check."""
        self._widening = False
        self._examiners: dict[int, Examiner] = {}
        """By schema id; only of schemas whose files the table takes."""
        self._describers: dict[int, Describer] = {}
        """By schema id, as the examiners."""
        self._older: dict[int, TableSchema] = {}
        self._searched = -1
        """Version down from which the log was searched for older schemas."""

    def premises(self, state: State) -> Premises:
        """Return the part of the table's state that checks depend on. Raises LakeUnavailable."""
        self._follow(state)
        schema = self._schema or _schema_of(state.metadata)
        return Premises(state.metadata.id, f"{schema.id}, {self._widening}")

    def examine(self, state: State, event: FilesWritten) -> Entries:
        """Check all that an event itself can prove, with the footers of files without metadata.

        Raises BadFiles, LakeUnavailable.
        """
        self._follow(state)
        refuse_other_format(event, FORMAT)
        refuse_specs(event, FORMAT)
        examiner = self._examiner(state, event.schema_id)
        event = with_metadata(
            event,
            FORMAT,
            FORMAT_VERSION,
            self._location,
            self._log.storage,
            lambda: self._describer(state, event.schema_id).describe,
        )
        return examiner.examine(event)

    def _describer(self, state: State, schema_id: int) -> "Describer":
        from sluicegate.lakes.delta.plain_files import Describer

        if schema_id not in self._describers:
            schema = self._taken(state, schema_id)
            self._describers[schema_id] = prepare_describer(lambda: Describer(state, schema))
        return self._describers[schema_id]

    def require(self, state: State, schema_id: int) -> None:
        """Check that the table takes files of a schema. Raises BadFiles, LakeUnavailable."""
        self._follow(state)
        self._taken(state, schema_id)

    def _follow(self, state: State) -> None:
        """Drop the examiners if the schema has changed, or the types that its columns may become."""
        if state.metadata is self._metadata and state.protocol is self._protocol:
            return
        self._metadata, self._protocol = state.metadata, state.protocol
        schema, widening = _schema_of(state.metadata), supports(state.protocol, TYPE_WIDENING)
        if (schema, widening) == (self._schema, self._widening):
            return
        if self._schema is not None:
            self._older[self._schema.id] = self._schema
        self._schema, self._widening = schema, widening
        self._examiners.clear()
        self._describers.clear()

    def _examiner(self, state: State, schema_id: int) -> Examiner:
        """Return the examiner of a schema whose files the table takes. Raises BadFiles for any other."""
        if schema_id not in self._examiners:
            self._examiners[schema_id] = Examiner(self._taken(state, schema_id), self._location)
        return self._examiners[schema_id]

    def _taken(self, state: State, schema_id: int) -> TableSchema:
        schema = self._schema
        if schema is None or schema_id in (CURRENT_SCHEMA, schema.id):
            return schema or _schema_of(state.metadata)
        if schema_id not in self._older:
            self._search(state)
        older = self._older.get(schema_id)
        if older is None:
            raise UnknownSchema(f"the files were written with schema {schema_id}, which the table lacks")
        problem = problem_of_older(older, schema, widening=self._widening)
        if problem is not None:
            raise BadFiles(f"the files were written with the older schema {schema_id}, and {problem}")
        return older

    def _search(self, state: State) -> None:
        """Read all schemas that the log still has, once. Raises LakeUnavailable."""
        found = schemas_of(self._log, self._searched, state.version)
        self._older |= {schema.id: schema for schema, _ in found}
        self._searched = state.version


def _schema_of(metadata: Metadata) -> TableSchema:
    try:
        return read_schema(metadata)
    except Malformed as error:
        raise LakeUnavailable(f"the schema of the table cannot be read: {error}. Correct it") from error
