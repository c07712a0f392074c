"""A streaming query with plain appends in foreachBatch, in an environment with the runtimes of lake formats.

Usage: doubling_peer.py JARS FOLDER FORMAT, with the paths of the jars separated by commas. It runs the query,
removes the newest entry of its commit log, and runs it again. It prints the rows of the table as JSON.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

CATALOG = "spark.sql.catalog.lake"


def main(jars: str, folder: str, kind: str) -> None:
    """Play the loss of one entry."""
    builder = SparkSession.builder.master("local[1]").appName("doubling")
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{CATALOG}.type": "hadoop",
        f"{CATALOG}.cache-enabled": "false",
        f"{CATALOG}.warehouse": f"{folder}/lake",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    if kind == "iceberg":
        spark.sql("CREATE TABLE lake.db.rows (id BIGINT) USING iceberg")
    run(spark, folder, kind)
    for path in newest_entry(Path(folder) / "checkpoint" / "commits"):
        path.unlink()
    run(spark, folder, kind)
    rows = (
        spark.table("lake.db.rows")
        if kind == "iceberg"
        else spark.read.format("delta").load(f"{folder}/rows")
    )
    found = {"rows": rows.count(), "distinct": rows.distinct().count(), "spark": spark.version}
    spark.stop()
    print(json.dumps(found))


def newest_entry(log: Path) -> list[Path]:
    """Return the newest entry of a log, with its checksum."""
    newest = max(int(path.name) for path in log.iterdir() if path.name.isdigit())
    return [path for path in (log / str(newest), log / f".{newest}.crc") if path.exists()]


def run(spark: SparkSession, folder: str, kind: str) -> None:
    """Run the query until its source has no new file."""

    def append(batch: DataFrame, number: int) -> None:
        if kind == "iceberg":
            batch.writeTo("lake.db.rows").append()
            return
        writer = batch.write.format("delta").mode("append")
        if kind == "delta with txnAppId":
            writer = writer.option("txnAppId", "rows").option("txnVersion", number)
        writer.save(f"{folder}/rows")

    source = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(f"{folder}/in")
    query = source.writeStream.foreachBatch(append).option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
