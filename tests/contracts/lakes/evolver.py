"""A process that adds a column to a table while others do the same; see test_evolution.

Usage: evolver.py FORMAT LOCATION OPTIONS ID, with the options in JSON. It reads the table's columns, says
"ready", and waits for a line. Then it goes on to add the column `note`, writes one row, and prints the event.
"""

import json
import os
import sys
from collections.abc import Sequence

import pyarrow as pa

from sluicegate.events.models import FilesWritten
from sluicegate.failpoints.points import arm_from
from sluicegate.lakes.capabilities import EvolvesSchema, TableColumns, evolving
from sluicegate.lakes.new_columns import evolve
from sluicegate.lakes.port import TableRef
from sluicegate.lakes.registry import adapter


class Waiting:
    """An adapter that stands still between the question and the change, the first time."""

    def __init__(self, inner: EvolvesSchema) -> None:
        self.name, self.format_version, self.port_version = (
            inner.name,
            inner.format_version,
            inner.port_version,
        )
        self.parse_table, self.open_writer = inner.parse_table, inner.open_writer
        self.open_committer, self.open_maintenance = inner.open_committer, inner.open_maintenance
        self._inner = inner
        self._waited = False

    def read_columns(self, table: TableRef) -> TableColumns:
        found = self._inner.read_columns(table)
        if not self._waited:
            self._waited = True
            print("ready", flush=True)
            sys.stdin.readline()
        return found

    def add_columns(self, table: TableRef, columns: Sequence[pa.Field], seen: TableColumns) -> bool:
        return self._inner.add_columns(table, columns, seen)


def main(name: str, location: str, options: str, number: str) -> None:
    arm_from(os.environ)
    lake = adapter(name)
    table = lake.parse_table(location, json.loads(options))
    batch = pa.record_batch({"id": pa.array([int(number)], pa.int64()), "note": [f"row {number}"]})
    evolve(Waiting(evolving(lake)), table, batch.schema)
    writer = lake.open_writer(table, None)
    writer.write(batch)
    event = FilesWritten(
        format=lake.name,
        format_version=lake.format_version,
        location=writer.location,
        schema_id=writer.schema_id,
        table_identity=writer.table_identity,
        schema_digest=writer.schema_digest,
        spec_id=writer.spec_id,
        files=tuple(writer.finish()),
    )
    print(event.model_dump_json())


if __name__ == "__main__":
    main(*sys.argv[1:])
