"""DuckDB with its reader of Iceberg tables, which shares no code with the product."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import duckdb_extension_avro
import duckdb_extension_httpfs
import duckdb_extension_iceberg

_PACKAGES = {
    "avro": duckdb_extension_avro,
    "httpfs": duckdb_extension_httpfs,
    "iceberg": duckdb_extension_iceberg,
}


@cache
def duck() -> duckdb.DuckDBPyConnection:
    """Return a connection with the extensions that packages bring, so nothing is downloaded."""
    connection = duckdb.connect()
    for name, package in _PACKAGES.items():
        (file,) = Path(package.__path__[0]).rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    return connection


def duck_on_s3(store: Mapping[str, str]) -> duckdb.DuckDBPyConnection:
    """Return the connection, with access to the S3 server of these variables."""
    connection = duck()
    connection.execute(
        "CREATE OR REPLACE SECRET store (TYPE s3, URL_STYLE 'path', USE_SSL false, "
        f"ENDPOINT '{urlsplit(store['AWS_ENDPOINT_URL']).netloc}', REGION '{store['AWS_REGION']}', "
        f"KEY_ID '{store['AWS_ACCESS_KEY_ID']}', SECRET '{store['AWS_SECRET_ACCESS_KEY']}')"
    )
    return connection
