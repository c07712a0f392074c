"""Tables in a store whose requests fail, of formats whose commit is the put of one file."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Final, cast

import pyarrow as pa

from sluicegate.events.models import FilesWritten
from sluicegate.lakes.capabilities import CopiesFiles
from sluicegate.lakes.delta import adapter as delta
from sluicegate.lakes.delta.entries import FORMAT as DELTA
from sluicegate.lakes.delta.log import Log
from sluicegate.lakes.delta.maintenance import References
from sluicegate.lakes.paimon import adapter as paimon
from sluicegate.lakes.paimon.entries import FORMAT as PAIMON
from sluicegate.lakes.paimon.snapshots import Snapshots
from sluicegate.lakes.port import Adapter
from sluicegate.lakes.storages import open_storage
from tests.contracts.lakes.delta_lake import DeltaLake
from tests.contracts.lakes.harness import USER, Lake, Stream, written
from tests.contracts.lakes.paimon_lake import PaimonLake
from tests.doubles.s3 import BUCKET, S3Double

FOLDER: Final = "warehouse/numbers"
URI: Final = f"s3://{BUCKET}/{FOLDER}"


class StoreTable(ABC):
    """A table like a local one, with one integer column `id`."""

    format: str
    adapter: Adapter

    def __init__(self, model: str) -> None:
        self.ref = self.adapter.parse_table(URI)
        maintenance = self.adapter.open_maintenance(self.ref)
        assert isinstance(maintenance, CopiesFiles)
        maintenance.create_like(self.adapter.parse_table(model))

    def event(self, ids: Iterable[int]) -> FilesWritten:
        """Write rows with the writer half."""
        return written(self.adapter, self.ref, pa.record_batch({"id": pa.array(list(ids), pa.int64())}))

    def stream(self) -> Stream:
        """Open a committer with the environment as it is now."""
        return Stream(cast(Lake, self), self.adapter.open_committer(self.ref, USER))

    @abstractmethod
    def deciding(self, commit: int) -> str:
        """Return the end of the key whose put decides a commit, counted from 1."""

    @abstractmethod
    def commits(self, double: S3Double) -> int:
        """Return how many commits the store has."""

    @abstractmethod
    def has(self, *events: FilesWritten) -> bool:
        """Return True if exactly these events are committed."""

    @abstractmethod
    def overwrite(self, commit: int) -> None:
        """Replace a commit, as a writer does that looks first and then renames by a copy."""


class DeltaInStore(StoreTable):
    """A Delta table: a commit is a version of the log, after the one that made the table."""

    format, adapter = DELTA, delta.ADAPTER

    def __init__(self, folder: Path) -> None:
        super().__init__(DeltaLake(folder).location)

    def deciding(self, commit: int) -> str:
        return f"{commit:020d}.json"

    def commits(self, double: S3Double) -> int:
        log = f"{FOLDER}/_delta_log/"
        found = sorted(int(key.removeprefix(log)[:20]) for key in double.objects if key.startswith(log))
        assert found == list(range(len(found)))
        return len(found) - 1

    def has(self, *events: FilesWritten) -> bool:
        names = {file.path for event in events for file in event.files}
        references = References(Log(open_storage(URI)), names)
        references.refresh()
        return references.found == names

    def overwrite(self, commit: int) -> None:
        theirs = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "engineInfo": "another writer"}}
        open_storage(URI).hint(f"_delta_log/{self.deciding(commit)}", json.dumps(theirs).encode())


class PaimonInStore(StoreTable):
    """A Paimon table: a commit is a snapshot."""

    format, adapter = PAIMON, paimon.ADAPTER

    def __init__(self, folder: Path) -> None:
        super().__init__(PaimonLake(folder).location)

    def deciding(self, commit: int) -> str:
        return f"snapshot-{commit}"

    def commits(self, double: S3Double) -> int:
        snapshots = f"{FOLDER}/snapshot/snapshot-"
        return sum(key.startswith(snapshots) for key in double.objects)

    def rows(self) -> int:
        """Return the number of committed rows."""
        head = Snapshots(open_storage(URI)).newest()
        return int(head.fields["totalRecordCount"]) if head is not None else 0

    def has(self, *events: FilesWritten) -> bool:
        return self.rows() == sum(file.rows for event in events for file in event.files)

    def overwrite(self, commit: int) -> None:
        storage, name = open_storage(URI), f"snapshot/snapshot-{commit}"
        raw = storage.read(name)
        assert raw is not None
        theirs = {**json.loads(raw), "commitUser": "a-writer-without-a-lock", "properties": {}}
        storage.hint(name, json.dumps(theirs).encode())
