"""Sizes of data files: each writer of ours beside Spark's own Parquet sink, for the same rows and codec.

    python -m tools.bench.file_sizes [--formats paimon,iceberg,delta] [--rows 336776] [--rounds 5] [--json]

The rows are the flights of the demo, in the order of time, in one task. They go into one file, and into a
file of each month. Spark writes with `compression` = zstd and its own level, 3. The files of ours have the
defaults of tables without properties. The rate is the median of the rounds. It stands beside the rate of
`pyarrow.parquet.write_table` with its own defaults for the codec zstd, for the same rows in one file.
"""

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sluicegate.cli.local.flights import EVENT_TIME, PARTITION, SCHEMA, TOTAL_ROWS, load_flights
from sluicegate.lakes.registry import adapter
from tools.bench.common import machine, report

BATCH: Final = 10_000
"""Rows of a batch, as Spark gives them to a writer."""
LAYOUTS: Final[Mapping[str, tuple[str, ...]]] = {"one file": (), "by month": (PARTITION,)}


def make_table(lake: str, folder: Path, partitions: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Make a table without properties; return its location, and the options of its adapter."""
    if lake == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        uri = f"sqlite:///{folder / 'catalog.db'}"
        catalog = SqlCatalog("default", uri=uri, warehouse=folder.as_uri())
        catalog.create_namespace("db")
        made = catalog.create_table("db.t", SCHEMA, location=(folder / "db" / "t").as_uri())
        with made.update_spec() as update:
            for name in partitions:
                update.add_identity(name)
        catalog.close()
        options = {"type": "sql", "uri": uri, "catalog": "default", "identifier": "db.t"}
        return str(folder / "db" / "t"), options
    if lake == "delta":
        from deltalake import DeltaTable

        DeltaTable.create(str(folder / "t"), SCHEMA, partition_by=list(partitions))
        return str(folder / "t"), {}
    from pypaimon import CatalogFactory, Schema

    catalog = CatalogFactory.create({"warehouse": str(folder)})
    catalog.create_database("db", True)
    schema = Schema.from_pyarrow_schema(SCHEMA, partition_keys=list(partitions), options={"bucket": "-1"})
    catalog.create_table("db.t", schema, False)
    return str(folder / "db.db" / "t"), {}


def write(lake: str, rows: pa.Table, partitions: tuple[str, ...]) -> tuple[int, int, float]:
    """Write the rows once, into a new table; return bytes, files and seconds."""
    with tempfile.TemporaryDirectory() as name:
        location, options = make_table(lake, Path(name), partitions)
        kind = adapter(lake)
        writer = kind.open_writer(kind.parse_table(location, options), EVENT_TIME, "0" * 32)
        begun = time.perf_counter()
        for batch in rows.to_batches(max_chunksize=BATCH):
            writer.write(batch)
        infos = list(writer.finish())
        seconds = time.perf_counter() - begun
        if sum(info.rows for info in infos) != rows.num_rows:
            raise RuntimeError(f"{lake}: the files have other numbers of rows than were written")
        return sum(info.size for info in infos), len(infos), seconds


def spark_sizes(rows: pa.Table) -> dict[str, int]:
    """Write the rows with Spark's Parquet sink; return the bytes of each layout."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(rows, folder / "rows.parquet")
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.session.timeZone", "UTC")
        spark = builder.config("spark.sql.files.maxPartitionBytes", "1g").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        frame = spark.read.parquet(str(folder / "rows.parquet")).coalesce(1)
        found = {}
        for layout, partitions in LAYOUTS.items():
            out = frame.write.option("compression", "zstd").partitionBy(*partitions)
            out.parquet(str(folder / "out"))
            found[layout] = sum(path.stat().st_size for path in (folder / "out").rglob("*.parquet"))
            shutil.rmtree(folder / "out")
        spark.stop()
        return found


def bare(rows: pa.Table) -> float:
    """Seconds of pyarrow alone."""
    with tempfile.TemporaryDirectory() as name:
        begun = time.perf_counter()
        pq.write_table(rows, Path(name) / "t.parquet", compression="zstd")
        return time.perf_counter() - begun


def measure(lake: str, rows: pa.Table, sparks: Mapping[str, int], rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of each layout of one format."""
    for layout, partitions in LAYOUTS.items():
        # In turns, so that a slow phase of the machine meets both. The first of each loads the libraries.
        pairs = [(write(lake, rows, partitions), bare(rows)) for _ in range(rounds + 1)]
        (size, files, _), _ = pairs[0]
        ours, alone = (
            median(each) for each in zip(*((one[2], other) for one, other in pairs[1:]), strict=True)
        )
        yield {
            "format": lake,
            "layout": layout,
            "rows": rows.num_rows,
            "files": files,
            "bytes": size,
            "spark_bytes": sparks[layout],
            "ratio": round(size / sparks[layout], 3),
            "rows_per_s": round(rows.num_rows / ours),
            "pyarrow_rows_per_s": round(rows.num_rows / alone),
            "rounds": rounds,
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", default="paimon,iceberg,delta")
    parser.add_argument("--rows", type=int, default=TOTAL_ROWS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rows = load_flights(arguments.rows)
    before = machine()
    sparks = spark_sizes(rows)
    for lake in arguments.formats.split(","):
        for found in measure(lake, rows, sparks, arguments.rounds):
            report({**found, "before": before, "after": machine()}, as_json=arguments.json)


if __name__ == "__main__":
    main()
