"""Time from the completion to the visible snapshot, beside the format's Java library in the same run.

    python -m tools.bench.visible [--formats paimon] [--sizes 10,1000,10000] [--rounds 200]
        [--aged 1000] [--json]

All events of a checkpoint have arrived and been checked, as in the service while a checkpoint is under way.
Time counts from the moment at which the completion has been read. It has three parts, through the shell of
the service: the check before the decision (premises, identity, duplicate files), the question to the table,
and the publication. Appends to Kafka are left out; `tools.bench.latency` includes them.

The Java library commits as many files, of which all descriptions are prepared, to a table of its own. It
neither asks for the identity of the commit nor waits for the disk; ours does both. The library made both
tables, and counts the files of both at the end. It is a process of its own that was warmed up.

A round is one commit of each side, in turn. All files of one partition have the same statistics.
`aged` are commits of 10 files to one table whose whole history is kept: medians of the first and of the last
tenth. Times are milliseconds.
"""

import argparse
import asyncio
import contextlib
import gc
import logging
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sluicegate.coordinator.core.effects import Ask, CheckFiles, FilesChecked, InspectTable, Publish
from sluicegate.coordinator.service.process import calm_collector, keep_freed_memory
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.prechecks import EarlyChecks, Known, Terms
from sluicegate.coordinator.stream.table import StreamTable, Supply
from sluicegate.events.encoding import encode_event
from sluicegate.events.envelope import Envelope, EventType, with_counts
from sluicegate.events.models import SnapshotRef
from sluicegate.kafka.bodies import Bodies, Budget, WrittenEvent
from sluicegate.lakes.port import Absent, Published, TableState
from sluicegate.lakes.threads import CommitThreads
from tools.bench.common import ATTEMPT, STREAM, WRITER, machine, quantiles, report
from tools.bench.files import Files
from tools.bench.jvm import LIBRARIES, Jvm

REGION: Final = "r1"
INCARNATION: Final = "q1"
FILES_PER_EVENT: Final = 10
DAYS: Final = 4
ROWS: Final = 20
AGED_FILES: Final = 10
WARM_UP: Final = {10: 300, 1_000: 60, 10_000: 10}
"""Commits of each size before the first round."""
_BUDGET: Final = 256 << 20
_THREADS: Final = 8
_LARGE: Final = 5_000


class Parts(NamedTuple):
    """Milliseconds of one commit of ours."""

    check: float
    ask: float
    publish: float


# --- our side -----------------------------------------------------------------------------------------


def options_of(format_name: str, folder: Path, name: str) -> dict[str, str]:
    """Return the options of a stream for a table that the library made."""
    if format_name == "iceberg":
        return {"uri": f"sqlite:///{folder}/catalog.db", "identifier": f"db.{name}"}
    return {}


def _rows() -> pa.RecordBatch:
    """Return rows of each day."""
    count = DAYS * ROWS
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(range(count), pa.int64()),
            "day": [f"2026-01-0{number % DAYS + 1}" for number in range(count)],
            "name": [("a" if number < DAYS else "z") * 12 for number in range(count)],
            "value": [number + 0.5 for number in range(count)],
            "at": pa.array([1_767_225_600_000 + number for number in range(count)], pa.int64()),
        }
    )


