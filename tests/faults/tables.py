"""Tables for tests of failures and for benchmarks, by format, and the judgement of what is in them."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from sluicegate.failpoints.names import Failpoint
from tests.faults import delta_tables, iceberg_tables, paimon_tables
from tests.faults.tallies import Inexact, Tally
from tests.integration.job import SCHEMA

__all__ = ["FORMATS", "Inexact", "Kind", "Tally", "create_table", "head", "kind_of", "rows_told", "tally"]


class Kind(Protocol):
    """Tables of one format. A table is the folder of its files on a local disk."""

    @property
    def LACKING(self) -> frozenset[Failpoint]: ...

    @property
    def SPARK_TIME(self) -> str: ...

    def create_table(self, folder: Path, name: str, schema: pa.Schema, **options: str) -> Path: ...

    def owns(self, table: Path) -> bool: ...

    def options(self, table: Path) -> Mapping[str, str]: ...

    def append(self, table: Path, ids: Collection[int]) -> None: ...

    def tally(self, table: Path, expected: Collection[int], user: str) -> Tally: ...

    def rows(self, table: Path) -> list[dict[str, Any]]: ...

    def schemas(self, table: Path) -> int: ...

    def head(self, table: Path) -> int: ...

    def manifests(self, table: Path) -> int: ...

    def rows_told(self, table: Path) -> int: ...


FORMATS: Final[Mapping[str, Kind]] = {
    "paimon": paimon_tables,
    "delta": delta_tables,
    "iceberg": iceberg_tables,
}
"""By format. One line more is one format more for campaigns and benchmarks."""


def kind_of(table: Path) -> Kind:
    """Return the kind of a table that was made here."""
    return next(kind for kind in FORMATS.values() if kind.owns(table))


def create_table(
    warehouse: Path, name: str, lake: str = "paimon", schema: pa.Schema = SCHEMA, **options: str
) -> Path:
    """Make an append table of a format that is partitioned by `origin`; returns its folder."""
    return FORMATS[lake].create_table(warehouse, name, schema, **options)


def tally(table: Path, expected: Collection[int], user: str, *, compacted: bool = False) -> Tally:
    """Read the table with a reader that shares no code with any writer. Raises TableDamaged."""
    if compacted:
        return paimon_tables.tally(table, expected, user, compacted=True)
    return kind_of(table).tally(table, expected, user)


def head(table: Path) -> int:
    """The number of the newest snapshot, 0 if there is none."""
    return kind_of(table).head(table)


def rows_told(table: Path) -> int:
    """How many rows the newest snapshot says that the table has."""
    return kind_of(table).rows_told(table)
