"""One run of the demo, from an empty folder to the comparison of the table with its source."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import pyarrow as pa

from sluicegate.cli.local.errors import RunFailed
from sluicegate.cli.local.flights import (
    PARTITION,
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
from sluicegate.cli.local.jobs import Jobs, slow_batches, start_session
from sluicegate.cli.local.kills import Coordinator, Killer
from sluicegate.cli.local.servers import EmbeddedKafka, EmbeddedValkey
from sluicegate.cli.local.tables import DemoTable, create_table
from sluicegate.cli.local.watch import (
    MAX_FALLBACKS,
    MONTHS,
    PARTITIONS,
    TOPICS,
    Display,
    MarksVerdict,
    Progress,
    Watch,
)
from sluicegate.kafka.topics import ensure_topics, topic_specs

_POLL: Final = 0.2
_STUCK_SECONDS: Final = 300.0
_MONTHLY: Final = 16
"""Batches of a region with marks, so that most commits pass one month."""

# A restart after a kill waits until the session of the killed member times out, so it is short.
_SETTINGS: Final = """\
state_record_interval = "10m"

[kafka]
bootstrap_servers = "{bootstrap}"
topic_prefix = "{prefix}"
group_id = "demo"
partitions = {partitions}
session_timeout = "2s"

[redis]
url = "{redis}"
key_prefix = "demo"

[http]
port = 0

[log]
level = "debug"
format = "json"

[streams.{stream}]
format = "{table.format}"
table = "{table.location}"
{policy}
[streams.{stream}.options]
{options}{listeners}"""

# About the time between the ends of the regions' batches in a healthy run: see docs/benchmarks.md.
_POLICY: Final = f"""\
partial = "allow"
alignment_timeout = "250ms"
max_consecutive_fallbacks = {MAX_FALLBACKS}
"""
# A lagging airport falls back as often as it must, and holds the watermark back meanwhile.
_MARKS_POLICY: Final = """\
partial = "allow"
alignment_timeout = "1s"
max_consecutive_fallbacks = 1000
"""
_LISTENER: Final = f"""
[streams.{STREAM}.listeners.months]
type = "mark-done"
start = "earliest"
timestamp_pattern = "${PARTITION}-01"
interval = "1 month"
actions = ["success-file", "mark-event"]
"""


class Wish(NamedTuple):
    """Options of the user."""

    rows: int
    kills: int
    seed: int | None
    slow_region: str | None
    """Region with slow files for a while; None if none is slow."""
    calm: bool
    """With a slow region: use the same setup without the slowness, for comparison."""
    full_cuts: bool
    """With a slow region: each commit waits for all regions, for comparison."""
    mark_done: bool
    """Mark each month when all regions have passed it."""
    table_format: str
    """Format of the table: `paimon`, `iceberg` or `delta`."""
    work: Path
    """Folder for all files of the run; it contains only an empty folder `logs`."""

    @property
    def batches(self) -> int:
        """Number of batches of a region."""
        return max(batches_for(self.rows), _MONTHLY if self.mark_done else 0)


class Regional(NamedTuple):
    """Effect of one slow region on the commits; times in milliseconds."""

    partial_cuts: int
    forced_full: int
    abandoned: int
    max_consecutive_fallbacks: int
    healthy_p50_ms: float
    """Median from the completion of another region's batch to its commit notification, in the whole run."""
    healthy_p50_while_slow_ms: float
    """The same for batches completed while the slow region was slow or silent."""
    slow_longest_ms: int
    """Longest time from the completion of a batch of the slow region to its commit notification."""


class Outcome(NamedTuple):
    """Result of the run."""

    verdict: Verdict
    commits: int
    files: int
    kill_phases: dict[str, int]
    regional: Regional | None = None
    marks: MarksVerdict | None = None
    """None: without marks."""

    @property
    def exact(self) -> bool:
        """True if the table is exactly its source, and each month was marked in time."""
        return self.verdict.exact and (self.marks is None or self.marks.exact)

    @property
    def kills(self) -> int:
        """Number of times that the coordinator was killed."""
        return sum(self.kill_phases.values())


class _Run(NamedTuple):
    """All parts of the run, started or ready to start."""

    wish: Wish
    source: pa.Table
    table: DemoTable
    feed: Feed
    coordinator: Coordinator
    jobs: Jobs
    watch: Watch
    killer: Killer


def run_demo(wish: Wish, display: Display, stack: ExitStack) -> Outcome:
    """Run the demo to the end; `stack` ends the started parts.

    Raises:
        DemoError, EmbeddedError, TopicError: the run failed, or the table cannot be read.
    """
    run = _prepare(wish, display, stack)
    slow = f"; the storage of {wish.slow_region} is going to be slow" if wish.slow_region else ""
    display.note(f"three jobs write, the coordinator commits{'' if wish.calm else slow}")
    _follow(run, display)
    run.coordinator.stop()
    # The last marks may have come after the last look at the log.
    run.watch.end()
    run.watch.check()
    display.keep()
    display.note("everything is committed; reading the table back")
    contents, progress = run.table.read(), run.watch.progress
    return Outcome(
        compare(contents.rows, run.source),
        contents.commits,
        contents.files,
        dict(sorted(run.killer.phases.items())),
        _regional(wish, progress) if wish.slow_region is not None else None,
        progress.marks.verdict() if wish.mark_done else None,
    )


