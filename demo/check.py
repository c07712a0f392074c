"""Comparison of a table with its source: every row exactly once, and unchanged."""

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sluicegate.demo.data import PARTITION, ROW_ID

_GROUP: Final = (PARTITION, "origin")

Sums = dict[tuple[str, str], tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the comparison of a table with its source; all counts are of rows."""

    rows: int
    expected: int
    missing: int
    """Rows of the source that are not in the table."""
    duplicated: int
    """Rows of the table after the first one of each row of the source."""
    foreign: int
    """Rows of the table whose id is not in the source."""
    altered: int
    """Rows of the table with a column that differs from the source."""
    sums_compared: int
    """Number of pairs of month and origin whose sums were compared."""
    sums_wrong: list[str] = field(default_factory=list)
    """The pairs of month and origin whose count, distance or checksum differs."""

    @property
    def exact(self) -> bool:
        """True if the table is exactly the source."""
        flaws = (self.missing, self.duplicated, self.foreign, self.altered, len(self.sums_wrong))
        return self.rows == self.expected and not any(flaws)


def compare(table: pa.Table, source: pa.Table) -> Verdict:
    """Compare a table with its source, independent of the order of rows and columns."""
    if table.num_columns == 0:
        table = source.slice(0, 0)
    ids = table.column(ROW_ID)
    places = pc.index_in(ids, value_set=source.column(ROW_ID).combine_chunks())
    found = len(places.drop_null().unique())
    return Verdict(
        rows=table.num_rows,
        expected=source.num_rows,
        missing=source.num_rows - found,
        duplicated=len(places) - places.null_count - found,
        foreign=places.null_count,
        altered=_altered(table, source, places),
        sums_compared=len(sums(source)),
        sums_wrong=_wrong(sums(table), sums(source)),
    )


def sums(table: pa.Table) -> Sums:
    """Return the count, the sum of distances and the checksum of each month and origin."""
    ids, distance = table.column(ROW_ID), table.column("distance").cast(pa.int64())
    summed = pa.table(
        {
            PARTITION: table.column(PARTITION),
            "origin": table.column("origin"),
            "distance": distance,
            "checksum": pc.multiply(ids, distance),
        }
    )
    wanted = [("distance", "count"), ("distance", "sum"), ("checksum", "sum")]
    grouped = summed.group_by(list(_GROUP)).aggregate(wanted)
    columns = [grouped.column(name).to_pylist() for name in (*_GROUP, *map("_".join, wanted))]
    return {(row[0], row[1]): (row[2], row[3], row[4]) for row in zip(*columns, strict=True)}


def _altered(table: pa.Table, source: pa.Table, places: pa.ChunkedArray) -> int:
    known = table.filter(pc.is_valid(places))
    original = source.take(places.drop_null())
    if set(table.column_names) != set(source.column_names):
        return int(known.num_rows)
    differs: pa.ChunkedArray | None = None
    for name in source.column_names:
        theirs, ours = known.column(name).cast(original.column(name).type), original.column(name)
        both_null = pc.and_(pc.is_null(theirs), pc.is_null(ours))
        same = pc.or_(pc.fill_null(pc.equal(theirs, ours), False), both_null)
        differs = pc.invert(same) if differs is None else pc.or_(differs, pc.invert(same))
    return int(pc.sum(differs).as_py() or 0)


def _wrong(found: Sums, expected: Sums) -> list[str]:
    return [
        f"{month} {origin}"
        for month, origin in sorted({*found, *expected})
        if found.get((month, origin)) != expected.get((month, origin))
    ]
