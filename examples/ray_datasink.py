"""A Datasink of Ray Data: a dataset becomes one commit, written by the tasks of Ray.

    python examples/ray_datasink.py 127.0.0.1:9092 /tmp/lake/warehouse/default.db/orders old-2026 /data/old

Each task of Ray writes its blocks as one writer of a job. Ray repeats tasks that fail; only results that it
returns to the driver count. The job id is committed once: a second run with it writes nothing, also after a
crash of the first one. It needs `pip install "ray[data]"`, and this package on each node of the cluster.
"""

import argparse
from collections.abc import Iterable
from typing import Any

import ray
from ray.data import Datasink
from ray.data.block import BlockAccessor

from sluicegate.writer_hooks import Job, OpenCheckpoint, Writer, WriterResult


class JobDatasink(Datasink):  # type: ignore[misc]
    """Datasink of a started job. Only its checkpoint goes to the tasks."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job: Job | None = job
        self._checkpoint = job.checkpoint.to_json()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_job": None}

    def write(self, blocks: Iterable[Any], ctx: Any) -> str:
        """Write the blocks of one task. Return the result for the driver."""
        with Writer(OpenCheckpoint.from_json(self._checkpoint), f"w{ctx.task_idx}") as writer:
            for block in blocks:
                rows = BlockAccessor.for_block(block).to_arrow()
                if rows.num_rows:
                    writer.write(rows)
            return writer.finish().to_json()

    def on_write_complete(self, write_result: Any) -> None:
        """Finish the job with the results that Ray returns, and wait for the commit."""
        if self._job is not None:
            self._job.finish([WriterResult.from_json(each) for each in write_result.write_returns])

    def on_write_failed(self, error: Exception) -> None:
        """Do nothing: a job that is not finished leaves only files that no event describes."""


def main() -> None:
    """Write the Parquet files of a folder."""
    parser = argparse.ArgumentParser(description="Write the Parquet files of a folder as one commit.")
    parser.add_argument("bootstrap", help="Kafka, host:port")
    parser.add_argument("table", help="location of the table")
    parser.add_argument("job_id", help="a name that no other job has")
    parser.add_argument("folder")
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
    with Job(options, given.job_id) as job:
        if not job.start():
            print(f"{given.job_id} is committed already")
            return
        dataset = ray.data.read_parquet(given.folder).materialize()
        dataset.write_datasink(JobDatasink(job))
    print(f"{given.job_id}: {dataset.count()} rows")


if __name__ == "__main__":
    main()
