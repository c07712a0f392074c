"""Spark with the runtimes of lake formats, in a process and an environment of its own.

Usage: worker.py JARS FOLDER, with the paths of the jars separated by commas. Each line of standard input is a
statement in JSON, or a map of settings for another session. Each line of standard output is its answer in
JSON: `rows`, or `error`.
"""

import json
import os
import sys
from typing import IO, Any

from pyspark.sql import SparkSession


def main(jars: str, folder: str) -> None:
    # Only answers go to standard output, whatever Spark prints.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    spark = session(jars, folder)
    spark.sparkContext.setLogLevel("ERROR")
    send(answers, {"rows": [[spark.version]]})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if isinstance(request, dict):
                spark = another(spark, request)
            rows = [] if isinstance(request, dict) else [list(row) for row in spark.sql(request).collect()]
        except Exception as error:  # any failure of a statement is the answer to it
            send(answers, {"error": str(error)})
        else:
            send(answers, {"rows": rows})
    spark.stop()


def session(jars: str, folder: str) -> SparkSession:
    """Start a session with few threads and little memory."""
    settings = {
        "spark.jars": jars,
        "spark.driver.memory": "900m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # Statements are small: compiling them costs more than it saves.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    builder = SparkSession.builder.master("local[1]").appName("judge")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def another(spark: SparkSession, settings: dict[str, str]) -> SparkSession:
    """Return a session of its own, with more settings."""
    made = spark.newSession()
    for name, value in settings.items():
        made.conf.set(name, value)
    return made


def send(answers: IO[str], answer: dict[str, Any]) -> None:
    print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
