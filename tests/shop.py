"""A shop for tests of streams with several tables: orders, their items, and a job that writes both.

The tables are Iceberg in a catalog of sqlite. The anchor is `shop.orders`, and `items` is a further table.
"""

import json
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.table import Table

from sluicegate.coordinator.settings.model import Settings, StreamSettings
from sluicegate.coordinator.stream.table import open_committer
from sluicegate.events.files import attempt_label
from sluicegate.events.models import FilesWritten, FurtherTable, KnownTable, TableVersion
from sluicegate.lakes.port import CommitRequest, Published, TablePart
from sluicegate.lakes.registry import adapter
from tests.contracts.lakes.iceberg_lake import open_library
from tests.integration.coordinator import settings_for
from tests.integration.job import Job

STREAM: Final = "shop"
SCHEMAS: Final = {
    "orders": pa.schema([("id", pa.int64()), ("total", pa.int64())]),
    "items": pa.schema([("order", pa.int64()), ("price", pa.int64())]),
}


class Shop:
    """The tables of a shop, in a folder."""

    def __init__(self, folder: Path, called: str = "default") -> None:
        """`called`: the name of the catalog."""
        self.folder = folder
        self.catalog = called
        folder.mkdir(parents=True, exist_ok=True)
        self.uri = f"sqlite:///{folder / 'catalog.db'}"
        with closing(open_library(self.catalog, self.uri, warehouse=folder.as_uri())) as catalog:
            catalog.create_namespace("shop")
        for name in SCHEMAS:
            self.make(name)

    def make(self, name: str, schema: str = "") -> None:
        """Make a table, which is empty; `schema` is that of another one."""
        with closing(open_library(self.catalog, self.uri, warehouse=self.folder.as_uri())) as catalog:
            catalog.create_table(f"shop.{name}", SCHEMAS[schema or name], location=self.place(name).as_uri())

    def drop(self, name: str) -> None:
        """Drop a table; its files stay."""
        with closing(open_library(self.catalog, self.uri)) as catalog:
            catalog.drop_table(f"shop.{name}")

    def register(self, name: str, metadata: Path) -> None:
        """Give a table its entry back."""
        with closing(open_library(self.catalog, self.uri)) as catalog:
            catalog.register_table(f"shop.{name}", metadata.as_uri())

    def place(self, name: str) -> Path:
        """Return the folder of a table."""
        return self.folder / "shop" / name

    def options(self, name: str = "orders") -> dict[str, str]:
        """Return the options of a table."""
        return {"uri": self.uri, "identifier": f"shop.{name}", "catalog": self.catalog}

    def stream(self, **more: Any) -> dict[str, Any]:
        """Return the settings of the stream."""
        return {
            "format": "iceberg",
            "table": str(self.place("orders")),
            "tables": {"items": "shop.items"},
            "options": self.options(),
            **more,
        }

    def settings(self, bootstrap: str, prefix: str, **more: Any) -> Settings:
        """Return the settings of a deployment with this stream."""
        return settings_for(bootstrap, prefix, {STREAM: self.stream()}, **more)

    def table(self, name: str) -> Table:
        """Return a table as pyiceberg has it."""
        with closing(open_library(self.catalog, self.uri)) as catalog:
            return catalog.load_table(f"shop.{name}")

    def vector(self) -> dict[str, Any]:
        """Return the vector that the anchor has for readers; empty if it has none."""
        text = self.table("orders").properties.get(f"sluicegate.cut.sluicegate-{STREAM}", "{}")
        found: dict[str, Any] = json.loads(text)
        return found

    def metadata(self, name: str) -> Path:
        """Return the newest metadata file of a table."""
        return Path("/" + self.table(name).metadata_location.removeprefix("file:").lstrip("/"))


class Commits:
    """The commits of the shop, without a coordinator."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.decision = 0
        self.newest = TableVersion()
        """The items, as of the newest decision."""
        self._settings = StreamSettings.model_validate(
            {**shop.stream(), "commit_user": f"sluicegate-{STREAM}"}
        )

    def commit(self, orders: Mapping[str, list[int]], items: Mapping[str, list[int]] | None = None) -> None:
        """Commit rows of the orders, and of the items if there are any, as the next decision."""
        self.decision += 1
        with closing(open_committer(self._settings)) as group:
            state = group.inspect()
            terms = state.tables["items"]
            assert isinstance(terms, FurtherTable), terms
            known = KnownTable(terms=terms, newest=self.newest)
            done = group.publish(
                CommitRequest(
                    decision=self.decision,
                    digest=f"digest-{self.decision}",
                    head=state.head,
                    watermark=None,
                    files=[self._written("orders", orders)],
                    tables={"items": TablePart(known, [self._written("items", items)])} if items else {},
                    vector={"items": self.newest},
                )
            )
        assert isinstance(done, Published), done
        if items:
            self.newest = TableVersion(decision=self.decision, snapshot=done.tables["items"])

    def _written(self, name: str, rows: Mapping[str, list[int]]) -> FilesWritten:
        return write(self.shop, name, rows, (STREAM, "r1", "q1", self.decision, name, "a1"))


def write(
    shop: Shop, name: str, rows: Mapping[str, list[int]], place: tuple[str, str, str, int, str, str]
) -> FilesWritten:
    """Write rows of a table as one attempt; `place` is what the label of its files is made from."""
    iceberg = adapter("iceberg")
    ref = iceberg.parse_table(str(shop.place(name)), shop.options(name))
    writer = iceberg.open_writer(ref, None, attempt_label(*place))
    for batch in pa.table(dict(rows)).cast(SCHEMAS[name]).to_batches():
        writer.write(batch)
    return FilesWritten(
        format="iceberg",
        format_version=iceberg.format_version,
        location=writer.location,
        schema_id=writer.schema_id,
        spec_id=writer.spec_id,
        table_identity=writer.table_identity,
        schema_digest=writer.schema_digest,
        files=tuple(writer.finish()),
    )


class ShopJob(Job):
    """The writers and the driver of the shop."""

    def __init__(self, shop: Shop, bootstrap: str, topics: Any, **how: Any) -> None:
        super().__init__(
            bootstrap,
            topics,
            STREAM,
            str(shop.place("orders")),
            lake="iceberg",
            lake_options=shop.options(),
            **how,
        )
        self.shop = shop

    async def __aenter__(self) -> "ShopJob":
        await super().__aenter__()
        return self

    async def sell(self, orders: int, prices: tuple[int, ...] = (3, 4)) -> None:
        """Complete a checkpoint with so many orders, and their items."""
        first = 1_000 * (self.batch + 1)
        ids = list(range(first, first + orders))
        items = [(each, price) for each in ids for price in prices]
        events = [await self.put("orders", {"id": ids, "total": [sum(prices)] * orders})]
        events.append(
            await self.put("items", {"order": [each for each, _ in items], "price": [p for _, p in items]})
        )
        await self.complete(*events)

    async def put(self, name: str, rows: Mapping[str, list[int]]) -> str:
        """Write rows of a table for the current checkpoint, and publish their files; return the event."""
        attempt = uuid.uuid4().hex
        place = (STREAM, self.region, self.incarnation, self.batch, name, attempt)
        body = write(self.shop, name, rows, place)
        table = {} if name == "orders" else {"table": name}
        return await self.written(body, writer=name, attempt=attempt, **table)
