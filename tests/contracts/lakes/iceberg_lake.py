"""Iceberg under the contract, with pyiceberg as the reader and, for version 2, as the other writer."""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog as LibraryCatalog
from pyiceberg.catalog.sql import SqlCatalog as SqlLibraryCatalog
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.pool import NullPool

from sluicegate.events.models import FilesWritten, SnapshotRef
from sluicegate.lakes.capabilities import CatalogAccess
from sluicegate.lakes.iceberg.adapter import IcebergAdapter
from sluicegate.lakes.iceberg.ancestry import DECISION, Ancestry
from sluicegate.lakes.iceberg.ancestry import USER as USER_KEY
from sluicegate.lakes.iceberg.catalog import Catalog, Identifier
from sluicegate.lakes.iceberg.committer import IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.maintenance import IcebergMaintenance
from sluicegate.lakes.iceberg.metadata import MAIN, Append, Change, Metadata, parse
from sluicegate.lakes.iceberg.sql import SqlCatalog
from sluicegate.lakes.port import CommitRequest, LakeUnavailable, Published
from sluicegate.lakes.storage import Uncertain
from tests.contracts.lakes.harness import USER, Fault, Killed, written
from tests.contracts.lakes.iceberg_objects import S3Folder

ID_ONLY = Schema(NestedField(1, "id", LongType(), required=False))
TABLE = Identifier(("db",), "numbers")


def local(location: str) -> Path:
    """Return the path of a location, which some products write with one slash after the scheme."""
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def open_library(name: str, uri: str, **properties: str) -> SqlLibraryCatalog:
    """Open a catalog of the library without a pool. Python 3.13 warns of connections that stay open."""
    catalog = SqlLibraryCatalog(name, uri=uri, **properties)
    catalog.close()
    catalog.engine = create_engine(uri, poolclass=NullPool)
    return catalog


class FaultyCatalog(SqlCatalog):
    """Fails once, at the change of the database that decides a commit."""

    fault: Fault | None = None

    def finish(self, connection: Connection) -> None:
        fault, self.fault = self.fault, None
        if fault is not Fault.LOST:
            super().finish(connection)
        if fault is not None:
            raise Uncertain("injected")


class FaultyFiles(Files):
    """Fails once, when manifests are written."""

    fault: Fault | None = None

    def write(self, files: Mapping[str, bytes]) -> None:
        super().write(files)
        fault, self.fault = self.fault, None
        if fault is Fault.AWAY:
            raise LakeUnavailable("injected")


class ThawingCatalog(SqlCatalog):
    """Stands still right before the change of the database, goes on, and is killed right after."""

    meanwhile: Callable[[], None]

    def _swap(self, old: str, new: str) -> bool:
        self.meanwhile()
        super()._swap(old, new)
        raise Killed


class OtherProduct:
    """Catalog that takes everything of ours out of a commit, as of a product that does not know us."""

    def __init__(self, inner: Catalog, summary: Mapping[str, str]) -> None:
        self._inner = inner
        self.identifier = inner.identifier
        self.reads_files = inner.reads_files
        self._summary = summary

    def load(self) -> Metadata:
        return self._inner.load()

    def commit(self, base: Metadata, change: Change, files: Mapping[str, bytes]) -> bool:
        assert isinstance(change, Append)
        summary = {
            key: value for key, value in change.snapshot["summary"].items() if not key.startswith("sluice")
        }
        snapshot = {**change.snapshot, "summary": {**summary, **self._summary}}
        return self._inner.commit(base, Append(snapshot, change.branch, change.head, {}), files)

    def create(self, fields: Mapping[str, Any], location: str) -> None:
        self._inner.create(fields, location)

    def access(self) -> CatalogAccess:
        return self._inner.access()

    def close(self) -> None:
        self._inner.close()


def _with_field(fields: dict[str, Any], name: str, field: Mapping[str, Any]) -> None:
    """Give metadata a schema with one more field of a plain type."""
    (current,) = [each for each in fields["schemas"] if each["schema-id"] == fields["current-schema-id"]]
    fields["last-column-id"] += 1
    fields["current-schema-id"] += 1
    added = {**field, "id": fields["last-column-id"], "name": name, "required": False}
    made = {**current, "schema-id": fields["current-schema-id"], "fields": [*current["fields"], added]}
    fields["schemas"].append(made)


