"""One run of the demo, from an empty folder to the comparison of the table with its source."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

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
from sluicegate.cli.local.kills import Coordinator, Killer
from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from sluicegate.cli.local.tables import DemoTable, create_table
from sluicegate.cli.local.watch import PARTITIONS, TOPICS, Display, Progress, Watch
from sluicegate.kafka.topics import ensure_topics, topic_specs
from sluicegate.texts import counted

if TYPE_CHECKING:
    from sluicegate.cli.local.jobs import Jobs
    from sluicegate.cli.local.two_tables import Reads

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
    tables: bool = False
    """True: two tables of one stream, written without Spark."""


class Outcome(NamedTuple):
    """Result of the run."""

    verdict: Verdict
    commits: int
    files: int
    kill_phases: dict[str, int]
    reads: "Reads | None" = None
    """Results of the readers of two tables; None: there was one table."""
    totals: bool = True
    """True if the second table has exactly the totals of the first one's source."""

    @property
    def exact(self) -> bool:
        """True if the tables are exactly their source, and no reader by the vector saw them apart."""
        return self.verdict.exact and self.totals and not (self.reads is not None and self.reads.torn)

    @property
    def kills(self) -> int:
        """Number of times that the coordinator was killed."""
        return sum(self.kill_phases.values())


class Writers(Protocol):
    """The jobs of a run, from their start to the closing of their regions."""

    finals: dict[str, int | None]
    """Final checkpoint of each closed region."""

    def start(self, inbox: Callable[[str], Path]) -> None:
        """Start a job for each region, which reads the files that appear in `inbox(region)`."""

    def check(self) -> None:
        """Raise RunFailed if a job has failed."""

    def finish(self) -> None:
        """End the jobs, which have their last files, and close their regions; may be repeated."""

    def stop(self) -> None:
        """Stop the running jobs."""


class Parts(NamedTuple):
    """The parts of a run, before its coordinator and its jobs start."""

    source: pa.Table
    table: DemoTable
    files: dict[str, list[Path]]
    bootstrap: str
    coordinator: Coordinator
    jobs: Writers


def run_demo(wish: Wish, display: Display, stack: ExitStack) -> Outcome:
    """Run the demo to the end; `stack` ends the started parts.

    Raises:
        DemoError, EmbeddedError, TopicError: the run failed, or the table cannot be read.
    """
    if wish.tables:
        return _run_tables(wish, display, stack)
    display.note(f"starting Kafka, Valkey and Spark in {wish.work}")
    parts = prepare(wish, stack, note=display.note)
    phases = _run(wish, parts, display, stack)
    contents = parts.table.read()
    return Outcome(compare(contents.rows, parts.source), contents.commits, contents.files, phases)


def _run_tables(wish: Wish, display: Display, stack: ExitStack) -> Outcome:
    """Run the demo of two tables, with their reader."""
    from sluicegate.cli.local import two_tables

    display.note(f"starting Kafka and Valkey in {wish.work}")
    # A killed coordinator answers no driver for a while, which each of them would report.
    hooks = logging.getLogger("sluicegate.writer_hooks")
    stack.callback(hooks.setLevel, hooks.level)
    hooks.setLevel(logging.ERROR)
    services = Services(wish.work, stack, display.note)
    with ThreadPoolExecutor(max_workers=1) as pool:
        serving = pool.submit(services.start)
        source, table = load_flights(wish.rows), create_table(wish.table_format, wish.work / "warehouse")
        totals = two_tables.add_totals(table)
        files = write_batches(source, wish.work / "source", batches_for(wish.rows))
        serving.result()
    further = f'tables.{two_tables.TOTALS} = "{totals.options["identifier"]}"'
    services.write_settings(table, further)
    jobs = two_tables.Drivers(services.kafka.bootstrap, table, totals)
    parts = Parts(source, table, files, services.kafka.bootstrap, services.coordinator, jobs)
    reader = two_tables.Reader(table)
    stack.callback(reader.end)
    reader.start()
    phases = _run(wish, parts, display, stack)
    # The newest commit is read at least once, also if the run was short.
    two_tables.await_reads(reader, reader.reads.vectors + 2, lambda: None)
    reader.end()
    reader.check()
    contents, sums = table.read(), totals.read()
    found = sums.rows.group_by(["origin", "carrier"]).aggregate([("flights", "sum"), ("distance", "sum")])
    verdict = compare(contents.rows, source)
    files_written = contents.files + sums.files
    same = two_tables.is_total(found, source)
    return Outcome(verdict, contents.commits, files_written, phases, reader.reads, same)


