"""The time to replay a long log: verified against its table, and searched for orphans.

    python -m tools.bench.replay [--commits 200] [--events 1000] [--json]

A log of one stream is made by the core itself: each checkpoint has so many events, a tenth of them losers,
and one decision. The commits are in a Paimon table, without files. Then the commands are run on it.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from statistics import quantiles
from typing import Any

from aiokafka import AIOKafkaProducer

from sluicegate.cli.local.servers import EmbeddedKafka
from sluicegate.coordinator.core import cuts
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.replay.decisions import LogFold, Start
from sluicegate.coordinator.service.janitor import Janitor
from sluicegate.coordinator.settings.model import Settings, load
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, partition_of
from sluicegate.events.models import (
    Assignment,
    Body,
    CheckpointCompleted,
    CutCommitted,
    FileInfo,
    FilesWritten,
    Position,
    RegionRegistered,
    StreamPolicy,
)
from sluicegate.kafka.topics import TopicNames
from sluicegate.lakes.paimon.adapter import ADAPTER
from sluicegate.lakes.port import CommitRequest, Published
from tools.bench.common import PARTITIONS, STREAM, create_table, make_topics, write_settings

HOME = partition_of(STREAM, PARTITIONS)
OF_STREAM = (EventType.STREAM_POLICY, EventType.CUT_DECIDED, EventType.CUT_COMMITTED)
LOSERS = 10
"""One event in so many is a loser."""


class Log:
    """Appends to the stream's partition, and folds what it has appended."""

    def __init__(self, producer: AIOKafkaProducer, topics: TopicNames) -> None:
        self._producer = producer
        self._topics = topics
        self._sent: list[Any] = []
        self.end = 0
        self.fold = LogFold(STREAM, HOME, Start(0, LogState(), -1))

    async def append(self, event_type: EventType, body: Body, checkpoint: int = -1, files: int = 0) -> str:
        """Append one event; returns its id."""
        names = ("", "") if event_type in OF_STREAM else ("r1", "q1")
        written = (f"w{self.end}", uuid.uuid4().hex, files) if files else ()
        envelope = Envelope(uuid.uuid4().hex, event_type, STREAM, *names, checkpoint, *written)
        now = time.time_ns() // 1_000_000
        message = encode_event(envelope, body, now)
        sent = await self._producer.send(
            self._topics.events, message.value, key=message.key, headers=message.headers, partition=HOME
        )
        self._sent.append(sent)
        step = self.fold.read(self.end, now, message.headers, message.value)
        if step is None or step.applied.ignored is not None:
            raise RuntimeError(f"{event_type} has no effect: {step}")
        self.end += 1
        if len(self._sent) >= 5_000:
            await self.flush()
        return envelope.id

    async def flush(self) -> None:
        """Wait until all is acknowledged."""
        await asyncio.gather(*self._sent)
        self._sent.clear()


async def make_log(bootstrap: str, table: str, commits: int, events: int) -> tuple[TopicNames, int]:
    """Make a log of so many commits of so many events, which the table has; return its number of records."""
    topics = await make_topics(bootstrap)
    committer = ADAPTER.open_committer(ADAPTER.parse_table(table), f"sluicegate-{STREAM}")
    location, identity, before = Path(table).as_uri(), committer.inspect().identity, None
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5) as producer:
        log = Log(producer, topics)
        await log.append(EventType.STREAM_POLICY, StreamPolicy(number=1, allowed_locations=(location,)))
        registered = RegionRegistered(assignment=Assignment(number=0, regions=("r1",)))
        await log.append(EventType.REGION_REGISTERED, registered)
        for checkpoint in range(commits):
            named: list[str] = []
            for number in range(events):
                path = f"bucket-0/data-{checkpoint}-{number}-{uuid.uuid4()}.parquet"
                file = FileInfo(path=path, size=1, rows=1, metadata=b"x" * 300)
                body = FilesWritten(
                    format="paimon", format_version=1, location=location, schema_id=0, files=(file,)
                )
                event = await log.append(EventType.FILES_WRITTEN, body, checkpoint, 1)
                named += [event] if number % LOSERS else []
            done = CheckpointCompleted(events=tuple(named), predecessor=before, source_digest="d")
            await log.append(EventType.CHECKPOINT_COMPLETED, done, checkpoint)
            before = Position(incarnation="q1", checkpoint=checkpoint, digest="d")
            choice = cuts.choose(log.fold.replica.log)
            if choice is None:
                raise RuntimeError("nothing can be decided")
            await log.append(EventType.CUT_DECIDED, choice)
            made = log.fold.replica.state.unresolved
            if made is None:
                raise RuntimeError("nothing was decided")
            request = CommitRequest(made.id, made.digest, committer.inspect().head, None, [])
            published = committer.publish(request)
            is_there = isinstance(published, Published)
            if not is_there:
                raise RuntimeError(f"not published: {published}")
            outcome = CutCommitted(decision=made.id, digest=made.digest, table=identity)
            await log.append(EventType.CUT_COMMITTED, outcome)
        await log.flush()
        return topics, log.end


