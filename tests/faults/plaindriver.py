"""A driver without Spark that is killed from outside, with its writers in other processes.

python -m tests.faults.plaindriver SETTINGS.json [JOB_ID]

With the id of a job it writes that one job, and ends. Else it writes checkpoints for ever, up to the id in
the file `target`, until the file `done` stands beside the settings and all rows are committed. A writer that
needs long gets a second attempt, and the faster one counts.
"""

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from sluicegate.writer_hooks import Job, OpenCheckpoint, RegionDriver, WriterResult

ROWS: Final = 10
"""Of a writer."""
WRITERS: Final = 2
PATIENCE: Final = 1.0
"""Seconds after which a writer gets a second attempt."""


def write(checkpoint: str, writer: int, first: int) -> str:
    """Write the rows of one writer; runs in a process of the pool."""
    ids = range(first + writer * ROWS, first + (writer + 1) * ROWS)
    rows = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "origin": [f"o{writer}"] * ROWS,
            "at": pa.array([1_357_000_000_000_000] * ROWS, pa.int64()).cast(pa.timestamp("us")),
        }
    )
    opened = OpenCheckpoint.from_json(checkpoint)
    schema = pa.schema(
        [("id", pa.int64()), ("origin", pa.string()), ("at", TIMES[opened.options.get("format", "paimon")])]
    )
    return opened.write(f"w{writer}", rows.cast(schema)).to_json()


TIMES: Final = {
    "paimon": pa.timestamp("ms"),
    "iceberg": pa.timestamp("us"),
    "delta": pa.timestamp("us", tz="UTC"),
}
"""Type of the column `at`, by format."""


class Pool:
    """Processes that write. The pool is made again when one of them is killed."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def write(self, checkpoint: OpenCheckpoint, first: int) -> list[WriterResult]:
        """Write the rows of a checkpoint, however often a process of the pool is killed."""
        while True:
            try:
                return self._attempts(checkpoint.to_json(), first)
            except BrokenProcessPool:
                print(f"a writer of checkpoint {checkpoint.number} was killed", flush=True)
                self._pool = None

    def _attempts(self, checkpoint: str, first: int) -> list[WriterResult]:
        tries = [[self._submit(checkpoint, number, first)] for number in range(WRITERS)]
        found = []
        for number, each in enumerate(tries):
            if not wait(each, PATIENCE).done:
                each.append(self._submit(checkpoint, number, first))
            done = wait(each, return_when=FIRST_COMPLETED).done
            found.append(WriterResult.from_json(done.pop().result()))
        return found

    def _submit(self, *work: Any) -> "Future[str]":
        if self._pool is None:
            self._pool = ProcessPoolExecutor(WRITERS + 1, get_context("spawn"))
        return self._pool.submit(write, *work)


def run_driver(settings: Path, options: dict[str, str]) -> None:
    """Write checkpoints, from where the coordinator says that the source continues."""
    pool, done, target = Pool(), settings.with_name("done"), settings.with_name("target")
    with RegionDriver(options, heartbeat_interval=1.0) as driver:
        after = driver.committed
        following = 0 if after is None else int(after.source_offsets["next"])
        print(f"started at {following}", flush=True)
        newest = None
        while True:
            was_done = done.exists()
            if following < int(target.read_text()):
                newest = driver.begin()
                results = pool.write(newest, following)
                following += ROWS * WRITERS
                driver.complete(newest, results, source_offsets={"next": following})
            elif was_done:
                break
            else:
                time.sleep(0.02)  # time: no condition; this is a program that polls a file
        if newest is not None:
            driver.await_commit(newest)


def run_job(options: dict[str, str], job_id: str) -> None:
    """Write the rows of one job, whose id has their place in the source."""
    with Job(options, job_id) as job:
        if not job.start():
            print(f"{job_id} is committed already", flush=True)
            return
        results: Sequence[WriterResult] = Pool().write(job.checkpoint, int(job_id) * ROWS * WRITERS)
        job.finish(results)
        print(f"{job_id} is committed", flush=True)


def main() -> None:
    """Run as the arguments say."""
    settings = Path(sys.argv[1])
    options: dict[str, str] = json.loads(settings.read_text(encoding="utf-8"))
    if len(sys.argv) > 2:
        run_job(options, sys.argv[2])
    else:
        run_driver(settings, options)


if __name__ == "__main__":
    main()
