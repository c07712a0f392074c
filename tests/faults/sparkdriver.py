"""A Spark driver that is killed from outside: one streaming query, started again whenever it fails.

python -m tests.faults.sparkdriver SETTINGS.json
"""

import json
import os
import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from sluicegate.writer_hooks import ForeachBatch, attach

SESSION: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # The default runs a program of the system for every file where Hadoop's native library is missing.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def main() -> None:
    """Run until the file `done` stands beside the settings and everything there is has been processed."""
    settings = Path(sys.argv[1])
    given: dict[str, Any] = json.loads(settings.read_text(encoding="utf-8"))
    session = _session(given)
    chance = random.Random(given["seed"])
    done, restart = settings.with_name("done"), settings.with_name("restart")
    query = _start(session, given)
    while not done.exists():
        _ends(query, 0.1)
        if query.exception() is not None or not query.isActive:
            print(f"starting again after {str(query.exception())[:200]!r}", flush=True)
            query = _started(session, given)
        elif restart.exists() or chance.random() < given["stop"]:
            restart.unlink(missing_ok=True)
            # Tasks of the stopped run may still be writing when the next one begins.
            query.stop()
            query = _started(session, given)
    _finish(session, given, query)
    session.stop()


def _session(given: dict[str, Any]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(given["master"]).appName("faults")
    for name, value in {**SESSION, **given["session"], "spark.local.dir": f"{given['folder']}/spark"}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    attach(session, heartbeat_interval=1.0)
    return session


def _start(session: SparkSession, given: dict[str, Any]) -> StreamingQuery:
    reading = session.readStream.format(given["files"]).schema(given["schema"])
    rows = reading.option("maxFilesPerTrigger", 1).load(given["source"])
    if given["tasks"]:
        rows = rows.repartition(given["tasks"])
    writing = rows.writeStream.trigger(processingTime="0 seconds").options(**given["options"])
    if given["way"] == "foreach":
        sink, order = ForeachBatch(given["options"]), given["order"]
        if order:
            return writing.foreachBatch(lambda rows, batch: sink(rows.orderBy(order), batch)).start()
        return writing.foreachBatch(sink).start()
    return writing.format("sluicegate").start()


def _started(session: SparkSession, given: dict[str, Any]) -> StreamingQuery:
    """Start the query, however often that fails."""
    while True:
        try:
            return _start(session, given)
        except PySparkException as error:
            # Each try starts a Python worker, so it takes its time.
            print(f"not started: {str(error)[:200]!r}", flush=True)


def _ends(query: StreamingQuery, seconds: float) -> None:
    """Wait until the query ends, however it does, for so long at most."""
    with suppress(PySparkException):
        query.awaitTermination(seconds)


def _finish(session: SparkSession, given: dict[str, Any], query: StreamingQuery) -> None:
    while True:
        try:
            query.processAllAvailable()
            query.stop()
        except PySparkException as error:
            print(f"once more after {str(error)[:200]!r}", flush=True)
            query = _started(session, given)
        else:
            return


if __name__ == "__main__":
    main()
