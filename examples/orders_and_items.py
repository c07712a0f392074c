r"""One query of Spark writes orders and their items into two tables, and a reader compares the sums of both.

    sluicegate up --dir try --stream shop --option uri=sqlite:////tmp/shop/catalog.db \
        --table orders=/tmp/shop/shop/orders --table items=/tmp/shop/shop/items
    python examples/orders_and_items.py write 127.0.0.1:9092 /tmp/shop
    python examples/orders_and_items.py read /tmp/shop

`write` makes the tables if they are not there, and writes orders until Ctrl-C. A batch is one checkpoint, so
its orders and items become visible together. `read` reads both tables again and again until Ctrl-C: by the
vector, whose sums always agree, and at their newest states, whose sums may not. Kill the coordinator as often
as you like meanwhile. The address of Kafka is that which `sluicegate up` prints. docs/tables.md explains the
vector.
"""

import os
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import DataScan
from pyspark.sql import DataFrame, SparkSession
from read_tables import at_one_commit  # type: ignore[import-not-found]  # it lies beside this file

from sluicegate.writer_hooks import ForeachBatch, attach

ORDERS = pa.schema([("id", pa.int64()), ("total", pa.int64())])
ITEMS = pa.schema([("order", pa.int64()), ("price", pa.int64())])
USER = "sluicegate-shop"


def open_catalog(lake: Path) -> Catalog:
    """Return the catalog of the tables, which are made if they are not there."""
    lake.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("default", uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=lake.as_uri())
    catalog.create_namespace_if_not_exists("shop")
    for name, columns in {"orders": ORDERS, "items": ITEMS}.items():
        location = (lake / "shop" / name).as_uri()
        catalog.create_table_if_not_exists(f"shop.{name}", columns, location=location)
    return catalog


def split(rows: DataFrame, _: int) -> dict[str, DataFrame]:
    """Return the rows of each table. An order has up to four items; its total is the sum of their prices."""
    prices = "transform(sequence(0L, value % 4), k -> (value * 7 + k * 13) % 100) AS prices"
    orders = rows.selectExpr("value AS id", prices)
    return {
        "": orders.selectExpr("id", "aggregate(prices, 0L, (sum, price) -> sum + price) AS total"),
        "items": orders.selectExpr("id AS order", "explode(prices) AS price"),
    }


def write(bootstrap: str, lake: Path) -> None:
    """Write 50 orders a second."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers need this environment's packages
    open_catalog(lake).close()
    spark = SparkSession.builder.master("local[2]").appName("shop").getOrCreate()
    attach(spark)
    checkpoints = str(lake / "checkpoints" / "all")
    options = {
        "checkpointLocation": checkpoints,
        "stream": "shop",
        "region": "all",
        "format": "iceberg",
        "table": str(lake / "shop" / "orders"),
        "table.uri": f"sqlite:///{lake / 'catalog.db'}",
        "tables.items": "shop.items",
        "kafka.bootstrap.servers": bootstrap,
        "topic.prefix": os.environ.get("TOPIC_PREFIX", "sluicegate"),
        "registration.timeout": "forever",  # wait for a coordinator; the log says so after 10 s
    }
    query = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 50)
        .load()
        .writeStream.foreachBatch(ForeachBatch(options, split))
        .option("checkpointLocation", checkpoints)
        .trigger(processingTime="0.5 seconds")
        .start()
    )
    query.awaitTermination()


@dataclass
class Reads:
    """Results of a reader."""

    vectors: int = 0
    """Reads of both tables by the vector."""
    torn: int = 0
    """Those of them whose sums differ."""
    apart: int = 0
    """Reads of the newest states whose sums differ."""
    orders: int = 0
    """Orders at the newest vector."""

    def look(self, catalog: Catalog) -> None:
        """Read both tables, by the vector and at their newest states. Raises LookupError before a commit."""
        tables = at_one_commit(catalog, "shop.orders", {"items": "shop.items"}, USER)
        orders = tables["anchor"].scan()
        self.vectors += 1
        self.torn += sum_of(orders, "total") != sum_of(tables["items"].scan(), "price")
        self.orders = orders.count()
        newest = (catalog.load_table(f"shop.{name}").scan() for name in ("items", "orders"))
        self.apart += sum_of(next(newest), "price") != sum_of(next(newest), "total")


def sum_of(scan: DataScan, column: str) -> int:
    """Return the sum of a column."""
    found: int | None = pc.sum(scan.select(column).to_arrow()[column]).as_py()
    return found or 0


def read(lake: Path) -> None:
    """Print what a reader sees."""
    reads = Reads()
    with closing(open_catalog(lake)) as catalog:
        while True:
            try:
                reads.look(catalog)
            except LookupError:
                continue  # no commit yet
            print(
                f"{reads.orders} orders, {reads.vectors} reads. Sums differ by the vector: {reads.torn}, "
                f"at the newest states: {reads.apart}",
                flush=True,
            )


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case ["write", bootstrap, lake]:
                write(bootstrap, Path(lake).absolute())
            case ["read", lake]:
                read(Path(lake).absolute())
            case _:
                sys.exit(__doc__)
    except KeyboardInterrupt:
        pass
