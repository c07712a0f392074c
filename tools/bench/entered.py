"""Files of the product that one commit enters, in a coordinator with a broker and a Paimon table.

    python -m tools.bench.entered [--commits 10] [--python OTHER/.venv/bin/python] [--json]

A checkpoint is an event of two files and its completion. A file is entered if one of its functions is called
between the sending of the event and the announcement of the commit. Counted are the files that each of the
commits enters; `idle` are those of them that a coordinator without work enters within a second, too. Lines of
classes and constants do not count. `--python` measures the coordinator of another installation.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from sluicegate.cli.local.process import ChildProcess, free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.models import FilesWritten
from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes.registry import adapter
from tools.bench.common import (
    Region,
    create_table,
    label_of,
    machine,
    make_topics,
    read_topic,
    report,
    rows,
    wait_ready,
    wait_until_registered,
    write_settings,
)

_TRACED: Final = Path(__file__).with_name("traced.py")
_IDLE: Final = 1.0
"""Seconds of the window in which nothing is committed."""


async def _entered(process: ChildProcess, result: Path, work: Callable[[], Awaitable[None]]) -> set[str]:
    """Return the files that the coordinator enters during some work."""
    os.kill(process.pid, signal.SIGUSR1)
    await work()
    os.kill(process.pid, signal.SIGUSR2)
    return await asyncio.to_thread(_read, result)


def _read(result: Path) -> set[str]:
    while not result.exists():
        time.sleep(0.01)
    found: list[str] = json.loads(result.read_text())
    result.unlink()
    return set(found)


async def _measure(folder: Path, bootstrap: str, commits: int, python: str) -> dict[str, Any]:
    create_table(folder, "ours")
    table, topics = folder / "db.db" / "ours", await make_topics(bootstrap)
    port, result = free_port(), folder / "entered.json"
    settings = write_settings(folder, bootstrap, topics, table, port)
    command = [python, str(_TRACED), str(result), "run", "--config", str(settings)]
    process = ChildProcess(command, log_file=folder / "coordinator.log", cwd=folder)
    windows = list[set[str]]()
    try:
        wait_ready(process, port, folder / "coordinator.log")
        async with Region(bootstrap, topics) as region:
            await region.register()
            await wait_until_registered(bootstrap, topics, region)
            for number in range(commits):
                event = _write(table, number)

                async def commit(number: int = number, event: FilesWritten = event) -> None:
                    written, acknowledged = await region.written(number, event)
                    await acknowledged
                    await (await region.complete(number, [written]))
                    await _announced(bootstrap, topics, number)

                windows.append(await _entered(process, result, commit))
            idle = await _entered(process, result, lambda: asyncio.sleep(_IDLE))
    finally:
        process.end(20.0)
    each = set.intersection(*windows)
    return {
        "files": len(each),
        "idle": len(each & idle),
        "entered": sorted(each - idle),
        "entered_idle_too": sorted(each & idle),
        "commits": commits,
        **machine(),
    }


def _write(table: Path, number: int) -> FilesWritten:
    """Write the files of a checkpoint, and return their event."""
    opened = adapter("paimon")
    writer = opened.open_writer(opened.parse_table(str(table)), "at", label_of(number))
    writer.write(rows(("A00", "A01"), 40 * number, 20))
    return FilesWritten(
        format="paimon",
        format_version=opened.format_version,
        location=writer.location,
        schema_id=writer.schema_id,
        files=tuple(writer.finish()),
    )


async def _announced(bootstrap: str, topics: TopicNames, number: int) -> None:
    """Wait until the commit of a checkpoint is announced, in whatever form the other installation has it."""
    while True:
        told = [record async for record in read_topic(bootstrap, topics.commits) if _is_commit(record)]
        if len(told) > number:
            return
        await asyncio.sleep(0.05)


def _is_commit(record: Any) -> bool:
    return any(b"commit.visible" in value for _, value in record.headers)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commits", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--python", default=sys.executable)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        found = asyncio.run(_measure(Path(folder), kafka.bootstrap, arguments.commits, arguments.python))
    report(found, as_json=arguments.json)


if __name__ == "__main__":
    main()