def _regional(wish: Wish, progress: Progress) -> Regional:
    slow = str(wish.slow_region)
    healthy = [region for region in REGIONS if region != slow]
    planned, at = slow_batches(wish.batches), progress.regions[slow].completed_at
    span = at[min(planned) - 1], at[max(planned)]
    return Regional(
        partial_cuts=progress.partial_cuts,
        forced_full=progress.forced_full,
        abandoned=progress.abandoned,
        max_consecutive_fallbacks=progress.max_fallbacks,
        healthy_p50_ms=median(progress.waits(healthy)),
        healthy_p50_while_slow_ms=median(progress.waits(healthy, span)),
        slow_longest_ms=max(progress.waits([slow])),
    )


def _prepare(wish: Wish, display: Display, stack: ExitStack) -> _Run:
    """Start the servers, the coordinator, Spark and the jobs. The files of the flights are made meanwhile."""
    work, slow = wish.work, wish.slow_region
    display.note(f"starting Kafka, Valkey and Spark in {work}")
    valkey, kafka = EmbeddedValkey(work / "valkey"), EmbeddedKafka(work / "kafka")
    coordinator = Coordinator(work / "coordinator.toml", work / "logs")
    for end in (valkey.stop, kafka.stop, coordinator.stop):
        stack.callback(end)

    def start_servers() -> None:
        valkey.start()
        kafka.start()
        asyncio.run(ensure_topics(kafka.bootstrap, topic_specs(TOPICS, partitions=PARTITIONS)))

    with ThreadPoolExecutor(max_workers=3) as pool:
        serving = pool.submit(start_servers)
        loading = pool.submit(load_flights, wish.rows)
        making = pool.submit(create_table, wish.table_format, work / "warehouse")
        spark = start_session(work, parallel=slow is not None, awaited=wish.mark_done)
        stack.callback(spark.stop)
        source, table = loading.result(), making.result()
        files = write_batches(source, work / "source", wish.batches)
        serving.result()
    _write_settings(coordinator.settings, wish, kafka, valkey, table)
    coordinator.start()
    display.note(f"{source.num_rows:,} flights are ready, for the regions {', '.join(REGIONS)}")

    feed, watch = Feed(files, work / "inbox"), Watch(kafka.bootstrap)
    jobs = Jobs(spark, kafka.bootstrap, table, work / "checkpoints")
    # A life must see a few commits, but not consume all files.
    turns = wish.batches // (3 * (wish.kills + 1))
    killer = Killer(
        coordinator, wish.kills, wish.seed, turns, lambda: watch.progress.commits > 0, display.note
    )
    for stop in (jobs.stop, watch.end, killer.end):
        stack.callback(stop)
    killer.start()
    watch.start()
    late = {}
    if slow is not None:
        delays = {} if wish.calm else slow_batches(wish.batches)
        late[slow] = {files[slow][batch].first: seconds for batch, seconds in delays.items()}
    jobs.start(feed.folder, late, evenly=slow is not None)
    return _Run(wish, source, table, feed, coordinator, jobs, watch, killer)


def _write_settings(
    path: Path, wish: Wish, kafka: EmbeddedKafka, valkey: EmbeddedValkey, table: DemoTable
) -> None:
    policy = _POLICY if wish.slow_region is not None else _MARKS_POLICY if wish.mark_done else ""
    text = _SETTINGS.format(
        bootstrap=kafka.bootstrap,
        prefix=TOPICS.prefix,
        partitions=PARTITIONS,
        redis=valkey.url,
        stream=STREAM,
        table=table,
        policy="" if wish.full_cuts else policy,
        options="".join(f'{name} = "{value}"\n' for name, value in table.options.items()),
        listeners=_LISTENER if wish.mark_done else "",
    )
    path.write_text(text, encoding="utf-8")


def _follow(run: _Run, display: Display) -> None:
    """Show the progress until all regions are closed, committed and marked. Raises RunFailed."""
    wish, progress, killer = run.wish, run.watch.progress, run.killer
    totals = {each["values"]: each["counts"] for each in run.source["origin"].value_counts().to_pylist()}
    seen, moved = "", time.monotonic()
    while not _is_done(run):
        ready = None if killer.ready_since is None else time.monotonic() - killer.ready_since
        run.feed.open(share_due(wish.kills, killer.killed, wish.batches, ready))
        for part in (run.coordinator, run.watch, killer, run.jobs):
            part.check()
        for region, total in totals.items():
            if progress.regions[region].rows_written >= total:
                run.jobs.finish(region)
        seen, moved = _show(run, display, seen, moved)
        time.sleep(_POLL)
    _show(run, display, seen, moved)
    display.show(str(progress), at_once=True)


def _show(run: _Run, display: Display, seen: str, moved: float) -> tuple[str, float]:
    """Show the state; return it, with the time of its last change. Raises RunFailed if that is long ago."""
    progress, kills = run.watch.progress, run.wish.kills
    for month in progress.marks.fresh():
        display.note(str(month))
    state = str(progress)
    state += f"; {progress.marks.marked} of {len(MONTHS)} months done" if run.wish.mark_done else ""
    state += f"; coordinator killed {run.killer.killed} of {kills} times" if kills else ""
    display.show(state)
    if state != seen:
        return state, time.monotonic()
    if time.monotonic() - moved > _STUCK_SECONDS:
        raise RunFailed(f"nothing has moved for {_STUCK_SECONDS:g} s: {state}")
    return seen, moved


def _is_done(run: _Run) -> bool:
    """True if every region is closed, its final batch is in the table, and all kills and marks are done."""
    progress, finals = run.watch.progress, run.jobs.finals
    return (
        not run.killer.is_alive()
        and (not run.wish.mark_done or progress.marks.marked == len(MONTHS))
        and len(finals) == len(REGIONS)
        and all(
            progress.regions[region].committed == (-1 if final is None else final)
            for region, final in finals.items()
        )
    )
