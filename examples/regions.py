"""A streaming job with several regions in one driver: each region reads its part of a Kafka topic.

The job creates the table in LAKE/warehouse/default.db/flights. Run a coordinator (`sluicegate run`) with the
same Kafka and `[streams.flights] table = "/tmp/lake/warehouse/default.db/flights"`. The topic of the source
must exist; its values are lines of {"flight": ..., "airport": ..., "at": ...}. Spark needs its connector for
Kafka, of its own release:

    export PYSPARK_SUBMIT_ARGS="--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 pyspark-shell"
    python examples/regions.py 127.0.0.1:9092 /tmp/lake departures 2

The last argument is the number of regions. The job runs until SIGTERM or Ctrl-C; then each region finishes
its batch. Start it again with another number, and the regions of the new division continue where the old
ones have ended. docs/writers/regions.md has all of this.
"""

import logging
import os
import sys
from pathlib import Path

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

from sluicegate.writer_hooks.spark.regions import RegionRunner, Source, by_partition

COLUMNS = [("flight", pa.string()), ("airport", pa.string()), ("at", pa.timestamp("us", tz="UTC"))]


def make_table(lake: Path) -> Path:
    """Create the table if it does not exist, and return its folder."""
    catalog = CatalogFactory.create({"warehouse": str(lake / "warehouse")})
    catalog.create_database("default", True)
    catalog.create_table("default.flights", Schema.from_pyarrow_schema(pa.schema(COLUMNS)), True)
    return lake / "warehouse" / "default.db" / "flights"


def parsed(rows: DataFrame) -> DataFrame:
    """Return the columns of the table from the values of the topic."""
    value = from_json(col("value").cast("string"), "flight string, airport string, at timestamp")
    return rows.select(value.alias("row")).select("row.*")


def main(bootstrap: str, lake: Path, topic: str, count: int) -> None:
    """Run the regions until a signal."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers need this environment's packages
    table = make_table(lake)
    spark = SparkSession.builder.master("local[2]").appName("flights").getOrCreate()
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    options = {
        "stream": "flights",
        "table": str(table),
        "kafka.bootstrap.servers": bootstrap,
        "topic.prefix": os.environ.get("TOPIC_PREFIX", "sluicegate"),
        "event.time.column": "at",
        "registration.timeout": "forever",  # wait for a coordinator; the log says so after 10 s
    }
    runner = RegionRunner(
        spark,
        options,
        Source("kafka", source, transform=parsed),
        regions=by_partition(count),
        base=str(lake / "regions"),
        trigger={"processingTime": "1 second"},
        sink=os.environ.get("SINK"),
        status_interval=10.0,
    )
    runner.run()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]).absolute(), sys.argv[3], int(sys.argv[4]))
