"""A shop: a stream that writes three tables of Iceberg in one catalog of sqlite. Orders are the anchor."""

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from sluicegate.coordinator.settings.model import Settings
from tests.contracts.lakes.iceberg_lake import open_library
from tests.integration.coordinator import settings_for

STREAM: Final = "shop"
USER: Final = "sluicegate-shop"
"""Commit user of the stream."""
FURTHER: Final = {"items": "shop.items", "Refunds": "shop.refunds"}
"""By name, the further tables. Spark does not keep the capital letter in the name of an option."""
ORDERS: Final = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
ITEMS: Final = pa.schema([("id", pa.int64()), ("text", pa.string())])


@dataclass(frozen=True)
class Shop:
    """The tables, in a folder of a test."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> "Shop":
        """Make the tables, without rows."""
        shop = cls(root)
        with closing(shop.catalog()) as catalog:
            catalog.create_namespace("shop")
            catalog.create_table("shop.orders", ORDERS)
            for identifier in FURTHER.values():
                catalog.create_table(identifier, ITEMS)
        return shop

    @property
    def uri(self) -> str:
        """Address of the catalog."""
        return f"sqlite:///{self.root / 'catalog.db'}"

    def catalog(self) -> SqlCatalog:
        """Open the catalog with pyiceberg."""
        return open_library("default", self.uri, warehouse=f"file://{self.root}")

    def location(self, name: str = "") -> str:
        """Return the folder of a table, by its name in the stream."""
        return str(self.root / "shop" / (name.lower() or "orders"))

    def settings(
        self,
        bootstrap: str,
        prefix: str,
        further: Mapping[str, str] = FURTHER,
        listeners: Mapping[str, Any] | None = None,
    ) -> Settings:
        """Settings of a coordinator of the stream."""
        stream = {
            "format": "iceberg",
            "table": self.location(),
            "options": {"uri": self.uri},
            "tables": dict(further),
            "listeners": dict(listeners or {}),
        }
        return settings_for(bootstrap, prefix, {STREAM: stream})

    def options(self, bootstrap: str = "127.0.0.1:1", prefix: str = "none", **more: str) -> dict[str, str]:
        """Options of a driver or of a sink."""
        return {
            "stream": STREAM,
            "region": "r1",
            "format": "iceberg",
            "table": self.location(),
            "table.uri": self.uri,
            **{f"tables.{name}": identifier for name, identifier in FURTHER.items()},
            "kafka.bootstrap.servers": bootstrap,
            "topic.prefix": prefix,
            "registration.timeout": "900",
            "publish.timeout": "900",
            **more,
        }

    def ids(self, name: str = "") -> list[int]:
        """Return the ids in a table, read with pyiceberg."""
        return self.ids_at(name, None)

    def ids_at(self, name: str, snapshot: int | None) -> list[int]:
        """Return the ids in a table at a snapshot; None: at its newest one."""
        with closing(self.catalog()) as catalog:
            table = catalog.load_table(FURTHER.get(name, "shop.orders"))
            return sorted(table.scan(snapshot_id=snapshot).to_arrow()["id"].to_pylist())

    def tags(self) -> dict[str, dict[str, int]]:
        """Return, by table, the snapshot of each tag."""
        with closing(self.catalog()) as catalog:
            return {
                name: {
                    tag: ref.snapshot_id
                    for tag, ref in catalog.load_table(identifier).refs().items()
                    if ref.snapshot_ref_type == "tag"
                }
                for name, identifier in {"": "shop.orders", **FURTHER}.items()
            }

    def sequence(self, name: str, snapshot: int) -> int | None:
        """Return the sequence number of a snapshot, which outcomes have as its number."""
        with closing(self.catalog()) as catalog:
            found = catalog.load_table(FURTHER[name]).snapshot_by_id(snapshot)
            return found.sequence_number if found is not None else None

    def vector(self) -> dict[str, Any]:
        """Return the vector that the anchor has for readers."""
        with closing(self.catalog()) as catalog:
            found: dict[str, Any] = json.loads(
                catalog.load_table("shop.orders").properties[f"sluicegate.cut.{USER}"]
            )
            return found

    def decisions(self, name: str = "") -> list[str]:
        """Return the decisions that a table has, oldest first."""
        with closing(self.catalog()) as catalog:
            table = catalog.load_table(FURTHER.get(name, "shop.orders"))
            summaries = [each.summary for each in table.metadata.snapshots if each.summary is not None]
            return [str(each.additional_properties["sluicegate.decision"]) for each in summaries]


def orders(*ids: int) -> pa.Table:
    """Rows of the anchor."""
    return pa.table({"id": ids, "at": list(ids)}, schema=ORDERS)


def items(ids: Iterable[int]) -> pa.Table:
    """Rows of a further table."""
    found = list(ids)
    return pa.table({"id": found, "text": ["x"] * len(found)}, schema=ITEMS)
