"""Cost of one checkpoint of very many files for the coordinator: its memory above idle, and its time.

    python -m tools.bench.scale [--formats paimon] [--files 10000 100000 1000000] [--each 100]
        [--rounds 1] [--json]

Every format and size has a table, topics and a coordinator (a process of its own) for itself, with default
settings but for the limit of the files in one checkpoint (`max_files_per_checkpoint`), which is raised. The
files are hard links of ten real ones, with entries of their own (statistics of 28 columns, equal but for the
name), so that the coordinator looks at every one of them as at any. The events are appended while the
coordinator reads; when it has read them all, the completion that names them follows. Time counts from its
append to the moment at which another process sees the commit (inotify). Memory is the peak of the resident
set (VmHWM) from the first event to the end, above the resident set when the opening had been answered.
`cpu_s` is the coordinator's processor time from the completion on, which busy neighbours disturb less.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any, Final

from sluicegate.cli.local.process import ChildProcess
from sluicegate.cli.local.servers import EmbeddedKafka
from tools.bench.common import (
    STREAM,
    Region,
    machine,
    make_topics,
    report,
    rows,
    wait_until_registered,
)
from tools.bench.files import Files
from tools.bench.lakes import Watch, coordinator, make_table

ORIGINS: Final = tuple(f"A{n:02d}" for n in range(10))
ROWS: Final = 20
PATIENCE: Final = 1800.0
_KIB: Final = 1024
_BATCH: Final = 50
"""Events that are under way at a time."""
_LOOK: Final = 10.0
"""Seconds between two looks at the status."""


def memory(pid: int, field: str) -> int:
    """A line of /proc/PID/status, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * _KIB
    raise RuntimeError(f"no {field}")


def processor_seconds(pid: int) -> float:
    """Usage of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def wait_for_commit(watch: Watch, process: ChildProcess, port: int) -> float:
    """When the next commit became visible, in seconds since the Unix epoch.

    Raises RuntimeError if the stream stalls instead.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return await asyncio.to_thread(watch.next, _LOOK) / 1e9
        except TimeoutError:
            streams = (await asyncio.to_thread(status_of, port))["streams"]
        conditions = [each for stream in streams.values() for each in stream["conditions"]]
        if stalled := next((each["message"] for each in conditions if each["kind"] == "stall"), None):
            raise RuntimeError(stalled)
    raise TimeoutError("no commit")


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


async def append(region: Region, made: Files, files: int, each: int) -> list[str]:
    """Append the events of a checkpoint of so many files; their ids."""
    ids, waiting = [], []
    for body in made.events(files, 0, each):
        event, sent = await region.written(0, body)
        ids.append(event)
        waiting.append(sent)
        if len(waiting) >= _BATCH:
            await asyncio.gather(*waiting)
            waiting.clear()
    await asyncio.gather(*waiting)
    return ids


async def one(folder: Path, bootstrap: str, lake: str, files: int, each: int) -> dict[str, Any]:
    """One checkpoint of so many files."""
    table = make_table(lake, folder)
    topics = await make_topics(bootstrap)
    made = Files(lake, str(table.folder), table.options, rows(ORIGINS, 0, ROWS), "at")
    with Watch(table) as watch, coordinator(folder, bootstrap, topics, table, files) as (port, process):
        async with Region(bootstrap, topics) as region:
            await region.register()
            await wait_until_registered(bootstrap, topics, region)
            idle = memory(process.pid, "VmRSS")
            ids = await append(region, made, files, each)
            # The policy, the registration, and the events stand before it.
            await wait_until_read(port, len(ids) + 2)
            read = memory(process.pid, "VmHWM")
            before = processor_seconds(process.pid)
            appended = (await (await region.complete(0, ids))).timestamp / 1000
            visible = await wait_for_commit(watch, process, port)
            cpu = processor_seconds(process.pid) - before
            peak = memory(process.pid, "VmHWM")
    if table.rows != files * ROWS:
        raise RuntimeError(f"the table has {table.rows} rows instead of {files * ROWS}")
    return {
        "format": lake,
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
    parser.add_argument("--formats", default="paimon")
    parser.add_argument("--files", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--each", type=int, default=100, help="files in an event")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for lake in arguments.formats.split(","):
        measure(lake, arguments)


def measure(lake: str, arguments: argparse.Namespace) -> None:
    """Measure one format, and compare the costs of a file."""
    found: dict[int, list[dict[str, Any]]] = {files: [] for files in arguments.files}
    for _ in range(arguments.rounds):
        for files in arguments.files:
            with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
                made = asyncio.run(one(Path(folder), kafka.bootstrap, lake, files, arguments.each))
            found[files].append(made)
            report({"stream": STREAM, **made, **machine()}, as_json=arguments.json)
    costs = {files: median(each["us_per_file"] for each in made) for files, made in found.items()}
    cpu = {files: median(each["cpu_us_per_file"] for each in made) for files, made in found.items()}
    first = min(costs)
    report(
        {
            "of_format": lake,
            "per_file_to_smallest": {files: round(cost / costs[first], 2) for files, cost in costs.items()},
            "cpu_per_file_to_smallest": {files: round(cost / cpu[first], 2) for files, cost in cpu.items()},
        },
        as_json=arguments.json,
    )


if __name__ == "__main__":
    main()
