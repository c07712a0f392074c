"""Time until a restarted coordinator decides again, with very many files pending, beside a raw read of them.

    python -m tools.bench.restart [--events 10000] [--each 100] [--rounds 5] [--kill] [--json]

One region has so many events of so many files in a completed checkpoint of which one event is missing, so
that none of them can be committed and all have to be read again; another region continues, and partial cuts
are allowed. Round by round the coordinator is stopped (SIGTERM, or SIGKILL with `--kill`), the other region
completes a checkpoint, and the coordinator is started again: from the start of the process to the append of
the decision that takes this checkpoint. Beside it, in turn, `tools.bench.raw`: from the start of a process
to the last record of the same range. `from_assignment_s` leaves out what comes before the partition may be
read (Python, imports, joining the group), and `reading_s` is the raw read without its process and
connection. `cpu_s` and `raw_cpu_s` are the processor time of both up to there, which other load distorts
less."""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.cli.local.process import ChildProcess, free_port
from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.codec import read_record
from sluicegate.events.envelope import partition_of
from sluicegate.events.models import CutDecided
from tools.bench.bulk import Bulk
from tools.bench.common import (
    PARTITIONS,
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

HOME: Final = partition_of(STREAM, PARTITIONS)
REGIONS: Final = ("stuck", "other")
PATIENCE: Final = 300.0
STUCK: Final = 1
"""The checkpoint that is never whole."""
_POLICY: Final = """\
partial = "allow"
alignment_timeout = "100ms"
max_consecutive_fallbacks = 1000000
"""


class Decisions:
    """Follows the decisions of the log."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def of(self, checkpoint: int) -> float:
        """When the decision for a checkpoint of the other region was appended. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for records in (await self._consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        read = read_record(0, 0, record.headers, record.value).record
                        if read is not None and isinstance(read.body, CutDecided):
                            at = read.body.cut.get("other")
                            if at is not None and at.checkpoint >= checkpoint:
                                return float(record.timestamp / 1000)


async def fill(region: Region, bulk: Bulk, events: int, each: int) -> None:
    """Append the events of a checkpoint that will never be whole."""
    ids = ["never-to-come", *await bulk.append(region, events, each, STUCK, linked=False)]
    await (await region.complete(STUCK, ids))


async def complete(region: Region, bulk: Bulk, checkpoint: int) -> int:
    """Append a checkpoint of one file; the offset behind its completion."""
    (body,) = bulk.events(1, 1, region.label(checkpoint))
    event, sent = await region.written(checkpoint, body)
    await sent
    done = await (await region.complete(checkpoint, [event]))
    return int(done.offset) + 1


def compiled(folder: Path) -> dict[str, str]:
    """The environment of both sides: bytecode is kept, as where packages are installed."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def read_raw(bootstrap: str, topic: str, end: int, environment: dict[str, str]) -> tuple[float, float, float]:
    """A raw read of the log up to an offset: seconds of the process, of the reading, and on the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.time()
    command = [sys.executable, "-m", "tools.bench.raw", bootstrap, topic, str(HOME), "0", str(end)]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    records, seconds = done.stdout.split()
    if int(records) < end:
        raise RuntimeError(f"{records} of {end} records were read")
    whole = time.time() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return whole, float(seconds), worked


def processor_time(pid: int) -> float:
    """Seconds that a process has had a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def committed(table: Path, snapshot: int) -> None:
    """Wait for a snapshot. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE
    while not (table / "snapshot" / f"snapshot-{snapshot}").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no snapshot {snapshot}")
        await asyncio.sleep(0.05)


def last_assigned(log_file: Path) -> float:
    """When the coordinator last said that partitions are assigned, in seconds since the Unix epoch."""
    said = [line for line in log_file.read_text().splitlines() if '"partitions assigned"' in line]
    return datetime.fromisoformat(json.loads(said[-1])["timestamp"]).timestamp()


def stop(process: ChildProcess, *, kill: bool) -> None:
    """End the coordinator, if it has not ended."""
    if process.poll() is not None:
        return
    if kill:
        process.kill()
    else:
        process.end(20.0)


async def measure(folder: Path, bootstrap: str, wanted: argparse.Namespace) -> None:
    """Fill the log, then restart again and again."""
    create_table(folder, "t")
    table = folder / "db.db" / "t"
    topics, bulk, port = await make_topics(bootstrap), Bulk(table), free_port()
    settings = write_settings(folder, bootstrap, topics, table, port)
    settings.write_text(settings.read_text() + _POLICY)
    environment = compiled(folder)
    process = start_coordinator(settings, environment)
    wait_ready(process, port, folder / "coordinator.log")
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    source = TopicPartition(topics.events, HOME)
    consumer.assign([source])
    decisions = Decisions(consumer)
    rounds: list[dict[str, Any]] = []
    try:
        async with (
            Region(bootstrap, topics, name="stuck", regions=REGIONS) as stuck,
            Region(bootstrap, topics, name="other", regions=REGIONS, incarnation="q2") as other,
        ):
            await stuck.register()
            await other.register()
            await wait_until_registered(bootstrap, topics, stuck, other)
            await consumer.seek_to_end(source)
            # The first commit has all regions.
            await complete(stuck, bulk, 0)
            end = await complete(other, bulk, 0)
            await decisions.of(0)
            await fill(stuck, bulk, wanted.events, wanted.each)
            read_raw(bootstrap, topics.events, end, environment)
            for number in range(1, wanted.rounds + 1):
                await committed(table, number)
                stop(process, kill=wanted.kill)
                end = await complete(other, bulk, number)
                raw = read_raw(bootstrap, topics.events, end, environment) if number % 2 else None
                begun = time.time()
                process = start_coordinator(settings, environment)
                at = await decisions.of(number)
                worked = processor_time(process.pid)
                decided, reading_on = at - begun, at - last_assigned(folder / "coordinator.log")
                if raw is None:
                    # Nothing of ours runs beside either of them.
                    await committed(table, number + 1)
                    stop(process, kill=wanted.kill)
                    raw = read_raw(bootstrap, topics.events, end, environment)
                whole, reading, raw_worked = raw
                rounds.append(
                    {
                        "records": end,
                        "decides_s": round(decided, 2),
                        "raw_s": round(whole, 2),
                        "ratio": round(decided / whole, 2),
                        "from_assignment_s": round(reading_on, 2),
                        "reading_s": round(reading, 2),
                        "reading_ratio": round(reading_on / reading, 2),
                        "cpu_s": round(worked, 2),
                        "raw_cpu_s": round(raw_worked, 2),
                        "cpu_ratio": round(worked / raw_worked, 2),
                    }
                )
                report({**rounds[-1], **machine()}, as_json=wanted.json)
    finally:
        stop(process, kill=False)
        await consumer.stop()
    names = [name for name in rounds[0] if name != "records"]
    report({name: round(median(each[name] for each in rounds), 2) for name in names}, as_json=wanted.json)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=100, help="files in an event")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kill", action="store_true", help="SIGKILL instead of SIGTERM")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        asyncio.run(measure(Path(folder), kafka.bootstrap, wanted))


if __name__ == "__main__":
    main()