def run(config: Path, *arguments: str) -> tuple[float, dict[str, Any]]:
    """Run a command; return its seconds and its output."""
    begun = time.monotonic()
    command = [sys.executable, "-c", "from sluicegate.cli.main import main; main()", *arguments]
    done = subprocess.run(
        [*command, "--stream", STREAM, "--json", "--config", str(config)], check=True, stdout=subprocess.PIPE
    )
    return time.monotonic() - begun, json.loads(done.stdout)


async def lag_beside(settings: Settings | None, seconds: float = 3.0) -> tuple[float, float]:
    """Return the delay of the event loop, beside a sweep or alone: 99th percentile and worst, in ms."""
    lags = list[float]()
    janitor = Janitor(lambda: settings, lambda: {STREAM}) if settings else None
    sweeping = asyncio.create_task(janitor._sweep(STREAM)) if janitor is not None else None
    end = time.monotonic() + seconds
    while (not sweeping.done()) if sweeping is not None else time.monotonic() < end:
        begun = time.monotonic()
        await asyncio.sleep(0.01)
        lags.append((time.monotonic() - begun - 0.01) * 1000)
    return quantiles(lags, n=100)[98], max(lags)


def main() -> None:
    """Make the log, run the commands, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        table = str(create_table(Path(folder), "replayed").table_path)
        made = make_log(kafka.bootstrap, table, options.commits, options.events)
        topics, records = asyncio.run(made)
        config = write_settings(Path(folder), kafka.bootstrap, topics, table)
        # A range that ends before the first decision: the command reads one batch.
        start, _ = run(config, "replay", "verify", "--to", "offset:0")
        verified, found = run(config, "replay", "verify")
        searched, orphans = run(config, "orphans", "list", "--grace", "1ms")
        alone = asyncio.run(lag_beside(None))
        beside = asyncio.run(lag_beside(load(config, {})))
    pace = records / max(0.001, verified - start)
    if options.json:
        figures = {
            "records": records,
            "commits": options.commits,
            "losers": orphans["gone"],
            "there": found["counts"]["there"],
            "start_s": round(start, 1),
            "verify_s": round(verified - start, 1),
            "records_per_s": round(pace),
            "orphans_s": round(searched - start, 1),
            "loop_late_alone_ms": [round(each, 1) for each in alone],
            "loop_late_beside_sweep_ms": [round(each, 1) for each in beside],
        }
        print(json.dumps(figures), flush=True)
        return
    print(f"{records:,} records, {options.commits} commits; the command alone takes {start:.1f} s")
    print(f"verify:  {verified:.1f} s ({pace:,.0f} records/s), {found['counts']['there']} there")
    for where, (most, worst) in (("alone", alone), ("beside the janitor", beside)):
        print(f"event loop late, {where}: p99 {most:.1f} ms, worst {worst:.1f} ms")
    print(f"orphans: {searched:.1f} s, {orphans['gone']:,} files of losers (none of them was written)")


if __name__ == "__main__":
    main()
