"""Tables of each format that are partitioned by the text column `origin`, which has a month here."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from sluicegate.listeners.mark_done.options import MarkDoneOptions
from sluicegate.listeners.port import Stream
from tests.faults import tables
from tests.integration.job import SCHEMA
from tests.listeners.mark_done.driving import stream_of


@dataclass
class Monthly:
    """A table with months."""

    table: Path
    stream: Stream

    def write(self, *months: str) -> None:
        """Write a file for each month. Its commit does not matter here."""
        writer = self.stream.adapter.open_writer(self.stream.table, None)
        rows = {"id": list(range(len(months))), "origin": list(months), "at": [0] * len(months)}
        for batch in pa.table(rows).cast(SCHEMA).to_batches():
            writer.write(batch)
        list(writer.finish())

    def folder(self, month: str) -> Path:
        """Return the folder of a month's files."""
        (found,) = [each for each in self.table.rglob(f"origin={month}") if each.is_dir()]
        return found

    def success(self) -> list[str]:
        """Return the months that have a success file."""
        return sorted(each.parent.name.removeprefix("origin=") for each in self.table.rglob("_SUCCESS"))


@pytest.fixture(params=list(tables.FORMATS))
def monthly(request: pytest.FixtureRequest, tmp_path: Path) -> Monthly:
    format: str = request.param
    table = tables.create_table(tmp_path, "flights", format)
    return Monthly(table, stream_of(format, str(table), tables.kind_of(table).options(table)))


def by_month(*actions: str, **more: object) -> MarkDoneOptions:
    """Return settings for these tables."""
    return MarkDoneOptions.model_validate(
        {"timestamp_pattern": "$origin-01", "interval": "1 month", "actions": actions, **more}
    )
