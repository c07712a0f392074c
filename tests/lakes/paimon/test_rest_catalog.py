"""Reasons why tables of Paimon's REST catalog are refused: pypaimon's client beside Paimon's own server.

The server is the one with which Paimon 1.4 tests its clients. If a test fails with a newer release, its
reason is gone.
"""

import dataclasses
import inspect
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from pypaimon.api.rest_api import RESTApi
from pypaimon.common.identifier import Identifier
from pypaimon.snapshot.snapshot import Snapshot

from sluicegate.cli.local.jars import Java, fetched_jars
from sluicegate.cli.local.servers import EmbeddedServer
from sluicegate.lakes.paimon.adapter import ADAPTER
from tests.contracts.lakes.harness import USER, Lake, Stream, written
from tests.contracts.lakes.paimon_lake import ID_ONLY
from tests.doubles.cutting import CuttingProxy
from tests.lakes.paimon.test_upkeep import java as java

pytestmark = [pytest.mark.slow, pytest.mark.matrix]

PROGRAM: Final = Path(__file__).with_name("RestCatalog.java")
JARS: Final = Path(__file__).with_name("rest.jars")


class RestCatalog(EmbeddedServer):
    """Paimon's REST catalog, with its warehouse in its data directory."""

    name: ClassVar[str] = "Paimon's REST catalog"
    ready_text: ClassVar[str] = "serves on port"
    start_seconds: ClassVar[float] = 300.0
    stop_seconds: ClassVar[float] = 30.0
    poll_seconds: ClassVar[float] = 0.05

    def __init__(self, java: tuple[Java, str]) -> None:
        super().__init__()
        found, class_path = java
        jars = ":".join([class_path, *map(str, fetched_jars("Paimon's REST catalog", JARS))])
        self._command = [
            str(found.executable),
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            jars,
            str(PROGRAM),
        ]

    def _prepare(self) -> Sequence[str]:
        return [*self._command, str(self.data_dir / "warehouse"), "token"]

    @property
    def own_port(self) -> int:
        """Port that the server has chosen."""
        found = re.search(rb"serves on port (\d+)", self._log())
        assert found is not None
        return int(found[1])


class Client:
    """A table as pypaimon reaches it through the catalog."""

    def __init__(self, port: int, name: str) -> None:
        self.identifier = Identifier.from_string(f"db.{name}")
        given = {"metastore": "rest", "uri": f"http://127.0.0.1:{port}", "warehouse": "warehouse"}
        self.catalog = CatalogFactory.create({**given, "token.provider": "bear", "token": "token"})

    def make(self) -> None:
        self.catalog.create_database("db", True)
        schema = Schema.from_pyarrow_schema(ID_ONLY, options={"bucket": "-1"})
        self.catalog.create_table(self.identifier, schema, False)

    @property
    def table(self) -> Any:
        return self.catalog.get_table(self.identifier).copy({"commit.max-retries": "0"})

    @property
    def newest(self) -> Snapshot:
        found: Snapshot = self.catalog.load_snapshot(self.identifier).snapshot
        return found

    def append(self, *ids: int) -> None:
        builder = self.table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(pa.table({"id": pa.array(ids, pa.int64())}))
        try:
            commit.commit(write.prepare_commit())
        finally:
            commit.close()
            write.close()

    def ids(self) -> list[int]:
        builder = self.table.new_read_builder()
        return sorted(builder.new_read().to_arrow(builder.new_scan().plan().splits())["id"].to_pylist())

    def commit(self, base: str | None, snapshot: Snapshot) -> bool:
        """Commit as the client's own committer does."""
        table = self.table.catalog_environment.uuid
        done: bool = self.catalog.commit_snapshot(self.identifier, table, base, snapshot, [])
        return done


@pytest.fixture(scope="module")
def server(java: tuple[Java, str]) -> Iterator[RestCatalog]:
    with RestCatalog(java) as started:
        yield started


@pytest.fixture
def client(server: RestCatalog, unique: str) -> Client:
    client = Client(server.own_port, unique)
    client.make()
    client.append(1)
    return client


def ours(client: Client, decision: int) -> Snapshot:
    """Return a snapshot that follows the newest one, with the identity of a decision."""
    newest, identity = client.newest, str(uuid.uuid4())
    return dataclasses.replace(
        newest, id=newest.id + 1, uuid=identity, commit_user=USER, commit_identifier=decision
    )


def test_a_commit_is_taken_whatever_it_is_based_on(client: Client) -> None:
    """So a commit on a history that was rolled back and written again is taken, too."""
    snapshot = ours(client, 7)
    assert client.commit("a snapshot that never was", snapshot)
    assert client.newest.commit_identifier == 7
    # Nor is the identity of a snapshot kept, by which a client could tell two of one number apart.
    assert snapshot.uuid is not None
    assert client.newest.uuid is None


def test_a_commit_whose_answer_is_lost_can_be_asked_for_while_it_is_the_newest(
    server: RestCatalog, client: Client, unique: str
) -> None:
    with CuttingProxy(server.own_port) as proxy:
        other, snapshot = Client(proxy.port, unique), ours(client, 7)
        table = other.table.catalog_environment.uuid
        proxy.cutting = 1
        with pytest.raises(RuntimeError, match="Failed to commit snapshot"):
            other.catalog.commit_snapshot(other.identifier, table, None, snapshot, [])
        assert proxy.cut == 1
    assert client.newest.commit_identifier == 7
    client.append(2)
    assert client.newest.commit_user != USER
    # The client has no other question about the history.
    assert [*inspect.signature(RESTApi.load_snapshot).parameters] == ["self", "identifier"]
    assert [name for name in vars(RESTApi) if "snapshot" in name] == ["commit_snapshot", "load_snapshot"]


def test_a_snapshot_in_the_folder_is_not_in_the_table_and_stops_its_writers(client: Client) -> None:
    """So the folder of such a table is no way around the catalog."""
    ref = ADAPTER.parse_table(client.table.table_path)
    stream = Stream(cast(Lake, client), ADAPTER.open_committer(ref, USER))
    rows = pa.record_batch({"id": pa.array([2], pa.int64())})
    made = stream.add(1, written(ADAPTER, ref, rows))
    assert (made.id, client.newest.id, client.ids()) == (2, 1, [1])
    with pytest.raises(RuntimeError, match="Commit failed 2"):
        client.append(3)
    assert client.ids() == [1]
