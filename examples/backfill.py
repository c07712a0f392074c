"""A backfill: many Parquet files become one commit, written by several processes, without Spark.

    python examples/backfill.py 127.0.0.1:9092 /tmp/lake/warehouse/default.db/orders backfill-2026 /data/old

Each process reads some of the files in the folder, and writes them as one writer of the job. The job id is
committed once: a second run with it writes nothing, also after a crash of the first one. The region `jobs`
must be one of the stream's regions, and streaming regions continue meanwhile.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow.parquet as pq

from sluicegate.writer_hooks import Job, OpenCheckpoint, Writer, WriterResult


def write_files(checkpoint: str, name: str, files: list[str]) -> str:
    """Write some files as one writer; runs in a worker process. Return the result for the driver."""
    with Writer(OpenCheckpoint.from_json(checkpoint), name) as writer:
        for file in files:
            with pq.ParquetFile(file) as source:
                for batch in source.iter_batches():
                    writer.write(batch)
        return writer.finish().to_json()


def main() -> None:
    """Run one job."""
    parser = argparse.ArgumentParser(description="Write the Parquet files of a folder as one commit.")
    parser.add_argument("bootstrap", help="Kafka, host:port")
    parser.add_argument("table", help="location of the table")
    parser.add_argument("job_id", help="a name that no other backfill has")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stream", default="orders")
    parser.add_argument("--regions", default="orders,jobs", help="all regions of the stream")
    parser.add_argument("--assignment", default="1", help="number of this list of regions")
    parser.add_argument("--format", default="paimon", help="that of the table")
    parser.add_argument("--topic-prefix", default="sluicegate", help="that of the coordinator")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    options = {
        "stream": given.stream,
        "region": "jobs",
        "regions": given.regions,
        "assignment": given.assignment,
        "table": given.table,
        "format": given.format,
        "kafka.bootstrap.servers": given.bootstrap,
        "topic.prefix": given.topic_prefix,
    }
    files = sorted(str(path) for path in given.folder.glob("*.parquet"))
    if not files:
        raise SystemExit(f"{given.folder} has no file *.parquet")
    with Job(options, given.job_id) as job:
        if not job.start():
            print(f"{given.job_id} is committed already")
            return
        checkpoint = job.checkpoint.to_json()
        with ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
            running = [
                pool.submit(write_files, checkpoint, f"w{number}", files[number :: given.workers])
                for number in range(given.workers)
            ]
            results = [WriterResult.from_json(each.result()) for each in running]
        job.finish(results)
    print(f"{given.job_id}: {sum(each.written.rows for each in results)} rows")


if __name__ == "__main__":
    main()
