"""One run of the demo, from an empty folder to the comparison of the table with its source."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from sluicegate.cli.local.errors import RunFailed
from sluicegate.cli.local.flights import (
    REGIONS,
    STREAM,
    Feed,
    Verdict,
    batches_for,
    compare,
    load_flights,
    share_due,
    write_batches,
)
from sluicegate.cli.local.jobs import Jobs, start_session
from sluicegate.cli.local.kills import Coordinator, Killer
from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from sluicegate.cli.local.tables import DemoTable, create_table
from sluicegate.cli.local.watch import PARTITIONS, TOPICS, Display, Progress, Watch
from sluicegate.kafka.topics import ensure_topics, topic_specs
from sluicegate.texts import counted

_POLL: Final = 0.2
_STUCK_SECONDS: Final = 300.0

# A restart after a kill waits until the session of the killed member times out, so it is short.
_SETTINGS: Final = """\
state_record_interval = "10m"

[kafka]
bootstrap_servers = "{kafka.bootstrap}"
topic_prefix = "{prefix}"
group_id = "demo"
partitions = {partitions}
session_timeout = "2s"

[redis]
url = "{valkey.url}"
key_prefix = "demo"

[http]
port = 0

[log]
level = "debug"
format = "json"

[streams.{stream}.options]
{options}
[streams.{stream}]
format = "{table.format}"
table = "{table.location}"
"""


class Wish(NamedTuple):
    """Options of the user."""

    rows: int
    kills: int
    table_format: str
    """Format of the table: `paimon`, `iceberg` or `delta`."""
    work: Path
    """Folder for all files of the run; it contains only an empty folder `logs`."""


class Outcome(NamedTuple):
    """Result of the run."""

    verdict: Verdict
    commits: int
    files: int
    kill_phases: dict[str, int]

    @property
    def kills(self) -> int:
        """Number of times that the coordinator was killed."""
        return sum(self.kill_phases.values())


class Parts(NamedTuple):
    """The parts of a run, before its coordinator and its jobs start."""

    source: pa.Table
    table: DemoTable
    files: dict[str, list[Path]]
    bootstrap: str
    coordinator: Coordinator
    jobs: Jobs


def run_demo(wish: Wish, display: Display, stack: ExitStack) -> Outcome:
    """Run the demo to the end; `stack` ends the started parts.

    Raises:
        DemoError, EmbeddedError, TopicError: the run failed, or the table cannot be read.
    """
    display.note(f"starting Kafka, Valkey and Spark in {wish.work}")
    parts = prepare(wish, stack, note=display.note)
    display.note(f"{parts.source.num_rows:,} flights are ready, for the regions {', '.join(REGIONS)}")
    feed, watch = Feed(parts.files, wish.work / "inbox"), Watch(parts.bootstrap, Progress())
    killer = Killer(parts.coordinator, wish.kills, lambda: watch.progress.commits > 0, display.note)
    for stop in (parts.jobs.stop, watch.end, killer.end):
        stack.callback(stop)
    parts.coordinator.start()
    killer.start()
    watch.start()
    parts.jobs.start(feed.folder)
    display.note("three jobs write, the coordinator commits")
    _follow(wish, parts, feed, watch, killer, display)
    parts.coordinator.stop()
    display.note("everything is committed; reading the table back")
    contents = parts.table.read()
    phases = dict(sorted(killer.phases.items()))
    return Outcome(compare(contents.rows, parts.source), contents.commits, contents.files, phases)


def prepare(
    wish: Wish,
    stack: ExitStack,
    slots: int = 2,
    make_jobs: type[Jobs] = Jobs,
    *,
    note: Callable[[str], None] = lambda _: None,
) -> Parts:
    """Start the servers and Spark. Meanwhile make the table, the settings, and the files of the flights.

    `note` is called at the end of each phase.
    """
    work = wish.work
    valkey, kafka = EmbeddedValkey(work / "valkey"), EmbeddedKafka(work / "kafka")
    coordinator = Coordinator(work / "coordinator.toml", work / "logs")
    for end in (valkey.stop, kafka.stop, coordinator.stop):
        stack.callback(end)

    def start_servers() -> None:
        valkey.start()
        kafka.start()
        asyncio.run(ensure_topics(kafka.bootstrap, topic_specs(TOPICS, partitions=PARTITIONS)))
        note(f"Kafka is at {kafka.bootstrap}, Valkey at {valkey.url}")

    with ThreadPoolExecutor(max_workers=3) as pool:
        serving = pool.submit(start_servers)
        loading = pool.submit(load_flights, wish.rows)
        making = pool.submit(create_table, wish.table_format, work / "warehouse")
        spark = start_session(work, slots)
        stack.callback(spark.stop)
        note("Spark runs")
        source, table = loading.result(), making.result()
        note(f"the table is {table.location}")
        files = write_batches(source, work / "source", batches_for(wish.rows))
        serving.result()
    settings = _SETTINGS.format(
        kafka=kafka,
        prefix=TOPICS.prefix,
        partitions=PARTITIONS,
        valkey=valkey,
        stream=STREAM,
        table=table,
        options="".join(f'{name} = "{value}"\n' for name, value in table.options.items()),
    )
    coordinator.settings.write_text(settings, encoding="utf-8")
    jobs = make_jobs(spark, kafka.bootstrap, table, work / "checkpoints")
    return Parts(source, table, files, kafka.bootstrap, coordinator, jobs)


def _follow(wish: Wish, parts: Parts, feed: Feed, watch: Watch, killer: Killer, display: Display) -> None:
    """Show the progress until all regions are closed and committed. Raises RunFailed."""
    jobs, progress, seen, moved = parts.jobs, watch.progress, "", time.monotonic()
    while killer.is_alive() or not is_committed(jobs, progress):
        ready = None if killer.ready_since is None else time.monotonic() - killer.ready_since
        share = share_due(wish.kills, killer.killed, ready)
        feed.open(share)
        for part in (parts.coordinator, watch, killer, jobs):
            part.check()
        # After the first commit, no job waits for its registration.
        if share == 1.0 and progress.commits:
            jobs.finish()
        state = str(progress)
        state += (
            f"; coordinator killed {killer.killed} of {counted(wish.kills, 'time')}" if wish.kills else ""
        )
        display.show(state)
        if state != seen:
            seen, moved = state, time.monotonic()
        if time.monotonic() - moved > _STUCK_SECONDS:
            raise RunFailed(f"nothing has moved for {_STUCK_SECONDS:g} s: {state}")
        time.sleep(_POLL)


def is_committed(jobs: Jobs, progress: Progress) -> bool:
    """Return True if every region is closed, and its final batch is in the table."""
    finals = {region: -1 if final is None else final for region, final in jobs.finals.items()}
    return finals == progress.committed
