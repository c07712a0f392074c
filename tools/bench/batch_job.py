"""A streaming query that says which batch runs, for tools.bench.entered_batch.

    python batch_job.py FOLDER BATCHES

It is a process of its own, so that the tracer is there before the product.
"""

import importlib
import importlib.util
import mmap
import sys
from pathlib import Path
from typing import Any

from sluicegate.writer_hooks import ForeachBatch

# The checkout that is measured may have its benchmarks, and what they import, at another place.
_BENCH = "tools.bench" if importlib.util.find_spec("tools") else "bench"
RATES = importlib.import_module(f"{_BENCH}.hook_rates")


def main(folder: Path, batches: int) -> None:
    """Run the query, and state the number of the current batch."""
    with (folder / "batch").open("r+b") as file:
        current = mmap.mmap(file.fileno(), 1)
    RATES.make_input(folder / "in", batches, 2_000, 1)
    spark = RATES.make_session(folder)
    with RATES.EmbeddedKafka() as kafka, RATES.served("paimon", folder, kafka.bootstrap) as table:
        place = {"checkpointLocation": str(folder / "checkpoint")}
        # The coordinator has the environment of this process, and so the tracer.
        (folder / "coordinator.pid").write_text(str(table.process.pid))
        write = ForeachBatch({**table.sink, **place})

        def traced(frame: Any, number: int) -> None:
            current[0] = number + 1
            write(frame, number)
            current[0] = 0

        reader = spark.readStream.schema(RATES.spark_schema()).option("maxFilesPerTrigger", 2)
        writing = reader.parquet(str(folder / "in")).writeStream.trigger(availableNow=True)
        writing.options(**place).foreachBatch(traced).start().awaitTermination()
        table.await_commit(batches - 1)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
