"""What one checkpoint of very many files costs the coordinator: its memory above idle, and its time.

    python -m bench.scale [--files 10000 100000 1000000] [--each 100] [--rounds 1] [--json]

Every size has a table, topics and a coordinator (a process of its own) for itself, with default settings but
for the limit of the files in one checkpoint (`max_files_per_checkpoint`), which is raised. The files are hard
links of ten real ones, with entries of their own (about 650 bytes each, statistics of 28 columns, equal but
for the name), so that the coordinator looks at every one of them as at any. The events
are appended while the coordinator reads; when it has read them all, the completion that names them follows.
Time counts from its append to the snapshot's appearance. Memory is the peak of the resident set
(VmHWM) from the first event to the end, above the resident set when the opening had been answered.
`cpu_s` is the coordinator's processor time from the completion on, which busy neighbours disturb less.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any, Final

import fastavro

from bench.bulk import ROWS, Bulk
from bench.common import (
    STREAM,
    Region,
    create_table,
    machine,
    make_topics,
    report,
    start_coordinator,
    wait_ready,
    wait_until_registered,
    write_settings,
)
from sluicegate.embedded import EmbeddedKafka
from sluicegate.embedded.ports import free_port
from sluicegate.embedded.process import ChildProcess
from sluicegate.kafka.topics import TopicNames

PATIENCE: Final = 1800.0
_KIB: Final = 1024


def memory(pid: int, field: str) -> int:
    """A line of /proc/PID/status, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * _KIB
    raise RuntimeError(f"no {field}")


def processor_seconds(pid: int) -> float:
    """What a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def wait_for_snapshot(table: Path, process: ChildProcess, port: int) -> float:
    """When the first snapshot of the table appeared, in seconds since the Unix epoch.

    Raises RuntimeError if the stream stalls instead.
    """
    snapshot = table / "snapshot" / "snapshot-1"
    deadline, looks = time.monotonic() + PATIENCE, 0
    while time.monotonic() < deadline and process.poll() is None:
        if snapshot.exists():
            return snapshot.stat().st_mtime
        await asyncio.sleep(0.02)
        looks += 1
        if looks % 500 == 0:
            streams = (await asyncio.to_thread(status_of, port))["streams"]
            conditions = [each for stream in streams.values() for each in stream["conditions"]]
            if stalled := next((each["message"] for each in conditions if each["kind"] == "stall"), None):
                raise RuntimeError(stalled)
    raise TimeoutError("no snapshot")


def committed(table: Path) -> tuple[int, int]:
    """Files and rows that the first snapshot adds, as its manifest list says."""
    snapshot = json.loads((table / "snapshot" / "snapshot-1").read_text())
    listed = (table / "manifest" / snapshot["deltaManifestList"]).read_bytes()
    files = sum(
        meta["_NUM_ADDED_FILES"] for meta in fastavro.reader(BytesIO(listed)) if isinstance(meta, dict)
    )
    return files, snapshot["deltaRecordCount"]


async def wait_until_read(port: int, offset: int) -> None:
    """Wait until the coordinator has read up to an offset."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        status = await asyncio.to_thread(status_of, port)
        if any(each["position"] >= offset for each in status["partitions"].values()):
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("the events are not read")


def status_of(port: int) -> dict[str, Any]:
    """The coordinator's status."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


@contextmanager
def coordinator(
    folder: Path, bootstrap: str, topics: TopicNames, files: int
) -> Iterator[tuple[int, ChildProcess]]:
    """Give the port and the process of a coordinator that takes so many files in a checkpoint."""
    port = free_port()
    settings = write_settings(folder, bootstrap, topics, folder / "db.db" / "t", port)
    limit = f"SLUICEGATE_STREAMS__{STREAM.upper()}__MAX_FILES_PER_CHECKPOINT"
    process = start_coordinator(settings, {limit: str(max(files, 100_000))})
    try:
        wait_ready(process, port, folder / "coordinator.log")
        yield port, process
    finally:
        process.end(20.0)


async def one(folder: Path, bootstrap: str, files: int, each: int) -> dict[str, Any]:
    """One checkpoint of so many files."""
    create_table(folder, "t")
    table = folder / "db.db" / "t"
    topics = await make_topics(bootstrap)
    bulk = Bulk(table)
    with coordinator(folder, bootstrap, topics, files) as (port, process):
        async with Region(bootstrap, topics) as region:
            await region.register()
            await wait_until_registered(bootstrap, topics, region)
            idle = memory(process.pid, "VmRSS")
            ids = await bulk.append(region, files // each, each)
            # The policy, the registration, and the events stand before it.
            await wait_until_read(port, len(ids) + 2)
            read = memory(process.pid, "VmHWM")
            before = processor_seconds(process.pid)
            appended = (await (await region.complete(0, ids))).timestamp / 1000
            visible = await wait_for_snapshot(table, process, port)
            cpu = processor_seconds(process.pid) - before
            peak = memory(process.pid, "VmHWM")
    if committed(table) != (files, files * ROWS):
        raise RuntimeError(f"the snapshot has {committed(table)} files and rows")
    return {
        "files": files,
        "events": len(ids),
        "idle_mib": idle >> 20,
        "above_idle_read_mib": read - idle >> 20,
        "above_idle_peak_mib": peak - idle >> 20,
        "seconds": round(visible - appended, 2),
        "cpu_s": round(cpu, 2),
        "us_per_file": round((visible - appended) / files * 1e6, 1),
        "cpu_us_per_file": round(cpu / files * 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--each", type=int, default=100, help="files in an event")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found: dict[int, list[dict[str, Any]]] = {files: [] for files in arguments.files}
    for _ in range(arguments.rounds):
        for files in arguments.files:
            with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
                made = asyncio.run(one(Path(folder), kafka.bootstrap, files, arguments.each))
            found[files].append(made)
            report({"stream": STREAM, **made, **machine()}, as_json=arguments.json)
    costs = {files: median(each["us_per_file"] for each in made) for files, made in found.items()}
    cpu = {files: median(each["cpu_us_per_file"] for each in made) for files, made in found.items()}
    first = min(costs)
    ratios = {files: round(cost / costs[first], 2) for files, cost in costs.items()}
    report(
        {
            "per_file_to_smallest": ratios,
            "cpu_per_file_to_smallest": {files: round(cost / cpu[first], 2) for files, cost in cpu.items()},
        },
        as_json=arguments.json,
    )


if __name__ == "__main__":
    main()
