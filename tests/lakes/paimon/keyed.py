"""A table of Paimon with keys, and a model of what its readers see."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.sequence import Upserts, checkpoint_numbers
from tests.contracts.lakes.harness import written
from tests.contracts.lakes.paimon_lake import PaimonLake

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("value", pa.string()),
        ("at", pa.int64()),
        ("op", pa.string()),
    ]
)
Row = tuple[Any, ...]
"""Key, value, and perhaps order and kind."""


class KeyedLake(PaimonLake):
    def __init__(
        self,
        folder: Path,
        options: Mapping[str, str] | None = None,
        schema: pa.Schema = SCHEMA,
        primary_keys: Sequence[str] = ("id",),
        partition_keys: Sequence[str] = (),
        *,
        kinds: bool | None = True,
    ) -> None:
        """Make the table. `kinds` False: it lacks the column `op` of its rows. None: they lack it, too."""
        given = {"bucket": "2", **({"rowkind.field": "op"} if kinds else {}), **(options or {})}
        of_table = schema.remove(schema.get_field_index("op")) if kinds is False else schema
        super().__init__(folder, of_table, partition_keys, given, primary_keys=primary_keys)
        self.schema = schema

    @property
    def ref(self) -> Any:
        return ADAPTER.parse_table(self.location)

    def rows_of(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Rows with the kind +I unless they have one."""
        full = [(*row, *(None, 0, "+I")[len(row) - 1 :]) for row in rows]
        columns = dict(zip(self.schema.names, zip(*full, strict=True), strict=True)) if full else {}
        return pa.RecordBatch.from_pydict(columns or {name: [] for name in self.schema.names}, self.schema)

    def upsert(
        self,
        *batches: Sequence[Row] | pa.RecordBatch,
        place: int = 1,
        floor: int = 0,
        part: tuple[int, int] = (0, 1),
        kind_column: str | None = None,
        **options: Any,
    ) -> FilesWritten:
        """Write rows as one task of the checkpoint at a place of an incarnation."""
        upserts = Upserts(kind_column, checkpoint_numbers(floor, place).part(*part))
        rows = [each if isinstance(each, pa.RecordBatch) else self.rows_of(each) for each in batches]
        return written(ADAPTER, self.ref, *rows, upserts=upserts, **options)

    def state(self) -> dict[Any, Any]:
        """The value of each key, as pypaimon reads it."""
        found = self.read()
        if found is None:
            return {}
        return dict(sorted(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True)))
