"""Examinations of events by a committer: against the schema of their files, and the newest one."""

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.checked import Premises
from sluicegate.lakes.delta.actions import Malformed, Metadata, Protocol
from sluicegate.lakes.delta.earlier import schemas_of
from sluicegate.lakes.delta.entries import Entries, Examiner
from sluicegate.lakes.delta.evolution import problem_of_older
from sluicegate.lakes.delta.features import TYPE_WIDENING, supports
from sluicegate.lakes.delta.log import Log, State
from sluicegate.lakes.delta.schema import TableSchema, read_schema
from sluicegate.lakes.port import BadFiles, LakeUnavailable


class UnknownSchema(BadFiles):
    """The log of the table has no such schema."""


class Examinations:
    """Examiners of the schemas whose files a table takes, until its schema changes."""

    def __init__(self, log: Log, location: str) -> None:
        self._log = log
        self._location = location
        self._metadata: Metadata | None = None
        self._protocol: Protocol | None = None
        self._schema: TableSchema | None = None
        """The table's at the last examination."""
        self._widening = False
        self._examiners: dict[int, Examiner] = {}
        """By schema id; only of schemas whose files the table takes."""
        self._older: dict[int, TableSchema] = {}
        self._searched = -1
        """Version down from which the log was searched for older schemas."""

    def premises(self, state: State) -> Premises:
        """Return the part of the table's state that examinations depend on. Raises LakeUnavailable."""
        self._follow(state)
        schema = self._schema or _schema_of(state.metadata)
        return Premises(state.metadata.id, f"{schema.id}, {self._widening}")

    def examine(self, state: State, event: FilesWritten) -> Entries:
        """Check all that an event itself can prove. Raises BadFiles, LakeUnavailable."""
        self._follow(state)
        return self._examiner(state, event.schema_id).examine(event)

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

    def _examiner(self, state: State, schema_id: int) -> Examiner:
        """Return the examiner of a schema whose files the table takes. Raises BadFiles for any other."""
        if schema_id not in self._examiners:
            self._examiners[schema_id] = Examiner(self._taken(state, schema_id), self._location)
        return self._examiners[schema_id]

    def _taken(self, state: State, schema_id: int) -> TableSchema:
        schema = self._schema
        if schema is None or schema_id == schema.id:
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
