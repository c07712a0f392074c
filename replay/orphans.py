"""Files that no commit will include: found in the log, checked in the table, checked again at deletion.

A file is deletable if all of these are true:
- An event of the log names it, and that event is orphaned (see `attempts`).
- The event precedes the low-water mark of the stream's newest state record.
- The event and the record that settled it are older than the grace period.
- No other event of the partition names the same path.
- No snapshot, branch, tag or changelog of the table refers to it.

Finality is checked first, then age. The search never touches a file that no event names.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

from sluicegate.coordinator.core.state import StateRecord
from sluicegate.coordinator.stream.continuity import Home
from sluicegate.events.codec import BadBody, read_envelope, read_files
from sluicegate.events.envelope import EventType, Poison
from sluicegate.events.locations import normal
from sluicegate.kafka.bodies import BodyUnavailable
from sluicegate.lakes.port import Fate
from sluicegate.replay.attempts import Attempts, Orphan
from sluicegate.replay.base import Base, bases, check_continuity
from sluicegate.replay.comparison import Comparison, Standing
from sluicegate.replay.course import Course, LogStartsLate
from sluicegate.replay.errors import ReplayRefused
from sluicegate.replay.log import StreamLog
from sluicegate.replay.marks import parse_mark
from sluicegate.replay.progress import Progress
from sluicegate.replay.tables import ReplayTable

CHUNK: Final = 1_000
"""Number of events whose bodies are in memory at a time."""
_PATH: Final = re.compile(rb'"path"\s*:\s*"([^"\\]*)"')
_ESCAPE: Final = b"\\"


class Deletable(NamedTuple):
    """A file that may be deleted."""

    path: str
    size: int
    orphan: Orphan


class Found(NamedTuple):
    """Result of a search."""

    files: list[Deletable]
    young: int
    """Orphaned attempts that are younger than the grace period."""
    kept: int
    """Files of orphaned attempts that stay: another event or the table refers to them."""
    gone: int
    """Files of orphaned attempts that do not exist any more."""


class Search:
    """Search for one stream's orphans; each file is checked again before its deletion."""

    def __init__(
        self,
        stream: str,
        log: StreamLog,
        records: list[StateRecord],
        table: ReplayTable,
        grace: int,
        say: Callable[[str], None],
    ) -> None:
        """Prepare a search; `grace` in milliseconds."""
        self._stream = stream
        self._log = log
        self._records = records
        self._table = table
        self._grace = grace
        self._say = say
        self._begin = self._position = 0
        self._committed = 0
        self._course: Course | None = None
        self._attempts: Attempts | None = None
        self._comparison: Comparison | None = None
        self._old: set[int] = set()
        """Offsets of the orphaned events that are old enough."""
        self._spoken: set[str] = set()
        """Paths that events appended after the search name."""
        self.base: Base | None = None

    async def find(self, now: int) -> Found:
        """Return every file that is deletable at `now`, in milliseconds. Raises ReplayRefused, KafkaError."""
        held = await self._log.range()
        user = self._table.settings.commit_user
        home = Home(self._log.source.partition, user)
        await check_continuity(self._log.fetcher, home, self._records, held)
        self._comparison = Comparison(await self._table.history(), user)
        if not self._records:
            return Found([], 0, 0, 0)
        self._committed, self._begin = self._records[-1].state.committed, held.begin
        await self._read_all(bases(self._records, held, parse_mark("earliest")), await self._log.end())
        old, young = self._orphans(now)
        self._old = {orphan.arrival.offset for orphan in old}
        named = await self._named(old)
        whole = len(named)
        await self._shield(named)
        fates = await self._table.call(lambda: self._table.caretaker.fates(list(named)))
        files = [each for path, each in named.items() if fates[path] is Fate.UNREFERENCED]
        gone = sum(fate is Fate.GONE for fate in fates.values())
        return Found(files, young, whole - len(files) - gone, gone)

    async def delete(self, files: Iterable[Deletable], now: int) -> AsyncIterator[tuple[Deletable, Fate]]:
        """Delete the files that `find` returned, after checking log and table again for each file.

        Raises ReplayRefused, KafkaError.
        """
        for file in files:
            if not await self._still(file, now):
                yield file, Fate.REFERENCED
                continue
            delete = partial(self._table.caretaker.delete_unreferenced, file.path)
            yield file, await self._table.call(delete)

    # --- the log ----------------------------------------------------------------------------------

    async def _read_all(self, choices: list[Base], end: int) -> None:
        for number, base in enumerate(choices):
            self.base = base
            self._course = Course(self._stream, base.record, base.begin)
            self._attempts = Attempts(self._course)
            for settled in self._course.start():
                self._note_commit(self._comparison_of().judge(settled).standing, settled.decision.id)
            try:
                await self._read(base.begin, end)
            except LogStartsLate as error:
                if number == len(choices) - 1:
                    raise ReplayRefused(str(error)) from error
            else:
                return

    async def _read(self, start: int, end: int, seen: Callable[[ConsumerRecord], None] | None = None) -> None:
        """Apply a range of the log, and call `seen` with each of its records."""
        course, attempts = self._following()
        progress = Progress(self._say, "reading the log", start, end)
        async with aclosing(self._log.read(start, end, progress)) as batches:
            async for batch in batches:
                for record in batch:
                    if seen is not None:
                        seen(record)
                    taken = course.take(record.offset, record.timestamp, record.headers, record.value)
                    if taken is None:
                        continue
                    attempts.note(record.offset, record.timestamp, taken)
                    for settled in taken.settled:
                        self._note_commit(self._comparison_of().judge(settled).standing, settled.decision.id)
        self._position = end
        if course.unreadable is not None:
            raise ReplayRefused(f"nothing can be told of orphans: {course.unreadable}")
        for settled in course.finish():
            # A decision that is in the table under its own digest cannot be voided any more.
            if settled.decision.void is None:
                standing = self._comparison_of().judge(settled).standing
                self._note_commit(standing, settled.decision.id)
                if standing is Standing.THERE:
                    attempts.passed(settled, settled.time)

    def _note_commit(self, standing: Standing, decision: int) -> None:
        if standing is Standing.OTHER:
            raise ReplayRefused(
                f"decision {decision} is in the table with other content; nothing can be told of orphans "
                f"before that is settled: sluicegate replay --stream {self._stream} --verify"
            )
        if standing is Standing.THERE:
            self._committed = max(self._committed, decision)

    def _orphans(self, now: int) -> tuple[list[Orphan], int]:
        """Return the orphans that are old enough, and the number of younger ones."""
        _, attempts = self._following()
        found = list(attempts.orphans(self._committed, self._records[-1].low_water))
        old = [orphan for orphan in found if now - orphan.since >= self._grace]
        return old, len(found) - len(old)

    async def _still(self, file: Deletable, now: int) -> bool:
        """True if the file is still deletable after the records appended since the search."""
        end = await self._log.end()
        if end > self._position:
            await self._read(self._position, end, lambda record: self._spoken.update(_paths_in(record)))
            self._old = {orphan.arrival.offset for orphan in self._orphans(now)[0]}
        return file.path not in self._spoken and file.orphan.arrival.offset in self._old

    # --- what the events name ---------------------------------------------------------------------

    async def _named(self, orphans: list[Orphan]) -> dict[str, Deletable]:
        """Return the files of orphaned events that are in the stream's table, by path."""
        home, found = normal(self._table.caretaker.uri), dict[str, Deletable]()
        for start in range(0, len(orphans), CHUNK):
            chunk = {orphan.arrival.offset: orphan for orphan in orphans[start : start + CHUNK]}
            try:
                events = await self._log.fetcher.fetch(self._log.source.partition, list(chunk))
            except BodyUnavailable as error:
                raise ReplayRefused(f"{error}; try again") from error
            for offset, written in events.items():
                try:
                    event = read_files(written.body)
                except BadBody:
                    continue
                if normal(event.location) == home:
                    found |= {
                        file.path: Deletable(file.path, file.size, chunk[offset]) for file in event.files
                    }
        return found

    async def _shield(self, named: dict[str, Deletable]) -> None:
        """Remove the files that any other event of the partition names too."""
        if not named:
            return
        progress = Progress(self._say, "looking who else names them", self._begin, self._position)
        async with aclosing(self._log.read(self._begin, self._position, progress)) as batches:
            async for batch in batches:
                for record in batch:
                    if record.offset not in self._old:
                        for path in _paths_in(record) & named.keys():
                            del named[path]

    def _following(self) -> tuple[Course, Attempts]:
        if self._course is None or self._attempts is None:
            raise ReplayRefused("nothing has been searched yet")
        return self._course, self._attempts

    def _comparison_of(self) -> Comparison:
        if self._comparison is None:
            raise ReplayRefused("nothing has been searched yet")
        return self._comparison


def _paths_in(record: ConsumerRecord) -> set[str]:
    """Return the paths that a `files.written` event of any stream names; none for other events.

    A record whose envelope cannot be read is searched too, so that its paths stay safe.
    """
    envelope = read_envelope(record.headers)
    if not isinstance(envelope, Poison) and envelope.type is not EventType.FILES_WRITTEN:
        return set()
    body = record.value or b""
    if _ESCAPE not in body:
        return {path.decode(errors="replace") for path in _PATH.findall(body)}
    try:
        files = json.loads(body).get("files", [])
        return {str(file.get("path")) for file in files}
    except (ValueError, AttributeError, TypeError):
        return set()
