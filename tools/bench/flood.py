"""Neighbours of a flood: the commit delay of a stream while another client floods the same partition.

    python -m tools.bench.flood [--commits 20] [--limit 500] [--json]

One coordinator has two streams of one partition. The quiet one commits small batches, one after the other;
`delay` is from the publication of its completion to the notification of its commit. A client in a process of
its own floods meanwhile, as fast as it can: `events` are valid events of the other stream, `limited` the same
with `max_events_per_second`, `files` are lists of 1,000 files that no completion names, and `garbage` has no
attributes. `none` is measured before each of them, and `ratio` compares both medians. After each phase both
tables are compared with what was written, and each message of garbage is a dead letter.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.events.codec import Flaw
from sluicegate.events.models import FileInfo, FilesWritten
from sluicegate.events.notifications import read_notification
from sluicegate.kafka.clients import started
from tests.integration.conftest import Place, neighbour
from tests.integration.job import Job, create_table, make_topics, read_ids, read_records
from tests.integration.letters import home_of
from tests.integration.test_reload import coordinator, job_of
from tests.integration.waiting import until
from tools.bench.common import machine, report

LOUD: Final = "flights"
QUIET: Final = neighbour(LOUD, same=True)
KINDS: Final = ("events", "limited", "files", "garbage")
_AT_ONCE: Final = 500
_FILES: Final = 1_000


@dataclass
class Neighbour:
    """The quiet stream, and everything that it wrote."""

    job: Job
    feed: AIOKafkaConsumer
    written: int = 0

    async def delays(self, commits: int) -> list[float]:
        """Commit batches one after the other; return the seconds of each commit."""
        found = []
        for _ in range(commits):
            self.written += 1
            event = await self.job.written(self.job.write_files([self.written]))
            begun = time.monotonic()
            await self.job.complete(event)
            await self._visible()
            found.append(time.monotonic() - begun)
        return found

    async def _visible(self) -> None:
        async for record in self.feed:
            note = read_notification(record.headers, record.value)
            if not isinstance(note, Flaw) and note.stream == QUIET and note.type.endswith("visible"):
                return


@asynccontextmanager
async def quiet_stream(place: Place) -> AsyncIterator[Neighbour]:
    """Register the quiet stream, and follow its notifications."""
    source = TopicPartition(place.topics.commits, home_of(QUIET))
    feed = AIOKafkaConsumer(bootstrap_servers=place.bootstrap, enable_auto_commit=False, fetch_max_wait_ms=20)
    async with job_of(place, QUIET) as job:
        await job.register()
        async with started(feed):
            feed.assign([source])
            await feed.seek_to_end(source)
            await feed.position(source)
            yield Neighbour(job, feed)


async def phase(place: Place, kind: str, commits: int, limit: int) -> dict[str, object]:
    """Measure the neighbour without and with one kind of flood, and check both tables."""
    limits = {LOUD: f"max_events_per_second = {limit}" if kind == "limited" else "", QUIET: ""}
    async with (
        coordinator(place, limits) as service,
        job_of(place, LOUD) as loud,
        quiet_stream(place) as quiet,
    ):
        await loud.register()
        await quiet.delays(3)
        alone = await quiet.delays(commits)
        flooder = subprocess.Popen(  # noqa: ASYNC220
            [
                sys.executable,
                "-m",
                "tools.bench.flood",
                "--flood",
                kind,
                place.bootstrap,
                place.prefix,
                loud.run,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if flooder.stdout is not None:
            await asyncio.to_thread(flooder.stdout.readline)
        begun = time.monotonic()
        beside = await quiet.delays(commits)
        if kind == "limited":
            await service.told("stream is read at its limit")
        seconds = time.monotonic() - begun
        sent = int((await asyncio.to_thread(flooder.communicate, "\n"))[0])
        if kind == "limited":
            service.reload({LOUD: "", QUIET: ""})
        await loud.run_batch([1])
        await loud.committed([1])
        if read_ids(quiet.job.location) != list(range(1, quiet.written + 1)):
            raise RuntimeError("the table of the quiet stream has other rows than were written")
    if kind == "garbage":
        async with coordinator(place, limits):
            await until(
                lambda: read_records(place.bootstrap, place.topics.dead_letters),
                lambda found: len(found) == sent,
            )
    return {
        "kind": kind,
        "messages_a_second": round(sent / seconds),
        "none_ms": _median(alone),
        "flood_ms": _median(beside),
        "flood_max_ms": round(max(beside) * 1000),
        "ratio": round(statistics.median(beside) / statistics.median(alone), 2),
    }


def _median(seconds: Sequence[float]) -> int:
    return round(statistics.median(seconds) * 1000)


async def flood(kind: str, bootstrap: str, prefix: str, run: str) -> int:
    """Send messages of a kind until a line arrives on standard input; return their number."""
    place = Place(bootstrap, prefix, await make_topics(bootstrap, prefix), Path("/"), "/none")
    stop = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    sent = 0
    async with place.job(LOUD) as job:
        job.run = run
        while not stop.done():
            await asyncio.gather(*(_send(job, kind) for _ in range(1 if kind == "files" else _AT_ONCE)))
            if sent == 0:
                print("floods", flush=True)
            sent += 1 if kind == "files" else _AT_ONCE
    return sent


async def _send(job: Job, kind: str) -> None:
    if kind == "garbage":
        await job.producer.send_and_wait(job.topics.events, b"no event", partition=home_of(LOUD))
    elif kind == "files":
        await job.written(_many_files())
    else:
        await job.heartbeat()


def _many_files() -> FilesWritten:
    files = tuple(FileInfo(path=f"bucket-0/{n}.parquet", size=1, rows=1) for n in range(_FILES))
    return FilesWritten(format="paimon", format_version=1, location="file:///none", schema_id=0, files=files)


async def measure(bootstrap: str, root: Path, kinds: Sequence[str], commits: int, limit: int) -> list[object]:
    """Return the figures of each kind of flood; each has topics and tables of its own."""
    found: list[object] = []
    for kind in kinds:
        folder = root / kind
        folder.mkdir()
        place = Place(bootstrap, f"flood-{kind}", await make_topics(bootstrap, f"flood-{kind}"), folder, "")
        for stream in (LOUD, QUIET):
            create_table(folder, stream)
        found.append(await phase(place, kind, commits, limit))
    return found


def main() -> None:
    """Measure and report, or be the client that floods."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=20)
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--flood", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.flood:
        print(asyncio.run(flood(*given.flood)))
        return
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        work = measure(kafka.bootstrap, Path(folder), given.kinds, given.commits, given.limit)
        phases = asyncio.run(work)
    report(
        {**machine(), "commits": given.commits, "limit": given.limit, "phases": phases}, as_json=given.json
    )


if __name__ == "__main__":
    main()
