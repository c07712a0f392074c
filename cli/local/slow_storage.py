"""A region whose storage is slow for a while, and then silent."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark import daemon

from sluicegate.lakes import FileWriter

if TYPE_CHECKING:
    import pyarrow as pa

    from sluicegate.events.models import FileInfo
    from sluicegate.lakes import Adapter
    from sluicegate.lakes.port import TableRef
    from sluicegate.writer_hooks.options import Target
    from sluicegate.writer_hooks.region import Attempt, Event, Region
    from sluicegate.writer_hooks.writer import Written


VARIABLE: Final = "SLUICEGATE_DEMO_SLOW"
"""Environment variable with the plan; the executors' Python processes inherit it from the driver."""

_SLOW_SECONDS: Final = 1.5
_SILENT_SECONDS: Final = 8.0


@dataclass(frozen=True, slots=True)
class Slowness:
    """Seconds by which the storage of one region delays the files of some of its batches."""

    region: str
    delays: Mapping[int, float]

    @classmethod
    def plan(cls, region: str, batches: int) -> "Slowness":
        """Plan a few slow batches after the first ones, then one very slow batch, then no delay."""
        first, count = max(1, batches // 8), max(1, batches // 10)
        slow = dict.fromkeys(range(first, first + count), _SLOW_SECONDS)
        return cls(region, {**slow, first + count: _SILENT_SECONDS})

    def to_text(self) -> str:
        """Format the plan for the environment variable."""
        delays = {str(batch): seconds for batch, seconds in self.delays.items()}
        return json.dumps({"region": self.region, "delays": delays})

    @classmethod
    def from_text(cls, text: str) -> "Slowness":
        """Parse the text of `to_text`."""
        found = json.loads(text)
        return cls(found["region"], {int(batch): seconds for batch, seconds in found["delays"].items()})

    def delay(self, region: str, batch: int) -> float:
        """Return the delay of the batch's files in seconds."""
        return self.delays.get(batch, 0.0) if region == self.region else 0.0


class SlowWriter:
    """Writer that pauses before a file is durable."""

    def __init__(self, inner: FileWriter, pause: Callable[[], None]) -> None:
        self._inner = inner
        self._pause = pause
        self.location = inner.location
        self.schema_id = inner.schema_id
        self.spec_id = inner.spec_id
        self.table_identity, self.schema_digest = inner.table_identity, inner.schema_digest

    def write(self, batch: "pa.RecordBatch") -> None:
        """See FileWriter."""
        self._inner.write(batch)

    def finish(self) -> Iterator["FileInfo"]:
        """See FileWriter."""
        self._pause()
        return self._inner.finish()

    def abort(self) -> None:
        """See FileWriter."""
        self._inner.abort()


# Daemon of Python workers for Spark, which slows down the storage of one region.
#
# Spark starts it as `spark.python.daemon.module`. The environment variable of `slow` has the plan.


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
    from sluicegate.writer_hooks.spark import source
    from sluicegate.writer_hooks.writer import write_attempt

    def late(
        region: "Region", attempt: "Attempt", target: "Target", batches: Iterable["pa.RecordBatch"]
    ) -> "tuple[Written, list[Event]]":
        seconds = slowness.delay(region.name, attempt.checkpoint)
        if seconds:
            target = replace(target, adapter=_SlowAdapter(target.adapter, seconds))  # type: ignore[arg-type]
        return write_attempt(region, attempt, target, batches)

    source.write_attempt = late  # type: ignore[attr-defined]


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
