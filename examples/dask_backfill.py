"""A backfill with Dask: many Parquet files become one commit, written by the workers of a Dask cluster.

    python examples/dask_backfill.py 127.0.0.1:9092 /tmp/lake/warehouse/default.db/orders old-2026 /data/old

Each task writes one file as one writer of a job. Dask repeats tasks whose worker is lost; only results that
it returns to the driver count. The job id is committed once: a second run with it writes nothing, also after
a crash of the first one. It needs `pip install dask distributed`, and this package on each worker.
"""

import argparse
from pathlib import Path

import pyarrow.parquet as pq
from distributed import Client

from sluicegate.writer_hooks import Job, OpenCheckpoint, Writer, WriterResult


def write_file(checkpoint: str, name: str, file: str) -> str:
    """Write one file as one writer; runs in a worker of Dask. Return the result for the driver."""
    with Writer(OpenCheckpoint.from_json(checkpoint), name) as writer, pq.ParquetFile(file) as source:
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
    parser.add_argument("--scheduler", help="address of a Dask cluster; else one on this machine")
    parser.add_argument("--stream", default="orders")
    parser.add_argument("--regions", default="orders,jobs", help="all regions of the stream")
    parser.add_argument("--assignment", default="1", help="number of this list of regions")
    parser.add_argument("--format", default="paimon", help="that of the table")
    parser.add_argument("--topic-prefix", default="sluicegate", help="that of the coordinator")
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
        with Client(given.scheduler, **({} if given.scheduler else {"dashboard_address": ":0"})) as client:
            running = [
                client.submit(write_file, checkpoint, f"w{number}", file, pure=False)
                for number, file in enumerate(files)
            ]
            results = [WriterResult.from_json(each) for each in client.gather(running)]
        job.finish(results)
    print(f"{given.job_id}: {sum(each.written.rows for each in results)} rows")


if __name__ == "__main__":
    main()
