"""DuckDB with its reader of Iceberg tables, which shares no code with the product."""

from functools import cache
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg

_PACKAGES = {"avro": duckdb_extension_avro, "iceberg": duckdb_extension_iceberg}


@cache
def duck() -> duckdb.DuckDBPyConnection:
    """Return a connection with the extensions that packages bring, so nothing is downloaded."""
    connection = duckdb.connect()
    for name, package in _PACKAGES.items():
        (file,) = Path(package.__path__[0]).rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    return connection
