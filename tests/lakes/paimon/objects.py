"""A Paimon table in an object store, made without another product's access to the store."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pyarrow as pa

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.paimon.entries import FORMAT, FORMAT_VERSION
from sluicegate.lakes.paimon.snapshots import Snapshots
from sluicegate.lakes.storage import Storage
from sluicegate.lakes.storages import open_storage
from tests.contracts.lakes.harness import USER, Lake, Stream
from tests.contracts.lakes.paimon_lake import PaimonLake


class ObjectTable:
    """A table like a local one, with one integer column `id`."""

    def __init__(self, location: str, model: Path) -> None:
        self.ref = ADAPTER.parse_table(location)
        local = PaimonLake(model)
        ADAPTER.open_maintenance(self.ref).create_like(ADAPTER.parse_table(local.location))

    @property
    def storage(self) -> Storage:
        """Open the table's storage with the environment as it is now."""
        return open_storage(self.ref.location)

    def event(self, ids: Iterable[int]) -> FilesWritten:
        """Write rows with the writer half."""
        writer = ADAPTER.open_writer(self.ref, None)
        writer.write(pa.record_batch({"id": pa.array(list(ids), pa.int64())}))
        return FilesWritten(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            location=writer.location,
            schema_id=writer.schema_id,
            files=tuple(writer.finish()),
        )

    def stream(self) -> Stream:
        """Open a committer with the environment as it is now."""
        return Stream(cast(Lake, self), ADAPTER.open_committer(self.ref, USER))

    def rows(self) -> int:
        """Return the number of committed rows."""
        head = Snapshots(self.storage).newest()
        return int(head.fields["totalRecordCount"]) if head is not None else 0

    def overwrite(self, number: int) -> None:
        """Replace a snapshot, as a writer without a lock does that renames by a copy."""
        name = f"snapshot-{number}"
        raw = self.storage.read(f"snapshot/{name}")
        assert raw is not None
        theirs = {**json.loads(raw), "commitUser": "a-writer-without-a-lock", "properties": {}}
        self.storage.hint(f"snapshot/{name}", json.dumps(theirs).encode())
