"""The group in memory under the contract."""

from collections.abc import Mapping, Sequence
from typing import Any

from sluicegate.lakes.group import GroupTable, Member, Unchanged
from sluicegate.lakes.port import LakeError
from tests.contracts.groups.harness import ANCHOR, FURTHER, AnyGroup, Around
from tests.contracts.lakes.harness import USER
from tests.contracts.lakes.memory_lake import MemoryLake
from tests.doubles.memory_group import MemoryCatalog, MemoryPart, MemoryState
from tests.doubles.memory_lake import MemoryTable, by_one


class MemoryNamed(MemoryLake):
    """A table of a catalog."""

    def __init__(self, catalog: MemoryCatalog, name: str) -> None:
        super().__init__(by_one, "property", name)
        self._catalog = catalog
        catalog.tables[name] = self.table

    def drop(self) -> None:
        del self._catalog.tables[self.name]


class _Stepped:
    """Transactions at whose next deciding step something happens."""

    def __init__(self, inner: MemoryCatalog, around: Around) -> None:
        self._inner, self._around = inner, [around]

    def scope(self, state: MemoryState) -> str | None:
        return self._inner.scope(state)

    def load_all(
        self, tables: Sequence[GroupTable[MemoryState, MemoryPart]]
    ) -> list[MemoryState | LakeError]:
        return self._inner.load_all(tables)

    def commit_all(
        self,
        members: Sequence[Member[MemoryState, MemoryPart]],
        unchanged: Unchanged[MemoryState, MemoryPart] | None = None,
    ) -> bool:
        if not self._around:
            return self._inner.commit_all(members, unchanged)
        done: bool = self._around.pop()(lambda: self._inner.commit_all(members, unchanged))
        return done


class MemoryTables:
    def __init__(self) -> None:
        self.catalog = MemoryCatalog()
        self.lakes = {name: MemoryNamed(self.catalog, name) for name in (ANCHOR, *FURTHER)}

    def identifier(self, name: str) -> str:
        return name

    def group(self, user: str, anchor: str, wanted: Mapping[str, str]) -> AnyGroup:
        return self.catalog.group(anchor, user, {name: (each, ()) for name, each in wanted.items()})

    def at_step(self, group: AnyGroup, around: Around) -> None:
        stepped: Any = _Stepped(self.catalog, around)
        vars(group)["_transactions"] = stepped

    def vector(self, user: str = USER) -> dict[str, tuple[int, str | None]]:
        return {
            name: (each.decision, each.snapshot.identity if each.snapshot is not None else None)
            for name, each in (self.catalog.vector or {}).items()
        }

    def alias(self, name: str) -> str:
        self.catalog.tables["alias"] = self.catalog.tables[name]
        return "alias"

    def inside(self, name: str) -> str:
        self.catalog.tables["inner"] = MemoryTable(f"{name}/inner")
        return "inner"
