"""The in-memory format under the contract."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from sluicegate.events.models import FilesWritten, SnapshotRef
from sluicegate.lakes.port import LakeUnavailable, OutcomeUnknown, Publication
from tests.contracts.lakes.harness import USER, Fault, written
from tests.doubles.memory_lake import (
    FaultPoint,
    MarkerKind,
    MemoryAdapter,
    MemoryCommitter,
    MemoryMaintenance,
    by_one,
)


class MemoryLake:
    options = None

    def __init__(
        self, rise: Callable[[], int] = by_one, markers: MarkerKind = "none", name: str = "numbers"
    ) -> None:
        self.adapter = MemoryAdapter()
        self.name = name
        schema = pa.schema([("id", pa.int64())])
        self.table = self.adapter.create(name, rise=rise, markers=markers, schema=schema)
        self.location = self.table.location
        self.marked = markers != "none"

    def committer(self, user: str = USER, fault: Fault | None = None) -> MemoryCommitter:
        pending = [fault] if fault is not None else []

        def faults(point: FaultPoint) -> Publication | None:
            strikes = "publish.after" if pending == [Fault.LANDED] else "publish.before"
            if not pending or point != strikes:
                return None
            if pending.pop() is Fault.AWAY:
                raise LakeUnavailable("injected")
            return OutcomeUnknown("injected")

        return MemoryCommitter(self.table, user, faults)

    def maintenance(self, location: str | None = None) -> MemoryMaintenance:
        return self.adapter.open_maintenance(self.adapter.parse_table(location or self.location))

    def event(self, ids: Iterable[int]) -> FilesWritten:
        return self.write(pa.record_batch({"id": pa.array(list(ids), pa.int64())}))

    def write(self, *batches: pa.RecordBatch) -> FilesWritten:
        return written(self.adapter, self.adapter.parse_table(self.location), *batches)

    def ids(self) -> list[int]:
        batches = [batch for path in self.table.files for batch in self.table.data[path]]
        return sorted(number for batch in batches for number in batch.column("id").to_pylist())

    def rows(self) -> list[dict[str, Any]]:
        none = dict.fromkeys(self.table.columns or ())
        batches = [batch for path in self.table.files for batch in self.table.data[path]]
        rows = [none | row for batch in batches for row in batch.to_pylist()]
        return sorted(rows, key=lambda row: row["id"])

    def alter(self, name: str, kind: pa.DataType) -> None:
        assert self.table.schema is not None
        self.table.change(self.table.schema.append(pa.field(name, kind)))

    def schemas(self) -> int:
        return self.table.schema_id + 1

    def data_files(self) -> int:
        return len(self.table.data)

    def watermark(self) -> int | None:
        return self.table.head.watermark if self.table.head else None

    def foreign(self, ids: Sequence[int] = ()) -> None:
        event = self.event(ids)
        self.table.foreign_commit([file.path for file in event.files], len(ids))

    def impostor(self, decision: int, ids: Sequence[int]) -> None:
        event = self.event(ids)
        self.table.foreign_commit([file.path for file in event.files], len(ids), (USER, decision))

    def place(self, ref: SnapshotRef) -> int:
        return [each.ref for each in self.table.history].index(ref) + 1

    def lose(self, place: int) -> None:
        del self.table._visible[self.table.history[place - 1].id]

    def expire(self, keep: int) -> None:
        self.table.expire(keep)

    def expire_beside(self) -> None:
        self.table.expire_beside()

    def rollback(self, to: int) -> None:
        self.table.rollback(self.table.history[to - 1].id)

    def replace(self) -> None:
        self.table.replace()

    def drop(self) -> None:
        self.adapter.drop(self.name)
