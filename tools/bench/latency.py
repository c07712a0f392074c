"""Time from the last event of a checkpoint to its visible snapshot, beside bare pypaimon commits.

    python -m tools.bench.latency [--checkpoints 500] [--rate 5] [--json]

Kafka and the coordinator are processes of their own. The data files are written beforehand, by the Paimon
writer half into one table and by pypaimon's writer into a twin. A checkpoint is two `files.written` of five
files each and its completion; halfway to the next checkpoint pypaimon commits the same rows to the twin, so
that both meet the same machine. Ours counts from the LogAppendTime of the completion (whole milliseconds,
rounded down, so up to 1 ms too much), pypaimon's from the call of `StreamTableCommit.commit`; both count to
the moment at which another process sees the snapshot's name appear (inotify).
"""

import argparse
import asyncio
import ctypes
import gc
import logging
import multiprocessing
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pypaimon import CatalogFactory
from pypaimon.write.table_commit import StreamTableCommit

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.models import CutDecided, FilesWritten
from sluicegate.lakes.registry import adapter
from tools.bench.common import (
    STREAM,
    Region,
    coordinator,
    create_table,
    label_of,
    machine,
    make_topics,
    quantiles,
    read_log,
    report,
    rows,
    wait_until_registered,
)

FILES: Final = 10
TASKS: Final = 2
ROWS: Final = 20
WARM_UP: Final = 10
PATIENCE: Final = 60.0
ORIGINS: Final = tuple(f"A{n:02d}" for n in range(FILES))

_IN_CREATE: Final = 0x100
_IN_MOVED_TO: Final = 0x80
_EVENT: Final = struct.Struct("iIII")


# --- who sees the snapshots ---------------------------------------------------------------------------


def _watch(folders: dict[str, str], pipe: Connection) -> None:
    """Note when snapshots appear, until the other end says stop."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init()
    tables = {
        libc.inotify_add_watch(descriptor, folder.encode(), _IN_CREATE | _IN_MOVED_TO): table
        for table, folder in folders.items()
    }
    seen: dict[str, dict[int, int]] = {table: {} for table in folders}
    pipe.send("watching")
    while True:
        raw, now = os.read(descriptor, 65536), time.time_ns()
        at = 0
        while at < len(raw):
            watch, _, _, size = _EVENT.unpack_from(raw, at)
            name = raw[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0").decode()
            at += _EVENT.size + size
            if name == "snapshot-stop":
                pipe.send(seen)
                return
            if name.startswith("snapshot-") and name[9:].isdigit():
                seen[tables[watch]].setdefault(int(name[9:]), now)


class SnapshotWatch:
    """A process that notes when each snapshot of the tables appears."""

    def __init__(self, tables: dict[str, Path]) -> None:
        folders = {name: table / "snapshot" for name, table in tables.items()}
        for folder in folders.values():
            folder.mkdir(exist_ok=True)
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._stop = next(iter(folders.values())) / "snapshot-stop"
        named = {name: str(folder) for name, folder in folders.items()}
        self._process = context.Process(target=_watch, args=(named, theirs), daemon=True)
        self._process.start()
        self._pipe.recv()

    def seen(self) -> dict[str, dict[int, int]]:
        """End it; nanoseconds since the Unix epoch by table and snapshot."""
        self._stop.touch()
        found: dict[str, dict[int, int]] = self._pipe.recv()
        self._stop.unlink()
        self._process.join()
        return found


# --- the work, prepared -------------------------------------------------------------------------------


@dataclass
class Work:
    """The same rows as our events and as pypaimon's commit messages, by checkpoint."""

    ours: list[list[FilesWritten]]
    theirs: list[list[Any]]


def prepare(ours: Path, twin: Any, checkpoints: int) -> Work:
    """Write all data files."""
    work = Work([], [])
    share = FILES // TASKS
    for checkpoint in range(checkpoints):
        events, messages = [], []
        for task in range(TASKS):
            first = (checkpoint * TASKS + task) * share * ROWS
            batch = rows(ORIGINS[task * share : (task + 1) * share], first, ROWS)
            writer = adapter("paimon").open_writer(
                adapter("paimon").parse_table(str(ours)), "at", label_of(checkpoint)
            )
            writer.write(batch)
            files = tuple(writer.finish())
            version = adapter("paimon").format_version
            events.append(
                FilesWritten(
                    format="paimon",
                    format_version=version,
                    location=writer.location,
                    schema_id=writer.schema_id,
                    files=files,
                )
            )
            bare = twin.new_stream_write_builder().new_write()
            bare.write_arrow(pa.Table.from_batches([batch]))
            messages.extend(bare.prepare_commit(checkpoint))
            bare.close()
        work.ours.append(events)
        work.theirs.append(messages)
    return work


# --- the run ------------------------------------------------------------------------------------------


@dataclass
class Times:
    """Nanoseconds since the Unix epoch, by checkpoint."""

    sent: dict[int, int]
    appended: dict[int, int]
    acknowledged: dict[int, int]
    called: dict[int, int]
    returned: dict[int, int]


async def checkpoint_of_ours(region: Region, number: int, events: list[FilesWritten], times: Times) -> None:
    """Append a checkpoint as its executors and its driver would."""
    written = [await region.written(number, event) for event in events]
    for _, acknowledged in written:
        await acknowledged
    times.sent[number] = time.time_ns()
    record = await (await region.complete(number, [event for event, _ in written]))
    times.acknowledged[number] = time.time_ns()
    times.appended[number] = record.timestamp * 1_000_000


