"""One run of the demo, from an empty folder to the comparison of the table with its source."""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import pyarrow as pa

from sluicegate.cli.local.errors import RunFailed, TableDamaged
from sluicegate.cli.local.flights import (
    REGIONS,
    Feed,
    Verdict,
    batches_for,
    compare,
    load_flights,
    rows_by_region,
    share_due,
    write_batches,
)
from sluicegate.cli.local.jobs import Jobs, start_session
from sluicegate.cli.local.kills import Killer
from sluicegate.cli.local.services import Coordinator, Servers
from sluicegate.cli.local.slow_storage import Slowness
from sluicegate.cli.local.tables import DemoTable, create_table
from sluicegate.cli.local.watch import (
    LISTENER,
    MAX_FALLBACKS,
    MONTHS,
    Display,
    MarksVerdict,
    Progress,
    Watch,
    describe,
    read_marks,
)

_POLL: Final = 0.2
_STUCK_SECONDS: Final = 300.0

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
_MONTHLY: Final = 16
"""Batches of a region with marks, so that most commits pass one month."""

_Data = tuple[pa.Table, Feed, DemoTable]
"""Rows of the source, its files, and the table."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Options of the user."""

    rows: int
    kills: int
    seed: int | None
    slow_region: str | None
    """Region with slow storage for a while; None if no storage is slow."""
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of the run."""

    verdict: Verdict
    commits: int
    files: int
    kill_phases: dict[str, int]
    regional: "Regional | None" = None
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


@dataclass(frozen=True, slots=True)
class Regional:
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


@dataclass(frozen=True, slots=True)
class _Parts:
    """All parts of the run, started or ready to start."""

    wish: Wish
    bootstrap: str
    source: pa.Table
    totals: Mapping[str, int]
    table: DemoTable
    feed: Feed
    coordinator: Coordinator
    jobs: Jobs
    progress: Progress
    watch: Watch
    killer: Killer


def run_demo(wish: Wish, display: Display, stack: ExitStack) -> Outcome:
    """Run the demo to the end; `stack` ends the started parts.

    Raises:
        DemoError, EmbeddedError, TopicError: the run failed, or the table cannot be read.
    """
    parts = _prepare(wish, display, stack)
    parts.killer.start()
    parts.watch.start()
    parts.jobs.start(parts.feed.folder, evenly=wish.slow_region is not None)
    slow = f"; the storage of {wish.slow_region} is going to be slow" if wish.slow_region else ""
    display.note(f"three jobs write, the coordinator commits{slow if not wish.calm else ''}")
    _follow(parts, display)
    parts.coordinator.stop()
    display.note("everything is committed; reading the table back")
    marks = read_marks(parts.bootstrap).verdict() if wish.mark_done else None
    contents = parts.table.read()
    counted = parts.table.count()
    if counted != contents.rows.num_rows:
        raise TableDamaged(
            f"the reader of {wish.table_format} finds {counted} rows, the independent one "
            f"{contents.rows.num_rows}"
        )
    verdict = compare(contents.rows, parts.source)
    phases = dict(sorted(parts.killer.phases.items()))
    return Outcome(
        verdict, len(contents.commits), contents.files, phases, _regional(wish, parts.progress), marks
    )


def _regional(wish: Wish, progress: Progress) -> Regional | None:
    slowness = _slowness(wish)
    if slowness is None:
        return None
    healthy = [region for region in REGIONS if region != slowness.region]
    planned = Slowness.plan(slowness.region, wish.batches).delays
    at = progress.regions[slowness.region].completed_at
    span = at[min(planned) - 1], at[max(planned)]
    return Regional(
        partial_cuts=progress.partial_cuts,
        forced_full=progress.forced_full,
        abandoned=progress.abandoned,
        max_consecutive_fallbacks=progress.max_fallbacks,
        healthy_p50_ms=median(progress.waits(healthy)),
        healthy_p50_while_slow_ms=median(progress.waits(healthy, span)),
        slow_longest_ms=max(progress.waits([slowness.region])),
    )


def _slowness(wish: Wish) -> Slowness | None:
    if wish.slow_region is None:
        return None
    planned = Slowness.plan(wish.slow_region, wish.batches)
    return Slowness(planned.region, {}) if wish.calm else planned


def _prepare(wish: Wish, display: Display, stack: ExitStack) -> _Parts:
    work = wish.work
    display.note(f"starting Kafka, Valkey and Spark in {work}")
    servers = Servers(work)
    stack.callback(servers.stop)
    coordinator = Coordinator(work / "coordinator.toml", work / "logs")
    stack.callback(coordinator.stop)
    with ThreadPoolExecutor(max_workers=3) as pool:
        serving = pool.submit(servers.start)
        data = pool.submit(_prepare_data, wish)
        coordinating = pool.submit(_start_coordinator, coordinator, servers, serving, data, wish)
        spark = start_session(work, _slowness(wish), awaited=wish.mark_done)
        stack.callback(spark.stop)
        source, feed, table = data.result()
        serving.result()
        coordinating.result()
    display.note(f"{source.num_rows:,} flights are ready, for the regions {', '.join(REGIONS)}")
    jobs = Jobs(spark, servers.kafka.bootstrap, table, work / "checkpoints")
    stack.callback(jobs.stop)
    progress = Progress(REGIONS)
    watch = Watch(servers.kafka.bootstrap, progress)
    stack.callback(watch.end)
    # A life must see a few commits, but not consume all files.
    turns = wish.batches // (3 * (wish.kills + 1))
    killer = Killer(coordinator, wish.kills, wish.seed, turns, lambda: progress.commits > 0, display.note)
    stack.callback(killer.end)
    totals, bootstrap = rows_by_region(source), servers.kafka.bootstrap
    return _Parts(wish, bootstrap, source, totals, table, feed, coordinator, jobs, progress, watch, killer)


def _start_coordinator(
    coordinator: Coordinator,
    servers: Servers,
    serving: "Future[None]",
    data: "Future[_Data]",
    wish: Wish,
) -> None:
    serving.result()
    policy = _POLICY if wish.slow_region is not None else _MARKS_POLICY if wish.mark_done else ""
    listeners = LISTENER if wish.mark_done else ""
    table = data.result()[2]
    servers.write_settings(coordinator.settings, table, "" if wish.full_cuts else policy, listeners)
    coordinator.start()


def _prepare_data(wish: Wish) -> _Data:
    source = load_flights(wish.rows)
    files = write_batches(source, wish.work / "source", wish.batches)
    return source, Feed(files, wish.work / "inbox"), create_table(wish.table_format, wish.work / "warehouse")


def _follow(parts: _Parts, display: Display) -> None:
    """Show the progress until all regions are closed, committed and marked. Raises RunFailed."""
    progress, jobs, kills = parts.progress, parts.jobs, parts.wish.kills
    seen: object = None
    moved = time.monotonic()
    while not _is_done(parts):
        _feed(parts, kills)
        for each in (parts.coordinator, parts.watch, parts.killer, jobs):
            each.check()
        for region, total in parts.totals.items():
            if progress.regions[region].rows_written >= total:
                jobs.finish(region)
        for month in progress.marks.fresh():
            display.note(str(month))
        more = f", {progress.marks.marked} of {len(MONTHS)} months done" if parts.wish.mark_done else ""
        more += f", coordinator killed {parts.killer.killed} of {kills} times" if kills else ""
        state = describe(progress, parts.totals, more, bars=display.live)
        display.show(state)
        if state != seen:
            seen, moved = state, time.monotonic()
        elif time.monotonic() - moved > _STUCK_SECONDS:
            raise RunFailed(f"nothing has moved for {_STUCK_SECONDS:g} s: {'; '.join(state)}")
        time.sleep(_POLL)
    for month in progress.marks.fresh():
        display.note(str(month))
    display.show(describe(progress, parts.totals, "", bars=display.live), at_once=True)


def _feed(parts: _Parts, kills: int) -> None:
    """Release the files that are due."""
    since = parts.killer.ready_since
    ready = None if since is None else time.monotonic() - since
    parts.feed.open(share_due(kills, parts.killer.killed, parts.wish.batches, ready))


def _is_done(parts: _Parts) -> bool:
    """True if every region is closed, its final batch is in the table, and all kills and marks are done."""
    return (
        not parts.killer.is_alive()
        and (not parts.wish.mark_done or parts.progress.marks.marked == len(MONTHS))
        and len(parts.jobs.finals) == len(parts.totals)
        and all(
            parts.progress.regions[region].committed == (-1 if final is None else final)
            for region, final in parts.jobs.finals.items()
        )
    )
