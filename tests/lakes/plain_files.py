"""Tables of each format, and data files that plain pyarrow writes, without any code of the product."""

import datetime
import hashlib
import json
import math
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Protocol

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, DoubleType, LongType, NestedField, StringType, TimestamptzType

from sluicegate.events.models import FileInfo, FilesWritten
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import Stream
from tests.contracts.lakes.iceberg_lake import IcebergLake
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.lakes.iceberg.reading import duck_rows
from tests.lakes.iceberg.reading import entries as iceberg_entries
from tests.lakes.paimon.reading import entries
from tests.lakes.values import FORMATS, duck_of_delta

_BOUNDS: Final = ("lower_bounds", "upper_bounds")
DAY: Final = datetime.datetime(2024, 5, 17, 9, 30, tzinfo=datetime.UTC)
COLUMNS: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("score", pa.float64()),
        ("region", pa.string()),
    ]
)
ROWS: Final = (
    (1, "one", Decimal("1.50"), DAY, 0.5, "EU"),
    (2, None, Decimal("-2.50"), DAY + datetime.timedelta(hours=2), math.nan, "EU"),
    (3, "ö" * 90, None, None, -1.0, "EU"),
)
ICEBERG: Final = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "amount", DecimalType(10, 2)),
    NestedField(4, "at", TimestamptzType()),
    NestedField(5, "score", DoubleType()),
    NestedField(6, "region", StringType()),
)


def rows(*some: Sequence[Any]) -> pa.Table:
    """Return rows of the table."""
    lists = zip(*(some or ROWS), strict=True)
    return pa.table(
        [pa.array(values, each.type) for values, each in zip(lists, COLUMNS, strict=True)], COLUMNS
    )


class Place(Protocol):
    """A table of a format, and the rules of its files that a foreign writer follows."""

    format: str
    schema_id: int
    spec_id: int
    identity: str
    """Of the table."""
    root: Path
    """Folder of the table."""
    folder: str
    """Folder of the files of the region EU, with a slash at its end."""
    lake: Any

    def columns(self, data: pa.Table) -> pa.Table:
        """Return rows as files have them."""
        ...

    def read(self, where: str) -> list[int]:
        """Return the ids of the rows of a filter, as a reader finds them that shares no code with us."""
        ...

    def bounded(self) -> set[str]:
        """Return the columns with bounds in the table's entries."""
        ...


def delta_schema_id(mode: str, partitions: Sequence[str], columns: Sequence[Any]) -> int:
    """Return the number of a schema as docs/writers/files.md defines it."""
    text = json.dumps([mode, partitions, columns], separators=(",", ":"))
    return int(hashlib.sha256(text.encode()).hexdigest()[:16], 16) >> 12


class PaimonPlace:
    format = "paimon"
    folder = "region=EU/bucket-0/"

    def __init__(self, root: Path) -> None:
        self.lake = PaimonLake(root, COLUMNS, ["region"])
        self.root = self.lake.root
        self.schema_id, self.spec_id = 0, 0
        self.identity = hashlib.sha256((self.root / "schema/schema-0").read_bytes()).hexdigest()[:32]

    def columns(self, data: pa.Table) -> pa.Table:
        return data

    def read(self, where: str) -> list[int]:
        found = self.lake.read()
        # Arrow's own filters take NaN for no number.
        connection = duckdb.connect()
        connection.register("found", found)
        connection.execute("CREATE OR REPLACE TEMP TABLE copied AS FROM found")
        selected = connection.table("copied").filter(where).project("id")
        return sorted(number for (number,) in selected.fetchall())

    def bounded(self) -> set[str]:
        listed = [entry["_FILE"]["_VALUE_STATS_COLS"] for entry in entries(self.root, 1)]
        return {name for names in listed for name in names}


class IcebergPlace:
    format = "iceberg"
    folder = "data/"

    def __init__(self, root: Path) -> None:
        spec = PartitionSpec(PartitionField(6, 1000, IdentityTransform(), "region"))
        self.lake = IcebergLake(root, schema=ICEBERG, spec=spec)
        self.root = self.lake.root
        self.schema_id, self.spec_id = 0, 0
        newest = max((self.root / "metadata").glob("*.metadata.json"))
        self.identity = json.loads(newest.read_text(encoding="utf-8"))["table-uuid"]

    def columns(self, data: pa.Table) -> pa.Table:
        fields = [each.with_metadata({"PARQUET:field_id": str(at)}) for at, each in enumerate(data.schema, 1)]
        return data.cast(pa.schema(fields))

    def read(self, where: str) -> list[int]:
        return [number for (number,) in duck_rows(self.lake, "id", where)]

    def bounded(self) -> set[str]:
        files = [entry["data_file"] for entry in iceberg_entries(self.lake).values()]
        found = {pair["key"] for file in files for name in _BOUNDS for pair in file[name]}
        return {ICEBERG.find_column_name(column) or "" for column in found}


class DeltaPlace:
    format = "delta"
    folder = "region=EU/"

    def __init__(self, root: Path) -> None:
        self.lake = DeltaLake(root, COLUMNS, ["region"])
        self.root = self.lake.root
        kinds = ("long", "string", "decimal(10,2)", "timestamp", "double", "string")
        described = [[name, None, True, kind] for name, kind in zip(COLUMNS.names, kinds, strict=True)]
        self.schema_id, self.spec_id = delta_schema_id("none", ["region"], described), 0
        first = (self.root / "_delta_log" / f"{0:020d}.json").read_text(encoding="utf-8")
        self.identity = next(
            json.loads(line)["metaData"]["id"] for line in first.splitlines() if '{"metaD' in line
        )

    def columns(self, data: pa.Table) -> pa.Table:
        return data.drop_columns(["region"])

    def read(self, where: str) -> list[int]:
        table = duck_of_delta().table_function("delta_scan", [str(self.root)])
        return sorted(number for (number,) in table.filter(where).project("id").fetchall())

    def bounded(self) -> set[str]:
        lines = (self.root / "_delta_log" / f"{1:020d}.json").read_text(encoding="utf-8").splitlines()
        stats = [json.loads(json.loads(line)["add"]["stats"]) for line in lines if '{"add"' in line]
        return {name for each in stats for part in ("minValues", "maxValues") for name in each[part]}


def place(lake: str, root: Path) -> Place:
    """Make a table of a format."""
    places: dict[str, Callable[[Path], Place]]
    places = dict(zip(FORMATS, (PaimonPlace, IcebergPlace, DeltaPlace), strict=True))
    return places[lake](root)


def write(table: Place, data: pa.Table, path: str | None = None, **options: Any) -> FileInfo:
    """Write a file as a program of another language does; return its neutral fields."""
    path = path or f"{table.folder}data-0-{uuid.uuid4().hex}.parquet"
    (table.root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.columns(data), table.root / path, store_schema=False, **options)
    size = (table.root / path).stat().st_size
    return FileInfo(path=path, size=size, rows=data.num_rows, partition={"region": "EU"})


def event(table: Place, *files: FileInfo, location: str = "") -> FilesWritten:
    """Return the event of files without metadata."""
    return FilesWritten(
        format=table.format,
        location=location or table.root.as_uri(),
        schema_id=table.schema_id,
        spec_id=table.spec_id,
        table_identity=table.identity,
        files=files,
    )


def commit(table: Place, *events: FilesWritten) -> None:
    """Check and publish events through the real committer."""
    Stream(table.lake).add(1, *events)