class Ours:
    """One table of a stream, with events that have arrived, as the runner of the stream holds them."""

    def __init__(self, format_name: str, location: str, options: Mapping[str, str]) -> None:
        self._settings = StreamSettings.model_validate(
            {"format": format_name, "table": location, "options": dict(options), "commit_user": "bench"}
        )
        self._files = Files(format_name, location, options, _rows())
        self._threads = CommitThreads(_THREADS)
        self._table = StreamTable(self._settings, self._threads)
        budget = Budget(_BUDGET)
        self._bodies = Bodies(budget)
        self._early = EarlyChecks(self._table, self._bodies, budget)
        self._terms = Terms(self._settings.allowed_locations, names_checked=True)
        self._identity = ""
        self._head: SnapshotRef | None = None
        self._decision = 0
        self._offsets: tuple[int, ...] = ()
        self._next = 0

    async def open(self) -> None:
        """Open the table, which is empty."""
        state = await self._table.inspect(InspectTable())
        if not isinstance(state, TableState):
            raise TypeError(state)
        self._identity, self._head = state.identity, state.head

    async def prepare(self, files: int) -> None:
        """Let the events of the next checkpoint arrive, and be checked."""
        envelope = Envelope(
            "e", EventType.FILES_WRITTEN, STREAM, REGION, INCARNATION, self._decision, WRITER, ATTEMPT
        )
        first = self._next
        for body in self._files.events(files, self._decision, FILES_PER_EVENT):
            event = with_counts(envelope._replace(id=str(uuid.uuid4())), body)
            self._bodies.keep(self._next, event, encode_event(event, body, 0).value)
            self._early.arrived(self._next)
            self._next += 1
        self._offsets = tuple(range(first, self._next))
        if (task := self._early.start(self._terms)) is not None:
            await task
        if len(self._early.passed) != len(self._offsets):
            raise RuntimeError(f"{len(self._early.passed)} of {len(self._offsets)} events passed their check")

    async def commit(self) -> Parts:
        """Commit the checkpoint."""
        self._decision += 1
        start = time.perf_counter()
        await self._check()
        checked = time.perf_counter()
        head = await self._ask()
        asked = time.perf_counter()
        await self._publish(head)
        done = time.perf_counter()
        self._bodies.drop(self._offsets)
        self._early.forget(self._offsets)
        self._files.drop()
        return Parts((checked - start) * 1e3, (asked - checked) * 1e3, (done - asked) * 1e3)

    async def _check(self) -> None:
        effect = CheckFiles({REGION: self._offsets}, self._terms.allowed_locations, self._identity, True)
        self._early.leave(self._offsets)
        with closing(self._supply()) as bodies:
            known = Known(self._early.passed, self._early.room)
            checked = await self._table.check(effect, bodies, known)
        self._early.keep(self._table.take_passed())
        if checked != FilesChecked({}):
            raise RuntimeError(f"the check failed: {checked}")

    async def _ask(self) -> SnapshotRef | None:
        answer = await self._table.ask(Ask(self._decision, self._digest, self._identity, self._head))
        if not isinstance(answer, Absent):
            raise TypeError(answer)
        return answer.head

    async def _publish(self, head: SnapshotRef | None) -> None:
        terms = self._terms
        effect = Publish(
            self._decision, self._digest, head, None, self._offsets, terms.allowed_locations, True
        )
        with closing(self._supply()) as bodies:
            done = await self._table.publish(effect, bodies, self._early.passed)
        if not isinstance(done, Published):
            raise TypeError(done)
        self._head = done.snapshot

    @property
    def _digest(self) -> str:
        return f"{self._decision:064x}"

    def _supply(self) -> Supply[WrittenEvent]:
        return Supply(self._offsets, self._bodies.first_of(self._offsets), self._read)

    async def _read(self, offsets: Sequence[int]) -> dict[int, WrittenEvent]:
        """Return events, all of which are in memory."""
        return self._bodies.first_of(offsets)

    def close(self) -> None:
        """Release the table."""
        self._early.stop()
        self._table.close()
        self._threads.shutdown()


# --- the run ------------------------------------------------------------------------------------------


class Round(NamedTuple):
    """One commit of each side; ours is None if only the library is measured."""

    ours: Parts | None
    theirs: float


