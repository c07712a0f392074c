"""The tables of the demo, one kind for each format: made empty, described to the service, and read back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

DATABASE: Final = "demo"
NAME: Final = "flights"


@dataclass(frozen=True, slots=True)
class Commit:
    """Changes of one snapshot."""

    snapshot: int
    user: str
    identifier: int
    files: int
    rows: int


@dataclass(frozen=True, slots=True)
class Contents:
    """A table as of its newest snapshot."""

    rows: pa.Table
    files: int
    commits: tuple[Commit, ...]


class DemoTable(Protocol):
    """An append table that is partitioned by month."""

    format: str
    """Value of the setting `format`."""
    location: str
    """Value of the setting `table`."""
    options: Mapping[str, str]
    """Options of the format's adapter."""

    def read(self) -> Contents:
        """Read it with a reader that shares no code with any writer. Raises TableDamaged."""
        ...

    def count(self) -> int:
        """Count the rows with the reader of the format's own library."""
        ...


def create_table(table_format: str, folder: Path) -> DemoTable:
    """Create the table in a new folder: `paimon`, `iceberg` or `delta`."""
    module = import_module(f"sluicegate.cli.local.table_{table_format}")
    create: Callable[[Path], DemoTable] = module.create_table
    return create(folder)
