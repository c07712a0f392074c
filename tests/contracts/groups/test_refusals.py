"""Tables that cannot be a group: each is refused by its name, at the start, with the reason."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sluicegate.events.models import FurtherTable
from tests.contracts.groups.conftest import REST, SQLITE
from tests.contracts.groups.harness import ANCHOR, Coordinator, Tables, wanted
from tests.contracts.groups.iceberg_tables import IcebergTables, RestNamed, RestTables, SqliteNamed, SqlTables
from tests.contracts.lakes.harness import USER
from tests.iceberg_java.java import RestCatalogServer
from tests.lakes.outcomes import is_refused

NEEDED = "Each name needs a table and a folder of its own"
DELETES = "write.metadata.delete-after-commit.enabled"


def refused(tables: Tables, names: dict[str, str]) -> dict[str, str]:
    """Return the reasons of the names that a new coordinator refuses."""
    found = tables.group(USER, ANCHOR, names).inspect().tables
    assert found.keys() == names.keys()
    return {name: each for name, each in found.items() if isinstance(each, str)}


def test_one_table_has_one_name(tables: Tables) -> None:
    items = tables.identifier("items")
    reasons = refused(tables, {"items": items, "again": items, "anchor": tables.identifier(ANCHOR)})
    assert reasons == {
        "again": f"{items} and items are one table, or keep their data in one folder. {NEEDED}",
        "anchor": f"{tables.identifier(ANCHOR)} and the anchor are one table, or keep their data in one "
        f"folder. {NEEDED}",
    }


def test_a_table_under_two_names_of_the_catalog_is_one(tables: Tables) -> None:
    alias = tables.alias("items")
    assert refused(tables, {"items": tables.identifier("items"), "again": alias}).keys() == {"again"}
    assert refused(tables, {"again": alias, "items": tables.identifier("items")}).keys() == {"items"}


def test_the_anchor_under_another_name_is_refused(tables: Tables) -> None:
    reasons = refused(tables, {"items": tables.identifier("items"), "orders": tables.alias(ANCHOR)})
    assert reasons.keys() == {"orders"}
    assert "the anchor are one table" in reasons["orders"]


@pytest.mark.parametrize("order", [["items", "inner"], ["inner", "items"]])
def test_no_table_keeps_its_data_in_the_folder_of_another(tables: Tables, order: list[str]) -> None:
    names = {"inner": tables.inside("items"), "items": tables.identifier("items")}
    assert refused(tables, {name: names[name] for name in order}).keys() == {order[1]}
    assert refused(tables, {"inner": names["inner"]}) == {}


def test_no_table_keeps_its_data_in_the_folder_of_the_anchor(tables: Tables) -> None:
    reasons = refused(tables, {"inner": tables.inside(ANCHOR), "items": tables.identifier("items")})
    assert reasons.keys() == {"inner"}


def test_a_name_that_the_catalog_lacks_is_refused_alone(tables: Tables) -> None:
    away = f"{tables.identifier('items')}_away"
    reasons = refused(tables, {"items": tables.identifier("items"), "away": away})
    assert reasons.keys() == {"away"}
    assert f"no table {away}" in reasons["away"]


@pytest.fixture(params=[SQLITE, REST])
def iceberg(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IcebergTables]:
    """Tables of Iceberg alone."""
    if request.param == "sqlite":
        tables: IcebergTables = SqlTables({each: SqliteNamed(tmp_path, each) for each in ("orders", "items")})
    else:
        server: RestCatalogServer = request.getfixturevalue("iceberg_rest")
        unique: str = request.getfixturevalue("unique")
        tables = RestTables({each: RestNamed(server, unique, tmp_path, each) for each in ("orders", "items")})
    with closing(tables):
        yield tables


def test_a_second_branch_of_the_anchor_is_the_anchor(iceberg: IcebergTables) -> None:
    lake = iceberg.lakes[ANCHOR]
    stream = Coordinator(iceberg, names=["items"])
    stream.commit(1, {"orders": [1], "items": [2]})
    with lake.table.manage_snapshots() as manage:
        manage.create_branch(lake.table.current_snapshot().snapshot_id, "audit")
    table = lake.adapter.parse_table(lake.location, {**iceberg.options, "branch": "audit"})
    group = lake.adapter.open_group(table, USER, {"main": (iceberg.identifier(ANCHOR), ())})
    with closing(group):
        (reason,) = group.inspect().tables.values()
    assert isinstance(reason, str)
    assert "the anchor are one table" in reason


def test_a_table_without_the_branch_of_the_stream_is_refused(iceberg: IcebergTables) -> None:
    lake = iceberg.lakes[ANCHOR]
    Coordinator(iceberg, names=["items"]).commit(1, {"orders": [1], "items": [2]})
    with lake.table.manage_snapshots() as manage:
        manage.create_branch(lake.table.current_snapshot().snapshot_id, "audit")
    table = lake.adapter.parse_table(lake.location, {**iceberg.options, "branch": "audit"})
    group = lake.adapter.open_group(table, USER, {"items": (iceberg.identifier("items"), ())})
    with closing(group):
        (reason,) = group.inspect().tables.values()
    assert isinstance(reason, str)
    assert "has no branch audit" in reason


@pytest.mark.slow
def test_an_entry_that_is_no_table_is_refused_alone(tmp_path: Path) -> None:
    tables = SqlTables({each: SqliteNamed(tmp_path, each) for each in ("orders", "items")})
    lake = tables.lakes["items"]
    (lake.root / "view.json").write_text(json.dumps({"view-uuid": "x", "format-version": 1}))
    lake._point(lake.metadata.location, f"{lake.base}/view.json")
    reasons = refused(tables, wanted(tables, ["items"]))
    assert "is no metadata of an Iceberg table" in reasons["items"]


@pytest.mark.slow
@pytest.mark.parametrize("identifier", ["items", ".items", "db.", "", "db..items"])
def test_an_identifier_is_a_namespace_and_a_name(tmp_path: Path, identifier: str) -> None:
    tables = SqlTables({"orders": SqliteNamed(tmp_path, "orders")})
    (reason,) = refused(tables, {"items": identifier}).values()
    assert "must be NAMESPACE.TABLE" in reason


@pytest.mark.slow
@pytest.mark.matrix
def test_a_rest_catalog_needs_its_operators_word(
    iceberg_rest: RestCatalogServer, unique: str, tmp_path: Path
) -> None:
    tables = RestTables(
        {each: RestNamed(iceberg_rest, unique, tmp_path, each) for each in ("orders", "items")}
    )
    for options in ({}, {"transactions": "yes"}, {"transactions": "Atomic"}):
        tables.options = options
        reasons = refused(tables, wanted(tables, ["items"]))
        assert 'transactions = "atomic"' in reasons["items"]
    tables.options = {"transactions": "atomic"}
    assert refused(tables, wanted(tables, ["items"])) == {}
    tables.close()


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.parametrize("name", ["orders", "items"])
def test_a_rest_catalog_must_delete_no_metadata(
    iceberg_rest: RestCatalogServer, unique: str, tmp_path: Path, name: str
) -> None:
    tables = RestTables(
        {each: RestNamed(iceberg_rest, unique, tmp_path, each) for each in ("orders", "items")}
    )
    with tables.lakes[name].table.transaction() as transaction:
        transaction.set_properties({DELETES: "true"})
    reasons = refused(tables, wanted(tables, ["items"]))
    assert DELETES in reasons["items"]
    assert reasons["items"].startswith("the anchor: " if name == ANCHOR else tables.identifier(name))
    with tables.lakes[name].table.transaction() as transaction:
        transaction.set_properties({DELETES: "false"})
    assert refused(tables, wanted(tables, ["items"])) == {}
    tables.close()


@pytest.mark.slow
@pytest.mark.matrix
def test_a_rest_catalog_is_asked_for_no_first_snapshot(
    iceberg_rest: RestCatalogServer, unique: str, tmp_path: Path
) -> None:
    """Its condition is that there is none, which not every server checks."""
    lakes = {each: RestNamed(iceberg_rest, unique, tmp_path, each) for each in ("orders", "items")}
    with closing(RestTables(lakes, empty=True)) as tables:
        assert "the anchor: it has no snapshot yet" in refused(tables, wanted(tables, ["items"]))["items"]
        lakes["orders"].foreign()
        reasons = refused(tables, wanted(tables, ["items"]))
        assert reasons["items"].startswith(f"{tables.identifier('items')}: it has no snapshot yet")
        lakes["items"].foreign()
        assert refused(tables, wanted(tables, ["items"])) == {}


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.parametrize("name", ["orders", "items"])
def test_a_property_that_is_set_later_keeps_back_a_publication(
    iceberg_rest: RestCatalogServer, unique: str, tmp_path: Path, name: str
) -> None:
    tables = RestTables(
        {each: RestNamed(iceberg_rest, unique, tmp_path, each) for each in ("orders", "items")}
    )
    stream = Coordinator(tables, names=["items"])
    stream.commit(1, {"orders": [1], "items": [2]})
    with tables.lakes[name].table.transaction() as transaction:
        transaction.set_properties({DELETES: "true"})
    files = stream.files({"orders": [3], "items": [4]})
    outcome = stream.publish(2, stream.absent(2, files), files)
    assert is_refused(outcome)
    assert DELETES in outcome.reason
    assert tables.lakes["items"].ids() == [2]
    tables.close()


def test_tables_of_a_stream_have_their_own_folders_and_identities(tables: Tables) -> None:
    found = tables.group(USER, ANCHOR, wanted(tables)).inspect().tables
    for name, each in found.items():
        assert isinstance(each, FurtherTable)
        assert each.identifier == tables.identifier(name)
        assert each.location.rstrip("/").startswith(tables.lakes[name].event([1]).location.rstrip("/"))
        assert each.allowed_locations[0] == each.location