def _run(wish: Wish, parts: Parts, display: Display, stack: ExitStack) -> dict[str, int]:
    """Run coordinator and jobs to the end; return the number of kills in each phase."""
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
    return dict(sorted(killer.phases.items()))


class Services:
    """Kafka, Valkey and a coordinator of a run; `stack` ends them."""

    def __init__(self, work: Path, stack: ExitStack, note: Callable[[str], None]) -> None:
        self._valkey, self.kafka = EmbeddedValkey(work / "valkey"), EmbeddedKafka(work / "kafka")
        self.coordinator = Coordinator(work / "coordinator.toml", work / "logs")
        self._note = note
        for end in (self._valkey.stop, self.kafka.stop, self.coordinator.stop):
            stack.callback(end)

    def start(self) -> None:
        """Start the servers, and make the topics. The coordinator is started later."""
        self._valkey.start()
        self.kafka.start()
        asyncio.run(ensure_topics(self.kafka.bootstrap, topic_specs(TOPICS, partitions=PARTITIONS)))
        self._note(f"Kafka is at {self.kafka.bootstrap}, Valkey at {self._valkey.url}")

    def write_settings(self, table: DemoTable, further: str = "") -> None:
        """Write the settings of the coordinator; `further`: a line for the stream."""
        settings = _SETTINGS.format(
            kafka=self.kafka,
            prefix=TOPICS.prefix,
            partitions=PARTITIONS,
            valkey=self._valkey,
            stream=STREAM,
            table=table,
            options="".join(f'{name} = "{value}"\n' for name, value in table.options.items()),
        )
        self.coordinator.settings.write_text(f"{settings}{further}\n", encoding="utf-8")


def prepare(
    wish: Wish,
    stack: ExitStack,
    slots: int = 2,
    make_jobs: "type[Jobs] | None" = None,
    *,
    note: Callable[[str], None] = lambda _: None,
) -> Parts:
    """Start the servers and Spark. Meanwhile make the table, the settings, and the files of the flights.

    `note` is called at the end of each phase.
    """
    # Imported here, since the demo of two tables runs without Spark.
    from sluicegate.cli.local.jobs import Jobs, start_session

    work = wish.work
    services = Services(work, stack, note)
    with ThreadPoolExecutor(max_workers=3) as pool:
        serving = pool.submit(services.start)
        loading = pool.submit(load_flights, wish.rows)
        making = pool.submit(create_table, wish.table_format, work / "warehouse")
        spark = start_session(work, slots)
        stack.callback(spark.stop)
        note("Spark runs")
        source, table = loading.result(), making.result()
        note(f"the table is {table.location}")
        files = write_batches(source, work / "source", batches_for(wish.rows))
        serving.result()
    services.write_settings(table)
    jobs = (make_jobs or Jobs)(spark, services.kafka.bootstrap, table, work / "checkpoints")
    return Parts(source, table, files, services.kafka.bootstrap, services.coordinator, jobs)


def _follow(wish: Wish, parts: Parts, feed: Feed, watch: Watch, killer: Killer, display: Display) -> None:
    """Show the progress until all regions are closed and committed. Raises RunFailed."""
    jobs, progress, seen, moved = parts.jobs, watch.progress, "", time.monotonic()
    end = _End(jobs)
    while killer.is_alive() or not is_committed(jobs, progress):
        ready = None if killer.ready_since is None else time.monotonic() - killer.ready_since
        share = share_due(wish.kills, killer.killed, ready)
        feed.open(share)
        for part in (parts.coordinator, watch, killer, end):
            part.check()
        # After the first commit, no job waits for its registration.
        if share == 1.0 and progress.commits:
            end.begin()
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


class _End:
    """The end of the jobs, in a thread of its own: it takes as long as their last batches."""

    def __init__(self, jobs: Writers) -> None:
        self._jobs = jobs
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def begin(self) -> None:
        """End the jobs; may be repeated."""
        if self._thread is None:
            self._thread = threading.Thread(name="end", target=self._finish, daemon=True)
            self._thread.start()

    def check(self) -> None:
        """Raise RunFailed, or the error of the end. A job that ends as it should is no failed one."""
        if self._error is not None:
            raise self._error
        if self._thread is None:
            self._jobs.check()

    def _finish(self) -> None:
        try:
            self._jobs.finish()
        except Exception as error:  # `check` raises it
            self._error = error


def is_committed(jobs: Writers, progress: Progress) -> bool:
    """Return True if every region is closed, and its final batch is in the table."""
    finals = {region: -1 if final is None else final for region, final in dict(jobs.finals).items()}
    return finals == progress.committed
