"""Upkeep of tables in memory: history, file status, copies."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.history import TableHistory, read_history
from sluicegate.lakes.port import BadFiles, Fate, LakeUnavailable

if TYPE_CHECKING:
    from sluicegate.lakes.memory import MemoryTable


class MemoryCaretaker:
    """The caretaker of one of this process's tables, by its location."""

    def __init__(self, tables: "dict[str, MemoryTable]", location: str) -> None:
        self.uri = location
        self._tables = tables

    def history(self) -> TableHistory:
        table = self._table(self.uri)
        head = table.past(table.head.id) if table.head else None
        return read_history(table.identity, head, table.parent)

    def fates(self, paths: Sequence[str]) -> dict[str, Fate]:
        table = self._table(self.uri)
        referenced = table.referenced()
        return {path: _fate(path, table, referenced) for path in paths}

    def delete_unreferenced(self, path: str) -> Fate:
        fate = self.fates([path])[path]
        if fate is not Fate.UNREFERENCED:
            return fate
        del self._table(self.uri).data[path]
        return Fate.DELETED

    def create_like(self, source: str) -> None:
        if not any(table.location == self.uri for table in self._tables.values()):
            model = self._table(source)
            name = self.uri.removeprefix("memory://")
            self._tables[name] = type(model)(name, model.columns, rise=model.rise)

    def examine(self, event: FilesWritten) -> None:
        source = self._table(event.location)
        for file in event.files:
            if file.path not in source.data:
                raise BadFiles(f"the file {file.path} is not in {event.location}")

    def adopt(self, event: FilesWritten) -> FilesWritten:
        self.examine(event)
        source, table = self._table(event.location), self._table(self.uri)
        for file in event.files:
            table.data[file.path] = list(source.data[file.path])
        return event.model_copy(update={"location": self.uri})

    def _table(self, location: str) -> "MemoryTable":
        found = next((table for table in self._tables.values() if table.location == location), None)
        if found is None:
            raise LakeUnavailable(f"no table at {location!r}")
        return found


def _fate(path: str, table: "MemoryTable", referenced: set[str]) -> Fate:
    if path in referenced:
        return Fate.REFERENCED
    return Fate.UNREFERENCED if path in table.data else Fate.GONE
