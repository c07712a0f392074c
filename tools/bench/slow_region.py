"""The delay of healthy regions beside a slow one: the flights of the demo with and without it, in turn.

python -m tools.bench.slow_region [--runs 3] [--rows 336776] [--full] [--json]
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from aiokafka import AIOKafkaConsumer, TopicPartition
from pyspark.sql import DataFrame

from sluicegate.cli.local.flights import REGIONS, ROW_ID, Feed, compare, spark_schema
from sluicegate.cli.local.jobs import Jobs
from sluicegate.cli.local.run import Wish, is_committed, prepare
from sluicegate.cli.local.watch import TOPICS, Progress, Watch
from sluicegate.events.codec import read_record
from sluicegate.events.models import CheckpointCompleted, CutAbandoned
from sluicegate.events.notifications import Committed, Notification
from sluicegate.kafka.clients import started

_SLOW: Final = "JFK"
_LATE_SECONDS: Final = 1.5
_SILENT_SECONDS: Final = 8.0
_POLL: Final = 0.2
# About the time between the ends of the regions' batches in a healthy run: see docs/benchmarks.md.
_POLICY: Final = """\
partial = "allow"
alignment_timeout = "250ms"
max_consecutive_fallbacks = 3
"""


class Cuts(Progress):
    """Progress with the times of the commits, in milliseconds, and what their cuts left behind."""

    def __init__(self) -> None:
        super().__init__()
        self.visible: dict[tuple[str, int], int] = {}
        """By region and batch, the time of the notification of its commit."""
        self.partial = self.given_up = self.longest = 0
        self._behind = dict.fromkeys(REGIONS, 0)

    def notice(self, notification: Notification, time: int) -> None:
        body = notification.body
        self.given_up += isinstance(body, CutAbandoned)
        if isinstance(body, Committed) and body.decision > self.commits:
            self.partial += bool(body.fallbacks)
            for region, at in body.cut.items():
                moved = range(self.committed[region] + 1, at.checkpoint + 1)
                self.visible |= {(region, batch): time for batch in moved}
                self._behind[region] = self._behind[region] + 1 if region in body.fallbacks else 0
            self.longest = max(self.longest, *self._behind.values())
        super().notice(notification, time)


class LateJobs(Jobs):
    """Jobs of which one reads some files late, by the id of their first flight."""

    # They differ, because Spark rounds equal ones to the same moments.
    triggers: Mapping[str, str] = dict(
        zip(REGIONS, ("700 milliseconds", "750 milliseconds", "800 milliseconds"), strict=True)
    )
    late: Mapping[int, float] = {}

    def transform(self, region: str, rows: DataFrame) -> DataFrame:
        return rows.mapInArrow(_pause(self.late), spark_schema()) if region == _SLOW else rows


def _pause(late: Mapping[int, float]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pause(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                time.sleep(late.get(batch.column(ROW_ID)[0].as_py(), 0.0))
            yield batch

    return pause


def slow_batches(batches: int) -> dict[int, float]:
    """Return the seconds by which batches of a slow region are late: a few batches, then one for long."""
    first, count = max(1, batches // 8), max(1, batches // 10)
    return {**dict.fromkeys(range(first, first + count), _LATE_SECONDS), first + count: _SILENT_SECONDS}


def run(name: str, rows: int, *, slow: bool, partial: bool) -> dict[str, Any]:
    """Write the flights once; return what was seen."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work = Path(folder)
        (work / "logs").mkdir()
        parts = prepare(Wish(rows, 0, "paimon", work), stack, len(REGIONS), LateJobs)
        if partial:
            with parts.coordinator.settings.open("a", encoding="utf-8") as file:
                file.write(_POLICY)
        planned = slow_batches(len(parts.files[_SLOW]))
        jobs = parts.jobs
        if slow and isinstance(jobs, LateJobs):
            jobs.late = {_first(parts.files[_SLOW][batch]): late for batch, late in planned.items()}
        feed, cuts = Feed(parts.files, work / "inbox"), Cuts()
        watch = Watch(parts.bootstrap, cuts)
        for stop in (jobs.stop, watch.end):
            stack.callback(stop)
        parts.coordinator.start()
        watch.start()
        jobs.start(feed.folder)
        feed.open(1.0)
        while not is_committed(jobs, cuts):
            for part in (parts.coordinator, watch, jobs):
                part.check()
            if cuts.commits:
                jobs.finish()
            time.sleep(_POLL)
        completed, contents = asyncio.run(completions(parts.bootstrap)), parts.table.read()
        span = completed[_SLOW, min(planned) - 1], completed[_SLOW, max(planned)]
        healthy = [region for region in REGIONS if region != _SLOW]
        verdict = compare(contents.rows, parts.source)

        def waits(regions: Iterable[str], span: tuple[float, float] = (0.0, float("inf"))) -> list[float]:
            return [
                cuts.visible[key] - at
                for key, at in completed.items()
                if key[0] in regions and key in cuts.visible and span[0] <= at <= span[1]
            ]

        return {
            "run": name,
            "rows": verdict.rows,
            "expected": verdict.expected,
            "missing": verdict.missing,
            "duplicated": verdict.duplicated,
            "commits": contents.commits,
            "seconds": round(time.monotonic() - began, 1),
            "partial_cuts": cuts.partial,
            "abandoned": cuts.given_up,
            "max_consecutive_fallbacks": cuts.longest,
            "healthy_p50_ms": median(waits(healthy)),
            "healthy_p50_while_slow_ms": median(waits(healthy, span)),
            "slow_longest_ms": max(waits([_SLOW])),
        }


