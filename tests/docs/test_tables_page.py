"""The page of several tables: its settings are read, and each of its readers sees one commit."""

import json
import re
import runpy
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog

from sluicegate.coordinator.settings.model import validate
from tests.contracts.lakes.iceberg_lake import open_library
from tests.iceberg_duck import duck
from tests.iceberg_java.java import sql_catalog
from tests.shop import STREAM, Commits, Shop
from tests.spark_judge.judge import SparkJudge

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
ORDERS: Final = {"id": [1, 2], "total": [7, 9]}
ITEMS: Final = {"order": [1, 1, 2], "price": [3, 4, 9]}
LATER: Final = {"id": [3], "total": [5]}, {"order": [3, 3], "price": [2, 3]}
VECTOR: Final = '{"decision":41,"anchor":8675309,"tables":{"items":[40,5550123]}}'


def blocks(kind: str, heading: str) -> list[str]:
    """Return the blocks of code of a section."""
    section = PAGE.partition(f"\n### {heading}\n")[2].partition("\n##")[0]
    return re.findall(rf"^```{kind}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Give tables with two commits."""
    shop = Shop(tmp_path)
    commits = Commits(shop)
    commits.commit(ORDERS, ITEMS)
    commits.commit(*LATER)
    return shop


def torn(shop: Shop) -> None:
    """Commit to the items as somebody else does: a reader of newest states sees sums that differ."""
    import pyarrow as pa

    with closing(open_library(shop.catalog, shop.uri)) as catalog:
        catalog.load_table("shop.items").append(pa.table({"order": [9], "price": [100]}))


def python(shop: Shop, monkeypatch: pytest.MonkeyPatch, *sections: str) -> dict[str, Any]:
    """Run the Python blocks of sections as one program, in which /lake is the folder of the shop."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    text = "".join(each for section in sections for each in blocks("python", section))
    program = shop.folder / "page.py"
    program.write_text(text.replace("/lake", str(shop.folder)), encoding="utf-8")
    return runpy.run_path(str(program))


def test_the_settings_of_the_page_can_be_read() -> None:
    (text,) = blocks("toml", "Settings")
    settings = validate({"kafka": {"bootstrap_servers": "k:1"}, **tomllib.loads(text)}, {})
    stream = settings.streams[STREAM]
    assert {name: each.identifier for name, each in stream.tables.items()} == {"items": "shop.items"}


def test_pyiceberg_reads_one_commit(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    torn(shop)
    found = python(shop, monkeypatch, "pyiceberg")
    assert sum(found["orders"]["total"].to_pylist()) == sum(found["items"]["price"].to_pylist()) == 21


def test_duckdb_reads_one_commit(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    torn(shop)
    monkeypatch.setattr("duckdb.sql", duck().sql)
    found = python(shop, monkeypatch, "pyiceberg", "DuckDB")
    assert found["sums"] == {"anchor": 21, "items": 21}


def test_spark_reads_one_commit(spark_judge: SparkJudge, tmp_path: Path) -> None:
    shop = Shop(tmp_path, called="lake")
    Commits(shop).commit(ORDERS, ITEMS)
    torn(shop)
    properties = {**sql_catalog(shop.folder / "catalog.db", shop.folder.as_uri()), "cache-enabled": "false"}
    settings = {f"spark.sql.catalog.lake.{name}": value for name, value in properties.items()}
    spark_judge.begin({"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog", **settings})
    (text,) = blocks("sql", "Spark")
    shown, *reads = [each.strip() for each in text.replace(f"-- {VECTOR}\n", "").split(";") if each.strip()]
    assert f"-- {VECTOR}" in text
    ((_, vector),) = spark_judge.sql(shown)
    cut = shop.vector()
    assert vector == shop.table("orders").properties["sluicegate.cut.sluicegate-shop"]
    ids = {"8675309": cut["anchor"], "5550123": cut["tables"]["items"][1]}
    for before, real in ids.items():
        reads = [each.replace(before, str(real)) for each in reads]
    assert [[*row] for each in reads for row in spark_judge.sql(each)] == [[16], [16]]
    assert [*spark_judge.sql("SELECT sum(price) FROM lake.shop.items")[0]] == [116]


# --- the reader of the example --------------------------------------------------------------------


EXAMPLE: Final = runpy.run_path(str(ROOT / "examples" / "read_tables.py"))


def expire(shop: Shop, name: str) -> None:
    """Forget all snapshots of a table but the newest one, as a clean-up does."""
    with closing(open_library(shop.catalog, shop.uri)) as catalog:
        table = catalog.load_table(f"shop.{name}")
        newest = table.current_snapshot()
        assert newest is not None
        old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != newest.snapshot_id]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()


def sums(shop: Shop) -> tuple[int, int]:
    with closing(open_library(shop.catalog, shop.uri)) as catalog:
        found = EXAMPLE["at_one_commit"](catalog, "shop.orders", {"items": "shop.items"}, "sluicegate-shop")
        orders, items = found["anchor"].scan().to_arrow(), found["items"].scan().to_arrow()
    return sum(orders["total"].to_pylist()), sum(items["price"].to_pylist())


def test_the_example_reads_again_after_a_commit_between_its_two_loads(tmp_path: Path) -> None:
    shop, loads = Shop(tmp_path), list[str]()
    commits = Commits(shop)
    commits.commit(ORDERS, ITEMS)
    commits.commit(*LATER)

    class Racing:
        """A catalog in which a commit and a clean-up come after the first load of the anchor."""

        def __init__(self, catalog: Catalog) -> None:
            self._catalog = catalog

        def load_table(self, identifier: str) -> Any:
            found = self._catalog.load_table(identifier)
            loads.append(identifier)
            if len(loads) == 1:
                commits.commit({"id": [4], "total": [1]}, {"order": [4], "price": [1]})
                expire(shop, "items")
            return found

    with closing(open_library(shop.catalog, shop.uri)) as catalog:
        found = EXAMPLE["at_one_commit"](
            Racing(catalog), "shop.orders", {"items": "shop.items"}, "sluicegate-shop"
        )
        assert sum(found["items"].scan().to_arrow()["price"].to_pylist()) == 22
    assert loads == ["shop.orders", "shop.items", "shop.orders", "shop.items"]
    assert sums(shop) == (22, 22)


def test_the_example_reads_the_newest_state_of_a_table_whose_snapshot_has_expired(shop: Shop) -> None:
    torn(shop)
    expire(shop, "items")
    # The mark is that of the vector's decision, so nothing of the stream is in it that the others lack.
    assert sums(shop) == (21, 121)


def test_the_example_needs_a_vector(shop: Shop) -> None:
    with (
        closing(open_library(shop.catalog, shop.uri)) as catalog,
        pytest.raises(LookupError, match="no commit of other"),
    ):
        EXAMPLE["at_one_commit"](catalog, "shop.orders", {"items": "shop.items"}, "other")


def test_the_example_prints_each_table(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    EXAMPLE["main"](shop.uri, "sluicegate-shop", "shop.orders", {"items": "shop.items"})
    cut = shop.vector()
    assert capsys.readouterr().out.splitlines() == [
        f"anchor: snapshot {cut['anchor']}, 3 rows",
        f"items: snapshot {cut['tables']['items'][1]}, 5 rows",
    ]


def test_the_example_takes_no_state_of_a_table_that_was_rolled_back(shop: Shop) -> None:
    """Its mark survives the rollback, and the snapshot of the vector is gone."""
    table = shop.table("items")
    with table.manage_snapshots() as changes:
        changes.rollback_to_snapshot(table.snapshots()[0].snapshot_id)
    expire(shop, "items")
    with pytest.raises(TimeoutError, match=r"items does not show commit \d+ in 10 tries"):
        sums(shop)


def test_the_example_goes_by_the_history_if_the_vector_names_no_snapshot(shop: Shop) -> None:
    """So it is after a commit that left the table out: the mark alone would not show the rollback."""
    cut = shop.vector()
    cut["tables"]["items"][1] = None
    with shop.table("orders").transaction() as change:
        change.set_properties({"sluicegate.cut.sluicegate-shop": json.dumps(cut)})
    right = sums(shop)
    torn(shop)
    assert sums(shop) == (right[0], right[1] + 100), "the rows of another writer are of no commit here"
    table = shop.table("items")
    made = [each for each in table.snapshots() if each.summary and each.summary.get("sluicegate.user")]
    with table.manage_snapshots() as changes:
        changes.rollback_to_snapshot(made[-2].snapshot_id)
    torn(shop)
    # The head is newer than the mark again.
    with pytest.raises(TimeoutError, match="items does not show commit"):
        sums(shop)
    # Nor is one right whose own history ends before all commits of the stream.
    table = shop.table("items")
    newest = table.metadata.current_snapshot_id
    past = [
        each.snapshot_id
        for each in table.snapshots()
        if each.snapshot_id not in (newest, made[-1].snapshot_id)
    ]
    table.maintenance.expire_snapshots().by_ids(past).commit()
    with pytest.raises(TimeoutError, match="items does not show commit"):
        sums(shop)
