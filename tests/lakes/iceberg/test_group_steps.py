"""Transactions over several tables, step by step, without a server and other libraries."""

import json
import os
import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from requests import Response

from sluicegate.lakes.group import Member
from sluicegate.lakes.iceberg.catalog import Catalog, Identifier
from sluicegate.lakes.iceberg.committer import Composed, IcebergCommitter
from sluicegate.lakes.iceberg.files import Files
from sluicegate.lakes.iceberg.metadata import MAIN, Metadata, from_fields
from sluicegate.lakes.iceberg.rest import RestTable, RestTransactions
from sluicegate.lakes.iceberg.sql import SqlCatalog, SqlTransactions
from sluicegate.lakes.port import CommitRequest, LakeUnavailable
from sluicegate.lakes.storage import Uncertain

NAMES = ("orders", "items", "bills")
"""The anchor, and further tables, not in the order of their names."""


def fields_of(location: str) -> dict[str, Any]:
    """Return the metadata of a new table, with one column and no snapshot."""
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
    }
    return {
        "format-version": 2,
        "table-uuid": str(uuid.uuid4()),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": 1,
        "last-column-id": 1,
        "schemas": [schema],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {},
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def member(name: str, catalog: Catalog, files: Files, state: Metadata) -> Member[Metadata, Composed]:
    """Return an empty commit of a table on a state."""
    committer = IcebergCommitter(catalog, files, "user", MAIN)
    committer.expect(state.identity)
    made = committer.compose(CommitRequest(1, "digest", committer.head(state), None, []), state)
    assert isinstance(made, Composed), made
    return Member("" if name == NAMES[0] else name, committer, made)


class Database:
    """Tables of a database, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "catalog.db"
        self._connection = sqlite3.connect(self.path, isolation_level=None)
        self._connection.execute(
            "CREATE TABLE iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, "
            "previous_metadata_location)"
        )
        self.folders: dict[str, Path] = {}
        for name in NAMES:
            self.folders[name] = folder / name / "metadata"
            self.folders[name].mkdir(parents=True)
            self.point(name, fields_of(f"file://{folder / name}"))

    def point(self, name: str, fields: Mapping[str, Any]) -> None:
        """Give a table another state, as a foreign writer does."""
        path = self.folders[name] / f"00000-{uuid.uuid4()}.metadata.json"
        path.write_text(json.dumps(fields))
        self._connection.execute("DELETE FROM iceberg_tables WHERE table_name = ?", [name])
        entry = ("default", "db", name, f"file://{path}")
        self._connection.execute("INSERT INTO iceberg_tables VALUES (?, ?, ?, ?, NULL)", entry)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(tmp_path)) as found:
        yield found


def members_of(database: Database) -> list[Member[Metadata, Composed]]:
    files = Files()
    anchor = SqlCatalog(f"sqlite:///{database.path}", "default", Identifier(("db",), NAMES[0]), files)
    found = []
    for name in NAMES:
        own = Files()
        catalog = anchor if name == NAMES[0] else anchor.sibling(Identifier(("db",), name), own)
        found.append(member(name, catalog, files if catalog is anchor else own, catalog.load()))
    return found


def listed(database: Database) -> dict[str, set[str]]:
    return {name: {*os.listdir(folder)} for name, folder in database.folders.items()}


def anchor_of(members: list[Member[Metadata, Composed]]) -> SqlCatalog:
    catalog = members[0].table.catalog  # type: ignore[attr-defined]
    assert isinstance(catalog, SqlCatalog)
    return catalog


def test_entries_change_in_the_order_of_namespace_and_name(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = members_of(database)
    anchor = anchor_of(members)
    changed: list[str] = []
    transact = anchor._transact

    def noted(updates: list[Mapping[str, str]], limits: str) -> bool:
        changed.extend(each["name"] for each in updates)
        return transact(updates, limits)

    monkeypatch.setattr(anchor, "_transact", noted)
    assert SqlTransactions(anchor).commit_all(members)
    assert changed == ["bills", "items", "orders"]


def test_a_conflict_keeps_the_files_of_tables_that_have_not_moved(database: Database) -> None:
    before, members = listed(database), members_of(database)
    transactions = SqlTransactions(anchor_of(members))
    database.point("items", json.loads(members[1].composed.base.render()))
    moved = listed(database)
    assert not transactions.commit_all(members)
    after = listed(database)
    assert after["items"] == moved["items"]
    assert after["orders"] == before["orders"]
    assert after["bills"] > before["bills"]
    again = members_of(database)[:2] + members[2:]
    assert transactions.commit_all(again)
    assert {name: len(each.table.load().snapshots) for name, each in zip(NAMES, again, strict=True)} == (
        dict.fromkeys(NAMES, 1)
    )
    assert listed(database)["bills"] == after["bills"]


class Served(RestTable):
    """A table of a catalog that answers what a test says."""

    def __init__(
        self, name: str, files: Files, state: dict[str, Any], catalog: "Served | None" = None
    ) -> None:
        super().__init__({}, "default", Identifier(("db",), name), files)
        self.state = state
        self.status, self.lands = 204, True
        self.requests: list[Mapping[str, Any]] = []
        self.tables: dict[str, Served] = catalog.tables if catalog is not None else {}
        self.tables[name] = self

    def _send(
        self,
        method: str,
        endpoint: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        of_table: bool = True,
    ) -> Response:
        answer = Response()
        answer.status_code = 200
        if method == "GET":
            answer._content = json.dumps(
                {"metadata-location": str(uuid.uuid4()), "metadata": self.state}
            ).encode()
            return answer
        assert body is not None
        self.requests.append(body)
        answer.status_code, answer._content = self.status, b"{}"
        for change in body["table-changes"] if self.lands else ():
            self.tables[change["identifier"]["name"]].apply(change["updates"])
        return answer

    def apply(self, updates: list[Mapping[str, Any]]) -> None:
        state = from_fields("x", self.state)
        fields = json.loads(state.render())
        snapshot = updates[0]["snapshot"]
        fields["snapshots"].append(snapshot)
        fields["current-snapshot-id"] = snapshot["snapshot-id"]
        fields["refs"] = {MAIN: {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}}
        fields["last-sequence-number"] = snapshot["sequence-number"]
        self.state = fields


class Server:
    """A catalog of tables, and a commit of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.anchor: Served | None = None
        self.members: list[Member[Metadata, Composed]] = []
        for name in NAMES:
            (folder / name / "metadata").mkdir(parents=True)
            files = Files()
            table = Served(name, files, fields_of(f"file://{folder / name}"), self.anchor)
            first = member(name, table, files, table.load())
            files.write(first.composed.draft.files)
            table.apply([{"snapshot": dict(first.composed.change.snapshot)}])
            self.anchor = self.anchor or table
            self.members.append(member(name, table, files, table.load()))
        assert self.anchor is not None
        self.catalog: Served = self.anchor
        self.transactions = RestTransactions(self.catalog)

    def files(self, name: str) -> int:
        """Return how many files of metadata a table has beside that of its first snapshot."""
        return len(os.listdir(self.folder / name / "metadata")) - 1


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


@pytest.mark.parametrize("status", [200, 204])
def test_an_answer_of_success_is_believed_once_each_table_has_its_change(server: Server, status: int) -> None:
    server.catalog.status = status
    assert server.transactions.commit_all(server.members)
    (request,) = server.catalog.requests
    assert [each["identifier"]["name"] for each in request["table-changes"]] == [*NAMES]


@pytest.mark.parametrize("status", [200, 204, 500, 503])
def test_an_answer_of_success_alone_proves_nothing(server: Server, status: int) -> None:
    server.catalog.status, server.catalog.lands = status, False
    with pytest.raises(Uncertain, match="not seen in: the anchor, items, bills"):
        server.transactions.commit_all(server.members)
    assert [server.files(name) for name in NAMES] == [1, 1, 1]


@pytest.mark.parametrize("status", [204, 400, 409, 503])
def test_a_table_without_its_change_leaves_the_outcome_unknown(server: Server, status: int) -> None:
    server.catalog.status = status
    tables = server.catalog.tables
    server.catalog.tables = {**tables, "items": Served("items", Files(), tables["items"].state)}
    with pytest.raises(Uncertain, match="not seen in: items"):
        server.transactions.commit_all(server.members)
    assert [server.files(name) for name in NAMES] == [1, 1, 1]


@pytest.mark.parametrize("status", [400, 409, 429])
def test_files_of_a_refused_request_stay_until_the_head_of_their_table_has_moved(
    server: Server, status: int
) -> None:
    """A proxy may have answered, and another copy of the request may still come."""
    server.catalog.status, server.catalog.lands = status, False
    for _ in range(3):
        if status == 409:
            assert not server.transactions.commit_all(server.members)
        else:
            with pytest.raises(LakeUnavailable, match=str(status)):
                server.transactions.commit_all(server.members)
        assert [server.files(name) for name in NAMES] == [1, 1, 1]
    # Another commit follows the head of `items`.
    items = server.catalog.tables["items"]
    other = member("items", items, Files(), items.load())
    items.apply([{"snapshot": dict(other.composed.change.snapshot)}])
    with suppress(LakeUnavailable):
        server.transactions.commit_all(server.members)
    assert [server.files(name) for name in NAMES] == [1, 0, 1]
