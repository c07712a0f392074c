"""A query with the sink of a lake format, in an environment with the runtimes of lake formats.

Usage: migrating_query.py JARS SETTINGS, with the paths of the jars separated by commas. Each line of standard
input runs the query until its source has no new file: `fail` lets the first batch fail. Each line of standard
output is the answer: `done` or `failed`.
"""

import json
import os
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit, raise_error, when


def main(jars: str, text: str) -> None:
    """Run the query for each line."""
    settings = json.loads(text)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
    for name, value in settings["session"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        try:
            run(spark, settings, fails=line.strip() == "fail")
        except StreamingQueryException:
            answers.write("failed\n")
        else:
            answers.write("done\n")
        answers.flush()
    spark.stop()


def run(spark: SparkSession, settings: dict[str, str], *, fails: bool) -> None:
    """Run the query until its source has no new file."""
    rows = (
        spark.readStream.schema(settings["columns"]).option("maxFilesPerTrigger", 1).json(settings["source"])
    )
    if fails:
        broken = when(rows.id >= 0, raise_error(lit("broken on purpose"))).otherwise(rows.origin)
        rows = rows.withColumn("origin", broken)
    writer = rows.writeStream.format(settings["format"]).outputMode("append")
    writer = writer.option("checkpointLocation", settings["location"]).trigger(availableNow=True)
    if settings["format"] == "iceberg":
        query = writer.option("fanout-enabled", "true").toTable(settings["table"])
    else:
        query = writer.start(settings["table"])
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