async def drive(region: Region, twin: Any, work: Work, rate: float) -> Times:
    """Run ours and the bare commits in turn, half a period apart."""
    bare = StreamTableCommit(twin, "bare")
    times = Times({}, {}, {}, {}, {})
    start = time.monotonic() + 0.5
    for number, (events, messages) in enumerate(zip(work.ours, work.theirs, strict=True)):
        await asyncio.sleep(start + number / rate - time.monotonic())
        await checkpoint_of_ours(region, number, events, times)
        await asyncio.sleep(start + (number + 0.5) / rate - time.monotonic())
        times.called[number] = time.time_ns()
        # On this thread: nothing else of this process is to run beside it.
        bare.commit(messages, number + 1)
        times.returned[number] = time.time_ns()
    return times


async def wait_for_the_last(region: Region, table: Path, checkpoints: int) -> None:
    """Wait until the last checkpoint's commit is visible: the snapshot with the number of its decision."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        decided, _ = await decisions(region)
        checkpoint, decision = decided[-1] if decided else (-1, 0)
        if checkpoint == checkpoints - 1 and (table / "snapshot" / f"snapshot-{decision}").exists():
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"the last checkpoint is not in the table after {PATIENCE:g} s")


async def decisions(region: Region) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Each decision's checkpoint and number, in order; and when it was appended, in nanoseconds."""
    found, appended = [], {}
    async for record in read_log(region.bootstrap, region.topics):
        if isinstance(record.body, CutDecided):
            found.append((record.body.cut[region.name].checkpoint, record.body.decision))
            appended[record.body.decision] = record.time * 1_000_000
    return found, appended


def snapshot_of_each(decided: list[tuple[int, int]], checkpoints: int) -> Iterator[tuple[int, int]]:
    """The decision that included each checkpoint. With one committing user it is the snapshot's number."""
    left = iter(decided)
    upto, decision = next(left)
    for number in range(checkpoints):
        while upto < number:
            upto, decision = next(left)
        yield number, decision


def figures(
    times: Times,
    seen: dict[str, dict[int, int]],
    decided: list[tuple[int, int]],
    appended: dict[int, int],
    checkpoints: int,
) -> dict[str, Any]:
    """Milliseconds, without the first checkpoints."""
    included = dict(snapshot_of_each(decided, checkpoints))
    counted = range(WARM_UP, checkpoints)
    ours = {n: seen["ours"][included[n]] for n in counted}
    twin = {n: seen["twin"][n + 1] for n in counted}

    def since(ends: dict[int, int], starts: dict[int, int]) -> dict[str, float]:
        return quantiles([(ends[n] - starts[n]) / 1e6 for n in counted])

    visible, bare = since(ours, times.appended), since(twin, times.called)
    decision_times = {n: appended[included[n]] for n in counted}
    return {
        "append_to_visible_ms": visible,
        "bare_call_to_visible_ms": bare,
        "above_bare_ms": {name: round(visible[name] - bare[name], 2) for name in visible},
        "send_to_visible_ms": since(ours, times.sent),
        "acknowledged_to_visible_ms": since(ours, times.acknowledged),
        "bare_call_to_return_ms": since(times.returned, times.called),
        "append_to_decision_ms": since(decision_times, times.appended),
        "decision_to_visible_ms": since(ours, decision_times),
        "checkpoints": checkpoints,
        "commits": len(decided),
    }


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep the prepared work out of the collector's way: a job would not hold it."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def count_rows(table: Path) -> int:
    """The rows of a table, by pypaimon's own reader."""
    catalog = CatalogFactory.create({"warehouse": str(table.parents[1])})
    builder = catalog.get_table(f"db.{table.name}").new_read_builder().with_projection(["id"])
    ids = builder.new_read().to_arrow(builder.new_scan().plan().splits())["id"]
    return len(ids.unique())


async def measure(folder: Path, bootstrap: str, checkpoints: int, rate: float) -> dict[str, Any]:
    """Prepare, run, and compare."""
    create_table(folder, "ours")
    twin = create_table(folder, "twin")
    tables = {"ours": folder / "db.db" / "ours", "twin": folder / "db.db" / "twin"}
    work = prepare(tables["ours"], twin, checkpoints)
    watch = SnapshotWatch(tables)
    topics = await make_topics(bootstrap)
    before = machine()
    with coordinator(folder, bootstrap, topics, tables["ours"]):
        async with Region(bootstrap, topics) as region:
            await region.register()
            await wait_until_registered(bootstrap, topics, region)
            with quiet_collector():
                times = await drive(region, twin, work, rate)
            await wait_for_the_last(region, tables["ours"], checkpoints)
            decided, appended = await decisions(region)
    found = figures(times, watch.seen(), decided, appended, checkpoints)
    expected = checkpoints * FILES * ROWS
    for table in tables.values():
        if (there := count_rows(table)) != expected:
            raise RuntimeError(f"{table.name} has {there} rows instead of {expected}")
    return {"stream": STREAM, "rate": rate, **found, "before": before, "after": machine()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoints", type=int, default=500)
    parser.add_argument("--rate", type=float, default=5.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        found = asyncio.run(measure(Path(folder), kafka.bootstrap, arguments.checkpoints, arguments.rate))
    report(found, as_json=arguments.json)


if __name__ == "__main__":
    main()
