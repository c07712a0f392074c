"""Daemon of Python workers for Spark, which slows down the storage of one region.

Spark starts it as `spark.python.daemon.module`. The environment variable of `slow` has the plan.
"""

import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark import daemon

from sluicegate.demo.slow import VARIABLE, Slowness, SlowWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from sluicegate.lakes import Adapter, FileWriter
    from sluicegate.lakes.port import TableRef
    from sluicegate.writer_hooks.attempt import Target, Written
    from sluicegate.writer_hooks.region import Attempt, Event, Region


class _SlowAdapter:
    """Adapter whose writers are slow."""

    def __init__(self, inner: "Adapter", seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds
        self.name = inner.name
        self.format_version = inner.format_version
        self.port_version = inner.port_version

    def parse_table(self, text: str, options: Mapping[str, str]) -> "TableRef":
        return self._inner.parse_table(text, options)

    def open_committer(self, *how: object) -> object:
        raise NotImplementedError("a worker commits nothing")

    def open_writer(
        self,
        table: "TableRef",
        event_time_column: str | None,
        digest: str | None = None,
    ) -> "FileWriter":
        inner = self._inner.open_writer(table, event_time_column, digest)
        return SlowWriter(inner, lambda: time.sleep(self._seconds))


def make_slow(slowness: Slowness) -> None:
    """Delay the files that this process writes for the slow region."""
    # Imported after the fork: some libraries start threads on import, and threads do not survive a fork.
    from sluicegate.writer_hooks.attempt import write_attempt
    from sluicegate.writer_hooks.spark import writer

    def late(
        region: "Region", attempt: "Attempt", target: "Target", batches: Iterable["pa.RecordBatch"]
    ) -> "tuple[Written, list[Event]]":
        seconds = slowness.delay(region.name, attempt.checkpoint)
        if seconds:
            target = replace(target, adapter=_SlowAdapter(target.adapter, seconds))  # type: ignore[arg-type]
        return write_attempt(region, attempt, target, batches)

    writer.write_attempt = late  # type: ignore[attr-defined]


def main() -> None:
    """Serve until Spark ends."""
    slowness = Slowness.from_text(os.environ[VARIABLE])
    work = daemon.worker

    made: list[bool] = []

    def worker(sock: socket.socket, authenticated: bool) -> int:
        # Spark reuses worker processes, so this runs once for each task.
        if not made:
            make_slow(slowness)
            made.append(True)
        return int(work(sock, authenticated))

    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()