class IcebergLake:
    marked = True
    options: Mapping[str, str] | None
    catalog_name = "default"

    def __init__(
        self,
        warehouse: Path,
        version: int = 2,
        schema: Schema = ID_ONLY,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: Mapping[str, str] | None = None,
        *,
        forgets_parents: bool = False,
        objects: S3Folder | None = None,
    ) -> None:
        """Make a table, with its files in a folder or in an object store.

        `forgets_parents`: expiry takes the parent's name out of the oldest snapshot, as pyiceberg does.
        """
        warehouse.mkdir(exist_ok=True)
        self.objects = objects
        self._connect(warehouse)
        inside = f"{self.table_name.namespace[0]}/{self.table_name.name}"
        self.root = (objects.path if objects is not None else warehouse) / inside
        """Folder of the table's files; of an object store, that of its server."""
        self.base = f"{objects.uri if objects is not None else f'file://{warehouse}'}/{inside}"
        """Location of the table, as its metadata has it."""
        self.location = self.base if objects is not None else str(self.root)
        self._version = version
        self._schema = schema
        self._spec = spec
        self._properties = dict(properties or {})
        self._forgets = forgets_parents
        self._parents: dict[int, int | None] = {}
        self.library.create_namespace_if_not_exists(self.table_name.namespace)
        self._create()

    def _connect(self, warehouse: Path) -> None:
        self.table_name = TABLE
        self.database = f"{warehouse}/catalog.db"
        self.uri = self.database_uri = f"sqlite:///{self.database}"
        self.options = {"uri": self.uri, "catalog": self.catalog_name}
        self.adapter = IcebergAdapter(self.options)
        self.library: LibraryCatalog = open_library(
            self.catalog_name, self.uri, warehouse=f"file://{warehouse}", **self.access
        )

    @property
    def access(self) -> dict[str, str]:
        """Properties with which the library reaches the files."""
        return self.objects.access if self.objects is not None else {}

    def path_of(self, location: str) -> Path:
        """Return the path of a file of the table."""
        return self.objects.path_of(location) if self.objects is not None else local(location)

    def catalog(self, files: Files) -> Catalog:
        """Return the adapter's access to the catalog."""
        return SqlCatalog(self.uri, self.catalog_name, self.table_name, files)

    def faulty(self, files: Files, fault: Fault | None) -> Catalog:
        """Return an access that fails once, where a commit is decided."""
        catalog = FaultyCatalog(self.uri, self.catalog_name, self.table_name, files)
        catalog.fault = fault
        return catalog

    def thawing(self, files: Files, meanwhile: Callable[[], None]) -> Catalog:
        """Return an access of a process that stands still where a commit is decided, and is killed then."""
        catalog = ThawingCatalog(self.uri, self.catalog_name, self.table_name, files)
        catalog.meanwhile = meanwhile
        return catalog

    def _create(self) -> None:
        self.library.create_table(
            str(self.table_name),
            self._schema,
            location=self.base,
            partition_spec=self._spec,
            properties=self._properties,
        )
        if self._version > 2:
            # The library cannot write tables of version 3.
            self.edit(lambda fields: fields.update({"format-version": self._version, "next-row-id": 0}))

    @property
    def table(self) -> Any:
        return self.library.load_table(str(self.table_name))

    @property
    def metadata(self) -> Metadata:
        location = self._pointer()
        return parse(location, self.path_of(location).read_bytes())

    def _pointer(self) -> str:
        """Return the location that the catalog names."""
        query = (
            "SELECT metadata_location FROM iceberg_tables WHERE table_name = :name AND table_namespace = :at"
        )
        names = {"name": self.table_name.name, "at": self.table_name.namespace[0]}
        with self._database() as connection:
            return str(connection.execute(text(query), names).scalar_one())

    def _point(self, before: str, after: str) -> None:
        """Make the catalog name another metadata file."""
        update = "UPDATE iceberg_tables SET metadata_location = :after WHERE metadata_location = :before"
        with self._database() as connection:
            connection.execute(text(update), {"after": after, "before": before})

    @contextlib.contextmanager
    def _database(self) -> Iterator[Connection]:
        """Give a transaction in the database of the catalog."""
        engine = create_engine(self.database_uri, poolclass=NullPool)
        with engine.begin() as connection:
            yield connection

    def fields(self) -> dict[str, Any]:
        """The metadata as JSON."""
        fields: dict[str, Any] = json.loads(self.metadata.render())
        return fields

    def edit(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """Change the metadata as its owner may do with any tool."""
        self._learn()
        before = self.metadata.location
        fields = self.fields()
        change(fields)
        after = f"{self.base}/metadata/99999-{uuid.uuid4()}.metadata.json"
        self.path_of(after).write_text(json.dumps(fields))
        self._point(before, after)

    def committer(self, user: str = USER, fault: Fault | None = None) -> IcebergCommitter:
        files = FaultyFiles()
        files.fault = fault if fault is Fault.AWAY else None
        catalog = self.faulty(files, fault if fault is not Fault.AWAY else None)
        return IcebergCommitter(catalog, files, user, MAIN)

    def maintenance(self, location: str | None = None) -> IcebergMaintenance:
        return self.adapter.open_maintenance(self.adapter.parse_table(location or self.location))

    def event(self, ids: Iterable[int]) -> FilesWritten:
        return self.write(pa.record_batch({"id": pa.array(list(ids), pa.int64())}))

    def write(self, *batches: pa.RecordBatch, event_time: str | None = None) -> FilesWritten:
        return written(self.adapter, self.adapter.parse_table(self.location), *batches, event_time=event_time)

    def read(self) -> pa.Table:
        return self.table.scan().to_arrow()

    def ids(self) -> list[int]:
        return sorted(self.read().column("id").to_pylist())

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.read().to_pylist(), key=lambda row: row["id"])

    def alter(self, name: str, kind: pa.DataType) -> None:
        field = pa.field(name, kind, metadata={"PARQUET:field_id": "1"})
        (added,) = pyarrow_to_schema(pa.schema([field])).fields
        if self._version > 2 and isinstance(self.library, SqlLibraryCatalog):
            # The library cannot write metadata of version 3, but it tells a REST catalog what to change.
            self.edit(lambda fields: _with_field(fields, name, json.loads(added.model_dump_json())))
            return
        with self.table.update_schema() as update:
            update.add_column(name, added.field_type)

    def schemas(self) -> int:
        return len(self.metadata.fields["schemas"])

    def data_files(self) -> int:
        return sum(1 for _ in self.root.rglob("*.parquet"))

    def watermark(self) -> int | None:
        return Ancestry(self.metadata, MAIN).watermark()

    def foreign(self, ids: Sequence[int] = ()) -> None:
        self._other(ids, {})

    def impostor(self, decision: int, ids: Sequence[int]) -> None:
        self._other(ids, {USER_KEY: USER, DECISION: str(decision)})

    def _other(self, ids: Sequence[int], summary: Mapping[str, str]) -> None:
        if self._version == 2:
            rows = pa.table({"id": pa.array(list(ids), pa.int64())})
            self.table.append(rows, snapshot_properties=dict(summary))
            return
        files = Files()
        catalog = OtherProduct(self.catalog(files), summary)
        committer = IcebergCommitter(catalog, files, "another-product", MAIN)
        request = CommitRequest(1, "d", committer.inspect().head, None, [self.event(ids)] if ids else [])
        assert isinstance(committer.publish(request), Published)

    def place(self, ref: SnapshotRef) -> int:
        self._learn()
        place = 0
        snapshot: int | None = int(ref.identity)
        while snapshot is not None:
            place, snapshot = place + 1, self._parents[snapshot]
        return place

    def _learn(self) -> None:
        for each in self.metadata.snapshots:
            self._parents.setdefault(each["snapshot-id"], each.get("parent-snapshot-id"))

    def _line(self) -> list[int]:
        """Ids of all snapshots of the history, expired ones included, the oldest first."""
        self._learn()
        head = self.metadata.head(MAIN)
        line: list[int] = []
        snapshot = head["snapshot-id"] if head is not None else None
        while snapshot is not None:
            line.insert(0, snapshot)
            snapshot = self._parents[snapshot]
        return line

    def _remove(self, gone: set[int]) -> None:
        def change(fields: dict[str, Any]) -> None:
            fields["snapshots"] = [each for each in fields["snapshots"] if each["snapshot-id"] not in gone]
            for each in fields["snapshots"] if self._forgets else ():
                if each.get("parent-snapshot-id") in gone:
                    del each["parent-snapshot-id"]
            log = fields["snapshot-log"]
            fields["snapshot-log"] = [each for each in log if each["snapshot-id"] not in gone]

        self.edit(change)

    def lose(self, place: int) -> None:
        self._remove({self._line()[place - 1]})

    def expire(self, keep: int) -> None:
        self._remove(set(self._line()[:-keep]))

    def expire_beside(self) -> None:
        """Forget the snapshots that a rollback has left."""
        self._remove({each["snapshot-id"] for each in self.fields()["snapshots"]} - {*self._line()})

    def rollback(self, to: int) -> None:
        target = self._line()[to - 1]

        def change(fields: dict[str, Any]) -> None:
            fields["current-snapshot-id"] = target
            fields["refs"]["main"]["snapshot-id"] = target

        self.edit(change)

    def strand(self, decision: int, event: FilesWritten, meanwhile: Callable[[], None]) -> None:
        files = Files()
        catalog = self.thawing(files, meanwhile)
        committer = IcebergCommitter(catalog, files, USER, MAIN)
        committer.check([event])
        request = CommitRequest(decision, f"digest-{decision}", committer.inspect().head, None, [event])
        with contextlib.suppress(Killed):
            committer.publish(request)

    def drop(self) -> None:
        self.library.drop_table(str(self.table_name))

    def replace(self) -> None:
        self.library.drop_table(str(self.table_name))
        self._create()