def _first(file: Path) -> int:
    found: int = pq.read_table(file, columns=[ROW_ID])[ROW_ID][0].as_py()
    return found


async def completions(bootstrap: str) -> dict[tuple[str, int], int]:
    """Return the append times of the completions in the log, by region and batch."""
    source, found = TopicPartition(TOPICS.events, 0), dict[tuple[str, int], int]()
    async with started(AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)) as consumer:
        consumer.assign([source])
        end = (await consumer.end_offsets([source]))[source]
        consumer.seek(source, 0)
        while await consumer.position(source) < end:
            for each in (await consumer.getmany(timeout_ms=500)).get(source, []):
                record = read_record(each.offset, each.timestamp, each.headers, each.value).record
                if record is not None and isinstance(record.body, CheckpointCompleted):
                    found.setdefault((record.envelope.region, record.envelope.checkpoint), record.time)
    return found


def line(found: dict[str, Any]) -> str:
    """One run in a line."""
    exact = found["rows"] == found["expected"] and not found["missing"] and not found["duplicated"]
    return (
        f"{found['run']:<15} {'exact' if exact else 'NOT EXACT':<9}  commits {found['commits']:>3}  "
        f"partial {found['partial_cuts']:>3}  in a row {found['max_consecutive_fallbacks']}  "
        f"given up {found['abandoned']:>2}  p50 {found['healthy_p50_ms']:>5g} ms, while slow "
        f"{found['healthy_p50_while_slow_ms']:>5g} ms  longest of {_SLOW} {found['slow_longest_ms']} ms"
    )


def main() -> None:
    """Run both in turn, so that what else the machine does meets both alike."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="pairs of runs")
    parser.add_argument("--full", action="store_true", help="first once each with full cuts only")
    parser.add_argument("--rows", type=int, default=336_776)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    calm: list[float] = []
    slow: list[float] = []

    def tell(name: str, *, slow: bool, partial: bool = True) -> dict[str, Any]:
        found = run(name, wanted.rows, slow=slow, partial=partial)
        print(json.dumps(found) if wanted.json else line(found), flush=True)
        return found

    if wanted.full:
        tell("calm, full cuts", slow=False, partial=False)
        tell("slow, full cuts", slow=True, partial=False)
    for _ in range(wanted.runs):
        calm.append(tell("calm", slow=False)["healthy_p50_ms"])
        slow.append(tell("slow", slow=True)["healthy_p50_while_slow_ms"])
    if not wanted.json:
        print(
            f"healthy regions, from a batch to its commit, p50: {median(calm):g} ms without a slow region, "
            f"{median(slow):g} ms while {_SLOW} was slow or silent: ratio {median(slow) / median(calm):.2f}"
        )


if __name__ == "__main__":
    main()