class Bench:
    """Pairs of tables of one format: one that we commit to, one of the library."""

    def __init__(self, format_name: str, folder: Path, *, alone: bool) -> None:
        self._format = format_name
        self._folder = folder
        self._alone = alone
        self._pairs = 0
        self.jvm = Jvm(LIBRARIES[format_name], folder)

    def close(self) -> None:
        """End the library's process."""
        with self.jvm:
            pass

    async def rounds(self, files: int, count: int) -> list[Round]:
        """Commit to two new tables in turn, and compare them at the end."""
        self._pairs += 1
        names = f"ours{self._pairs}", f"theirs{self._pairs}"
        self.jvm.create(names[1])
        self.jvm.use(names[1])
        with contextlib.ExitStack() as stack:
            ours = None
            if not self._alone:
                options = options_of(self._format, self._folder, names[0])
                ours = stack.enter_context(closing(Ours(self._format, self.jvm.create(names[0]), options)))
                await ours.open()
            found = [await self._round(ours, files, first=number % 2) for number in range(count)]
        for name in names[self._alone :]:
            if (there := self.jvm.count(name)) != files * count:
                raise RuntimeError(f"{name} has {there} files instead of {files * count}")
        return found

    async def _round(self, ours: Ours | None, files: int, first: int) -> Round:
        if ours is not None:
            await ours.prepare(files)
        self.jvm.prepare(files)
        gc.collect()
        theirs = self.jvm.commit() if first else 0.0
        parts = await ours.commit() if ours is not None else None
        return Round(parts, theirs if first else self.jvm.commit())


def sums(rounds: Sequence[Round]) -> list[float]:
    """Milliseconds of our commits."""
    return [sum(each.ours) for each in rounds if each.ours is not None]


def figures(rounds: Sequence[Round]) -> dict[str, Any]:
    """Figures of one size."""
    jvm = quantiles([each.theirs for each in rounds])
    ours = sums(rounds)
    if not ours:
        return {"jvm_ms": jvm}
    parts = {
        f"{name}_ms": round(median(getattr(each.ours, name) for each in rounds), 2) for name in Parts._fields
    }
    ratio = round(median(ours) / median(each.theirs for each in rounds), 2)
    return {"ours_ms": quantiles(ours), **parts, "jvm_ms": jvm, "ratio": ratio}


def ageing(rounds: Sequence[Round]) -> dict[str, Any]:
    """Medians of the first and of the last tenth of the commits, and their ratio."""
    tenth = max(1, len(rounds) // 10)
    sides = {"ours": sums(rounds), "jvm": [each.theirs for each in rounds]}
    found: dict[str, Any] = {}
    for name, values in sides.items():
        if values:
            first, last = median(values[:tenth]), median(values[-tenth:])
            found |= {
                f"{name}_first_ms": round(first, 2),
                f"{name}_last_ms": round(last, 2),
                f"{name}_growth": round(last / first, 2),
            }
    return found


async def measure(format_name: str, folder: Path, arguments: argparse.Namespace) -> None:
    """Measure a format, and print a line for each size and one for the ageing."""
    with closing(Bench(format_name, folder, alone=arguments.alone)) as bench:
        for files, count in WARM_UP.items():
            await bench.rounds(files, max(2, int(count * arguments.warm_up)))
        for files in (int(part) for part in arguments.sizes.split(",") if part):
            before = machine()
            count = arguments.rounds if files < _LARGE else max(2, arguments.rounds // 10)
            found = figures(await bench.rounds(files, count))
            size = {"format": format_name, "files": files, "rounds": count}
            report({**size, **found, "before": before, "after": machine()}, as_json=arguments.json)
        if arguments.aged:
            before = machine()
            found = ageing(await bench.rounds(AGED_FILES, arguments.aged))
            aged = {"format": format_name, "files": AGED_FILES, "aged": arguments.aged}
            report({**aged, **found, "before": before, "after": machine()}, as_json=arguments.json)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", default="paimon", help=f"of {','.join(LIBRARIES)}")
    parser.add_argument("--sizes", default="10,1000,10000")
    parser.add_argument("--rounds", type=int, default=200, help="a tenth of it for the largest size")
    parser.add_argument("--aged", type=int, default=1_000, help="commits for the ageing; 0: none")
    parser.add_argument("--warm-up", type=float, default=1.0, help="share of the usual number of commits")
    parser.add_argument("--alone", action="store_true", help="measure the library alone")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    # As the process of the coordinator.
    calm_collector()
    keep_freed_memory()
    for format_name in arguments.formats.split(","):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(format_name, Path(folder), arguments))


if __name__ == "__main__":
    main()
