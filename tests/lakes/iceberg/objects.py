"""A table of Iceberg in a store whose requests can fail."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.iceberg.adapter import IcebergAdapter
from tests.contracts.lakes.harness import USER, Lake, Stream, written
from tests.contracts.lakes.iceberg_lake import ID_ONLY, IcebergLake
from tests.doubles.s3 import BUCKET, S3Double

FOLDER: Final = "warehouse/db/numbers"
URI: Final = f"s3://{BUCKET}/{FOLDER}"


class ObjectTable:
    """A table like a local one, in a store whose requests can fail. Its catalog is an SQLite database."""

    def __init__(
        self,
        folder: Path,
        double: S3Double,
        schema: Schema = ID_ONLY,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        version: int = 2,
    ) -> None:
        self._double = double
        self.model = IcebergLake(folder / "model", version, schema, spec)
        self.uri = self.model.uri
        # The name of the copy is another one in the same catalog.
        self.adapter = IcebergAdapter({"uri": self.uri})
        self.location = f"{URI}2"
        self.ref = self.adapter.parse_table(self.location)
        self.adapter.open_maintenance(self.ref).create_like(self.adapter.parse_table(self.model.location))

    def event(self, ids: Iterable[int]) -> FilesWritten:
        """Write rows with the writer half."""
        return self.write(pa.record_batch({"id": pa.array(list(ids), pa.int64())}))

    def write(self, *batches: pa.RecordBatch) -> FilesWritten:
        """Write rows with the writer half."""
        return written(self.adapter, self.ref, *batches)

    def stream(self) -> Stream:
        """Open a committer with the environment as it is now."""
        return Stream(cast(Lake, self), self.adapter.open_committer(self.ref, USER))

    def edit(self, **fields: Any) -> None:
        """Change fields of the metadata, as the owner of the table does."""
        key = self._metadata.partition("://")[2].partition("/")[2]
        changed = {**json.loads(self._double.objects[key]), **fields}
        self._double.objects[f"{key}.2.metadata.json"] = json.dumps(changed).encode()
        self._name(f"s3://{BUCKET}/{key}.2.metadata.json")

    @property
    def _metadata(self) -> str:
        with self._catalog() as connection:
            query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = 'numbers2'"
            return str(connection.execute(text(query)).scalar_one())

    def _name(self, location: str) -> None:
        with self._catalog() as connection:
            update = "UPDATE iceberg_tables SET metadata_location = :at WHERE table_name = 'numbers2'"
            connection.execute(text(update), {"at": location})

    @contextlib.contextmanager
    def _catalog(self) -> Iterator[Any]:
        with create_engine(self.uri, poolclass=NullPool).begin() as connection:
            yield connection

    def snapshots(self) -> list[int]:
        """Return the decisions in the table."""
        key = self._metadata.partition("://")[2].partition("/")[2]
        found = json.loads(self._double.objects[key])["snapshots"]
        return [int(each["summary"]["sluicegate.decision"]) for each in found]
