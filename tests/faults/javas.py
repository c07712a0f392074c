"""The Java libraries of the formats as second judges, which read the tables from their store itself."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sluicegate.cli.local.jars import find_java
from tests.faults import iceberg_tables
from tests.faults.stores import location
from tests.faults.tables import Inexact, tally
from tests.iceberg_java.java import IcebergJava
from tests.spark_judge.judge import SparkJudge
from tools.bench.jvm import LIBRARIES

_PROGRAM: Final = Path(__file__).with_name("Ids.java")
_OPTIONS: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")


def read_by_java(lake: str, tables: Sequence[Path], folder: Path) -> int:
    """Read tables with the Java library of their format, and return the number of their rows.

    Paimon's and Iceberg's own libraries read, and Delta's in Spark. Raises Inexact for a table of which the
    reader without a library finds other rows.
    """
    found = _READERS[lake](tables, folder)
    for table, ids in zip(tables, found, strict=True):
        judged = tally(table, ids, "")
        if not judged.exact or judged.rows != len(ids):
            raise Inexact(f"{table}: Java reads {len(ids)} rows; the other reader: {judged}")
    return sum(map(len, found))


def _paimon(tables: Sequence[Path], folder: Path) -> list[list[int]]:
    class_path = ":".join(map(str, LIBRARIES["paimon"].jars()))
    command = [str(find_java().executable), *_OPTIONS, "-cp", class_path, str(_PROGRAM)]
    done = subprocess.run(
        [*command, *map(location, tables)], capture_output=True, text=True, check=False, cwd=folder
    )
    if done.returncode:
        raise RuntimeError(f"the library failed: {done.stderr[-3000:]}")
    found: list[list[int]] = [[] for _ in tables]
    for line in done.stdout.splitlines():
        number, value = map(int, line.split("\t"))
        found[number].append(value)
    return found


def _iceberg(tables: Sequence[Path], folder: Path) -> list[list[int]]:
    with IcebergJava() as java:
        rows = [java.read(iceberg_tables.metadata_location(table), ["id"]) for table in tables]
    return [[int(value) for (value,) in each if value is not None] for each in rows]


def _delta(tables: Sequence[Path], folder: Path) -> list[list[int]]:
    with SparkJudge(folder) as spark:
        rows = [spark.sql(f"FROM delta.`{location(table)}` SELECT id") for table in tables]
    return [[value for (value,) in each] for each in rows]


_READERS: Final = {"paimon": _paimon, "iceberg": _iceberg, "delta": _delta}
