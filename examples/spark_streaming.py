"""A streaming job that writes a Paimon table without committing it: the coordinator commits.

The job creates the table in LAKE/warehouse/default.db/flights. Run a coordinator (`sluicegate run`) with the
same Kafka and `[streams.flights] table = "/tmp/lake/warehouse/default.db/flights"`. A coordinator that starts
before the job stalls until the table exists, and then continues. Then:

    python examples/spark_streaming.py 127.0.0.1:9092 /tmp/lake examples/flights

The job reads the JSON files in the last folder, lines of {"flight": ..., "airport": ..., "at": ...}. Then it
ends, and its region is idle. The next run reads only new files. docs/quickstart.md shows all steps.
"""

import os
import sys
from pathlib import Path

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pyspark.sql import SparkSession

from sluicegate.writer_hooks import attach

COLUMNS = [("flight", pa.string()), ("airport", pa.string()), ("at", pa.timestamp("us", tz="UTC"))]


def make_table(lake: Path) -> Path:
    """Create the table if it does not exist, and return its folder."""
    catalog = CatalogFactory.create({"warehouse": str(lake / "warehouse")})
    catalog.create_database("default", True)
    catalog.create_table("default.flights", Schema.from_pyarrow_schema(pa.schema(COLUMNS)), True)
    return lake / "warehouse" / "default.db" / "flights"


def main(bootstrap: str, lake: Path, source: str) -> None:
    """Write everything that is new in the source."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers need this environment's packages
    table = make_table(lake)
    spark = SparkSession.builder.master("local[2]").appName("flights").getOrCreate()
    attach(spark)

    rows = spark.readStream.schema("flight string, airport string, at timestamp").json(source)
    query = (
        rows.writeStream.format("sluicegate")
        .option("stream", "flights")
        .option("region", "JFK")
        .option("table", str(table))
        .option("kafka.bootstrap.servers", bootstrap)
        .option("event.time.column", "at")
        .option("registration.timeout", "forever")  # wait for a coordinator; the log says so after 10 s
        .option("checkpointLocation", str(lake / "checkpoints" / "JFK"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]).absolute(), str(Path(sys.argv[3]).absolute()))
