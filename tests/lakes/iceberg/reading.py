"""Other products that read tables: DuckDB, and fastavro for single files."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro

from sluicegate.lakes.iceberg.metadata import MAIN
from tests.contracts.lakes.iceberg_lake import IcebergLake, local
from tests.iceberg_duck import duck, duck_on_s3


def duck_rows(lake: IcebergLake, columns: str, where: str = "true", *values: Any) -> list[tuple[Any, ...]]:
    """Return rows of the table as DuckDB reads them. The texts are SQL of the tests."""
    location = lake.metadata.location
    if lake.objects is not None:
        connection = duck_on_s3(lake.objects.server.environment())
    else:
        connection, location = duck(), str(local(location))
    query = f"SELECT {columns} FROM iceberg_scan('{location}') WHERE {where} ORDER BY ALL"  # noqa: S608
    return connection.execute(query, values).fetchall()


def avro(location: str, path_of: Callable[[str], Path] = local) -> list[dict[str, Any]]:
    """Records of a manifest or of a manifest list."""
    return [dict(each) for each in fastavro.reader(BytesIO(path_of(location).read_bytes()))]


def avro_header(location: str) -> dict[str, str]:
    return dict(fastavro.reader(BytesIO(local(location).read_bytes())).metadata)


def lines(lake: IcebergLake) -> list[dict[str, Any]]:
    """Lines of the head's manifest list."""
    head = lake.metadata.head(MAIN)
    assert head is not None
    return avro(head["manifest-list"], lake.path_of)


def entries(lake: IcebergLake) -> dict[str, dict[str, Any]]:
    """Entries of all data manifests of the head, by the path of their file."""
    data = [line for line in lines(lake) if line["content"] == 0]
    found = [(line, entry) for line in data for entry in avro(line["manifest_path"], lake.path_of)]
    assert len({entry["data_file"]["file_path"] for _, entry in found}) == len(found)
    return {entry["data_file"]["file_path"]: {**entry, "line": line} for line, entry in found}
