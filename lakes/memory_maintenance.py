"""Upkeep of tables in memory: history, file status, copies."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.history import TableHistory, read_history
from sluicegate.lakes.port import BadFiles, FileStatus, LakeUnavailable, TableRef

if TYPE_CHECKING:
    from sluicegate.lakes.memory_table import MemoryTable


class MemoryMaintenance:
    """The maintenance of one of this process's tables, by its location."""

    def __init__(self, tables: "dict[str, MemoryTable]", location: str) -> None:
        self.location = location
        self._tables = tables

    def history(self) -> TableHistory:
        table = self._table(self.location)
        return read_history(table.identity, table.newest, table.parent)

    def file_status(self, paths: Sequence[str]) -> dict[str, FileStatus]:
        table = self._table(self.location)
        referenced = table.referenced()
        return {path: _status_of(path, table, referenced) for path in paths}

    def delete_unreferenced(self, path: str) -> FileStatus:
        status = self.file_status([path])[path]
        if status is not FileStatus.UNREFERENCED:
            return status
        del self._table(self.location).data[path]
        return FileStatus.DELETED

    def create_like(self, source: TableRef) -> None:
        if not any(table.location == self.location for table in self._tables.values()):
            model = self._table(source.location)
            name = self.location.removeprefix("memory://")
            self._tables[name] = type(model)(
                name, model.columns, rise=model.rise, markers=model.markers, schema=model.schema
            )

    def examine(self, event: FilesWritten, *, lost: bool = False) -> None:
        source = self._table(event.location)
        if lost and event.schema_id != self._table(self.location).schema_id:
            raise BadFiles(f"the files were written with schema {event.schema_id}, which is another one here")
        for file in event.files:
            if file.path not in source.data:
                raise BadFiles(f"the file {file.path} is not in {event.location}")

    def adopt(self, event: FilesWritten, *, lost: bool = False) -> FilesWritten:
        self.examine(event, lost=lost)
        source, table = self._table(event.location), self._table(self.location)
        for file in event.files:
            table.data[file.path] = list(source.data[file.path])
        return event.model_copy(update={"location": self.location})

    def _table(self, location: str) -> "MemoryTable":
        found = next((table for table in self._tables.values() if table.location == location), None)
        if found is None:
            raise LakeUnavailable(f"no table at {location!r}")
        return found


def _status_of(path: str, table: "MemoryTable", referenced: set[str]) -> FileStatus:
    if path in referenced:
        return FileStatus.REFERENCED
    return FileStatus.UNREFERENCED if path in table.data else FileStatus.GONE
