"""A stream's table: effects of the core become calls of the committer half, in a thread."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Generic, Protocol, TypeVar, overload

from aiokafka.errors import KafkaError

from sluicegate.coordinator.core.effects import (
    Ask,
    CheckFiles,
    Failed,
    FilesChecked,
    InspectTable,
    Publish,
    Result,
    TableUnfit,
)
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.account import Account, encode_account
from sluicegate.coordinator.stream.prechecks import Arrived, Known, Passed, Terms, refuse_other_table, usable
from sluicegate.coordinator.stream.summary import Event, Tally, sizes_of
from sluicegate.events.codec import read_files
from sluicegate.events.files import attempt_of, location_problem, names_problem
from sluicegate.events.models import KnownTable
from sluicegate.events.problems import Cause, CauseCode, Code, Problem
from sluicegate.kafka.bodies import BodyUnavailable, WrittenEvent
from sluicegate.lakes.capabilities import GroupCommitter, OpensGroups
from sluicegate.lakes.committer import UniquePaths
from sluicegate.lakes.port import (
    BadFiles,
    Checked,
    CommitRequest,
    Committer,
    LakeError,
    LakeUnavailable,
    OutcomeUnknown,
    Premises,
    Refused,
    TablePart,
    TableRefused,
    TableReplaced,
)
from sluicegate.lakes.registry import adapter

# Event bodies for a call in a thread, read a few at a time: a commit may be larger than the memory.

MOST: Final = 500
"""Maximum number of offsets in one read."""

T = TypeVar("T")

Read = Callable[[Sequence[int]], Coroutine[Any, Any, Mapping[int, T]]]
"""Returns events at the first of these ascending offsets: one at least, and a reasonable number."""


class BodySource(Protocol):
    """Events with their bodies by offset; access in ascending order is fastest."""

    def __getitem__(self, offset: int, /) -> WrittenEvent:
        """Return the event at an offset. Raises BodyUnavailable, KafkaError or TimeoutError."""
        ...


class Supply(Generic[T]):
    """Events that the event loop reads ahead while a thread works on earlier ones.

    Make it on the event loop. `held` are the bodies in memory, which need no read. At most two reads are in
    memory at a time.
    """

    def __init__(self, offsets: Sequence[int], held: Mapping[int, T], read: Read[T]) -> None:
        self._offsets = sorted(offsets)
        self._places = {offset: place for place, offset in enumerate(self._offsets)}
        self._bodies = held
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._coming: tuple[int, Future[Mapping[int, T]]] | None = None
        """Index of the first offset of the next read, and its future result."""

    def __getitem__(self, offset: int, /) -> T:
        """Return the event at an offset. Call it outside of the event loop, unless the body is in memory."""
        if offset not in self._bodies:
            self._bodies = {}
            place = self._places[offset]
            if self._coming is None or self._coming[0] != place:
                self._begin(place)
            self._bodies = self._arrived()
            # Read ahead while the caller works on these bodies.
            self._begin(place + len(self._bodies))
        return self._bodies[offset]

    def _begin(self, place: int) -> None:
        """Start to read the bodies from an index of the offsets."""
        self.close()
        if wanted := self._offsets[place : place + MOST]:
            self._coming = place, asyncio.run_coroutine_threadsafe(self._read(wanted), self._loop)

    def _arrived(self) -> Mapping[int, T]:
        """Wait for the read that was started."""
        if self._coming is None:
            raise LookupError("nothing is being read")
        coming, self._coming = self._coming[1], None
        return coming.result()

    def close(self) -> None:
        """Cancel the read-ahead, if there is one."""
        if self._coming is not None:
            self._coming[1].cancel()
            self._coming = None


STEP: Final = 8 << 20
"""Bytes of bodies whose events are checked together."""


class _Unusable(Exception):
    """The files of an event cannot be committed."""

    def __init__(self, problem: Problem, region: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.region = region


_NOTHING: Final[Mapping[int, Passed]] = {}
_UNKNOWN: Final = Known()
_OUTDATED: Final = Cause(code=CauseCode.CHECKS_OUTDATED)


def open_committer(settings: StreamSettings) -> Committer:
    """Open the committer half of a stream with its further tables. Raises TableRefused or LakeUnavailable."""
    opened = adapter(settings.format)
    table = opened.parse_table(settings.table, settings.adapter_options())
    if isinstance(opened, OpensGroups):
        wanted = {name: (each.identifier, each.allowed_locations) for name, each in settings.tables.items()}
        return opened.open_group(table, settings.commit_user, wanted)
    if settings.tables:
        raise TableRefused(
            f"tables of the format {settings.format} cannot be changed together. Give each table a "
            "stream of its own, and remove `tables`"
        )
    return opened.open_committer(table, settings.commit_user)


class StreamTable:
    """One committer, opened when the table is inspected; one call at a time, in the order of the requests."""

    def __init__(self, settings: StreamSettings, threads: Executor, stall_after: float = 30.0) -> None:
        """`stall_after`: seconds in which a further table that cannot be reached may come back."""
        self._settings = settings
        self._threads = threads
        self._stall_after = stall_after
        self._away: dict[tuple[str, str], float] = {}
        """By name and step, the time since which a further table cannot be reached."""
        self._committer: Committer | None = None
        self._turn = asyncio.Lock()
        self.tally: Tally | None = None
        """Of the last publication whose events were read."""
        self.doubted: dict[str, int] = {}
        """As `TableProgress.doubted`, into which the runner copies it."""
        self.broken: dict[int, tuple[bytes, Problem]] = {}
        """Bodies that turned out to be unreadable, by offset, with the problem."""
        self._passed: dict[int, Passed] = {}
        """Of the last check, by offset."""
        self._room = 0
        """Bytes of memory that are left for them."""

    def take_passed(self) -> dict[int, Passed]:
        """Return the events that passed the last check, as far as they were kept."""
        taken, self._passed = self._passed, {}
        return taken

    async def inspect(self, _: InspectTable) -> Result:
        """Open the table again and return its state."""
        try:
            return await self._call(self._open_and_inspect)
        except TableRefused as error:
            return TableUnfit(str(error))
        except LakeUnavailable as error:
            return Failed(str(error))

    async def ask(self, effect: Ask) -> Result:
        """Ask for a decision."""
        committer = self._opened()

        def ask() -> Result:
            if not effect.tables:
                return committer.ask(effect.decision, effect.digest, effect.table, effect.known)
            return self._group().ask_all(
                (effect.decision, effect.digest),
                effect.table,
                effect.known,
                effect.tables,
                left_out=effect.left_out,
                undo=effect.undo,
            )

        try:
            return await self._call(ask)
        except LakeUnavailable as error:
            return Failed(str(error))

    async def trouble(self, tables: Mapping[str, KnownTable]) -> Mapping[str, Problem]:
        """Return the further tables that differ from what the log or an account knows, with the reason.

        Raises LakeUnavailable or TableRefused.
        """

        def look() -> dict[str, Problem]:
            found: dict[str, Problem] = {}
            for name, each in self._group().trouble(tables).items():
                if isinstance(each, LakeUnavailable):
                    raise each
                found[name] = each
            return found

        return await self._call(look) if tables else {}

    async def check_early(self, events: Mapping[int, WrittenEvent], terms: Terms) -> Mapping[int, Passed]:
        """Return those of these events that pass a check. Raises LakeUnavailable or TableRefused."""
        return await self._call(lambda: self._check_early(events, terms))

    async def compare(self, tables: Mapping[str, KnownTable]) -> dict[str, Problem]:
        """Return the trouble of further tables, those included that have not been reached for too long.

        Raises LakeUnavailable or TableRefused.
        """

        def compare() -> dict[str, Problem]:
            found = self._look(tables)
            return {name: each for name in tables if (each := self._lasting(name, found.get(name)))}

        return await self._call(compare)

    async def check(self, effect: CheckFiles, bodies: BodySource, known: Known = _UNKNOWN) -> Result:
        """Check the events' files, except those of events that passed a check before.

        Raises KafkaError or TimeoutError if a body cannot be read now.
        """
        try:
            return await self._call(lambda: self._check(effect, bodies, known))
        except LakeUnavailable as error:
            return Failed(str(error))

    async def publish(
        self,
        effect: Publish,
        bodies: BodySource,
        passed: Mapping[int, Passed] = _NOTHING,
        account: Account | None = None,
    ) -> Result:
        """Publish a commit; whatever is not known for sure is an unknown outcome.

        Events that passed a check before are not read again. `account`: what the table keeps with the commit.
        """
        try:
            return await self._call(lambda: self._publish(effect, bodies, passed, account))
        except _Unusable as error:
            return Refused(error.problem.detail, _cause_of(error.problem), region=error.region)
        except BodyUnavailable as error:
            return Refused(cause=error.cause)
        except Exception as error:
            return OutcomeUnknown(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Release the committer."""
        if self._committer is not None:
            self._committer.close()

    async def _call(self, function: Callable[[], T]) -> T:
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def _opened(self) -> Committer:
        if self._committer is None:
            raise LakeUnavailable("the table has not been inspected yet")
        return self._committer

    def _open_and_inspect(self) -> Result:
        committer = open_committer(self._settings)
        state = committer.inspect()
        self._committer = committer
        return state

    def _check_early(self, events: Mapping[int, WrittenEvent], terms: Terms) -> dict[int, Passed]:
        read: dict[int, Arrived] = {}
        for offset, event in events.items():
            # The check before the decision finds and reports what is wrong.
            with suppress(_Unusable):
                read[offset] = self._read(event, terms)
        try:
            return self._checked(read, terms)
        except BadFiles:
            found = dict[int, Passed]()
            for offset, files in read.items():
                with suppress(BadFiles):
                    found |= self._checked({offset: files}, terms)
            return found

    def _checked(self, events: Mapping[int, Arrived], terms: Terms) -> dict[int, Passed]:
        """Check events together. Raises BadFiles, LakeUnavailable or TableRefused."""
        started = time.monotonic()
        passed = dict[int, Passed]()
        for name in dict.fromkeys(each.table for each in events.values()):
            mine = {offset: each.files for offset, each in events.items() if each.table == name}
            checked = self._half(name, terms).check(list(mine.values()))
            for (offset, files), each in zip(mine.items(), checked, strict=True):
                refuse_other_table(files, each.premises.table)
                passed[offset] = Passed(terms, started, each, sizes_of(files), name)
        return passed

    def _group(self) -> GroupCommitter:
        """Return the committer of several tables. Raises LakeUnavailable or TableRefused."""
        committer = self._opened()
        if isinstance(committer, GroupCommitter):
            return committer
        raise TableRefused(f"tables of the format {self._settings.format} cannot be changed together")

    def _half(self, name: str, terms: Terms) -> Committer:
        """Return the committer half of the anchor, or of a further table. Raises as `_group` does."""
        return self._group().table(terms.tables[name]) if name else self._opened()

    def _premises(self, names: Iterable[str], terms: Terms) -> dict[str, Premises]:
        """Return what checks of tables depend on now, of those that can be read."""
        found: dict[str, Premises] = {}
        for name in names:
            with suppress(LakeError, KeyError):
                found[name] = self._half(name, terms).premises()
        return found

    def _check(self, effect: CheckFiles, bodies: BodySource, known: Known) -> FilesChecked | TableReplaced:
        regions = {offset: name for name, offsets in effect.parts.items() for offset in offsets}
        terms = _terms(effect)
        there = usable(sorted(regions), known.passed, terms)
        premises = self._premises({each.table for each in there.values()}, terms)
        done = {
            offset: each
            for offset, each in there.items()
            if each.checked.premises == premises.get(each.table)
        }
        self._room = known.room
        checks = {name: _Check(self, name, terms) for name in effect.parts}
        skipped = _skipped(effect, checks, done)
        left = {each: regions[each] for each in regions if each not in skipped}
        problems = self._trouble(effect)
        problems |= self._problems(effect, bodies, checks, left, problems)
        # Asked after a check: the files of a table that was replaced are missing, which is not the problem.
        own = premises.get("")
        seen = own.table if own is not None and not left else None
        identity = seen or self._opened().identity()
        return FilesChecked(problems) if identity == effect.table else TableReplaced(identity)

    def _trouble(self, effect: CheckFiles) -> dict[str, Problem]:
        """Return, by region, the trouble of a further table that its part of the cut would touch.

        The trouble of one table is none of the stream. One that cannot be read may be there again soon, so
        the check is tried again meanwhile. Raises LakeUnavailable.
        """
        if not effect.tables:
            return {}
        problems: dict[str, Problem] = {}
        found = self._look(effect.tables)
        for name in effect.tables:
            trouble = found.get(name)
            problem = self._lasting(name, trouble)
            if problem is None and isinstance(trouble, LakeUnavailable):
                raise LakeUnavailable(f"the table {name}: {trouble}") from trouble
            if problem is not None:
                touching = (region for region, names in effect.touched.items() if name in names)
                problems |= dict.fromkeys(touching, problem)
        return problems

    def _lasting(
        self, name: str, trouble: Problem | LakeUnavailable | None, step: str = "state"
    ) -> Problem | None:
        """Return the trouble of a further table that counts now; None if there is none yet."""
        if not isinstance(trouble, LakeUnavailable):
            self._away.pop((name, step), None)
            return trouble
        now = time.monotonic()
        since = self._away.setdefault((name, step), now)
        if now - since < self._stall_after:
            return None
        return Problem(code=Code.TABLE_UNUSABLE, table=name, detail=str(trouble))

    def _problems(
        self,
        effect: CheckFiles,
        bodies: BodySource,
        checks: "_Checks",
        regions: Mapping[int, str],
        known: Mapping[str, Problem],
    ) -> dict[str, Problem]:
        """Read the log once, however many regions are in it, and hold a part of it at a time.

        `regions`: the region of each event to check, by offset. `known`: problems of regions, which are not
        looked at any more.
        """
        problems = dict(known)
        for offset in sorted(regions):
            region = regions[offset]
            if region in problems:
                continue
            try:
                event = bodies[offset]
                checks[region].add(offset, self._read_at(offset, event, _terms(effect)), len(event.body))
            except _Unusable as error:
                problems[region] = error.problem
            except BodyUnavailable as error:
                problems[region] = Problem(code=Code.BODY_UNREADABLE, number=offset, cause=error.cause)
            except BadFiles as error:
                problems[region] = Problem(code=Code.FILES_EXCLUDED, detail=str(error))
        for region, check in checks.items():
            try:
                if region not in problems:
                    check.finish()
            except _Unusable as error:
                problems[region] = error.problem
        return problems

    def check_step(self, region: str, name: str, events: Mapping[int, Arrived], terms: Terms) -> None:
        """Check events of one region and table together, and keep what passed within the memory.

        Raises _Unusable, or LakeUnavailable.
        """
        try:
            passed = self._checked(events, terms)
        except (BadFiles, TableRefused) as error:
            refused = Problem(code=Code.FILES_EXCLUDED, table=name or None, detail=str(error))
            raise _Unusable(refused, region) from error
        except LakeUnavailable as error:
            problem = self._lasting(name, error, "files") if name else None
            if problem is None:
                raise
            raise _Unusable(problem, region) from error
        self._away.pop((name, "files"), None)
        for offset, each in passed.items():
            self._room -= each.held
            if self._room >= 0:
                self._passed[offset] = each

    def _publish(
        self, effect: Publish, bodies: BodySource, passed: Mapping[int, Passed], account: Account | None
    ) -> Result:
        done = usable(effect.offsets, passed, _terms(effect))
        text = encode_account(account) if account is not None else ""
        try:
            result = self._publish_checked(effect, bodies, done, text)
        except BadFiles as error:
            result = Refused(str(error))
        if isinstance(result, Refused) and not result.again and result.cause is None:
            return replace(result, region=self._refused_region(effect, bodies))
        if done and isinstance(result, Refused) and result.cause == _OUTDATED:
            # The table has changed since the check before the decision, so all events are checked again.
            return self._publish_checked(effect, bodies, {}, text)
        return result

    def _refused_region(self, effect: Publish, bodies: BodySource) -> str | None:
        """Return the first region of which the table does not take an event; None if none is found."""
        with suppress(LakeUnavailable, BodyUnavailable, KafkaError, TimeoutError):
            for offset in sorted(effect.offsets):
                event = bodies[offset]
                try:
                    terms = _terms(effect)
                    read = self._read(event, terms)
                    self._half(read.table, terms).check([read.files])
                except (BadFiles, TableRefused):
                    return event.envelope.region
        return None

    def _publish_checked(
        self, effect: Publish, bodies: BodySource, done: Mapping[int, Passed], account: str
    ) -> Result:
        """Publish; events that are done need no other check unless the table has changed."""
        committer, terms = self._opened(), _terms(effect)
        identity = committer.identity() if len(done) < len(effect.offsets) else ""

        def read(offset: int) -> Event:
            if (known := done.get(offset)) is not None:
                tally.add(known.checked, known.sizes, known.table)
                return known.checked
            event = bodies[offset]
            table, files = self._read(event, terms)
            wanted = terms.tables[table].identity if table else identity
            refuse_other_table(files, wanted, f"files of region {event.envelope.region}")
            tally.add(files, sizes_of(files), table)
            return files

        tally = Tally(effect.decision)
        further = {offset for each in effect.offsets_of.values() for offset in each}
        result = committer.publish(
            CommitRequest(
                decision=effect.decision,
                digest=effect.digest,
                head=effect.head,
                watermark=effect.watermark,
                files=_Events(sorted(each for each in effect.offsets if each not in further), read),
                account=account,
                tables={
                    name: TablePart(self._as_seen(name, effect.tables[name]), _Events(sorted(offsets), read))
                    for name, offsets in effect.offsets_of.items()
                },
                vector={name: each.newest for name, each in effect.tables.items()},
                apart=effect.apart,
                left_out=effect.left_out,
            )
        )
        # One that finds its snapshot there already reads nothing: what was counted before holds.
        if tally.events == len(effect.offsets):
            self.tally = tally
        return result

    def _look(self, tables: Mapping[str, KnownTable]) -> Mapping[str, Problem | LakeUnavailable]:
        """Return the trouble of further tables, and note those that lack their newest decision."""
        found = self._group().trouble({name: self._as_seen(name, each) for name, each in tables.items()})
        for name, known in tables.items():
            problem = found.get(name)
            if problem is None:
                self.doubted.pop(name, None)
                continue
            cause = problem.cause if isinstance(problem, Problem) else None
            # One with a later commit lacks nothing: its outcome is perhaps under way.
            if cause is not None and (cause.number or 0) < known.newest.decision:
                self.doubted[name] = known.newest.decision
        return found

    def _as_seen(self, name: str, known: KnownTable) -> KnownTable:
        """Return what is known of a table, with a doubt if it was seen without its newest decision."""
        doubted = self.doubted.get(name) == known.newest.decision
        return known.model_copy(update={"doubted": True}) if doubted else known

    def _read_at(self, offset: int, event: WrittenEvent, terms: Terms) -> Arrived:
        try:
            return self._read(event, terms)
        except _Unusable as error:
            if error.problem.code is Code.MALFORMED_BODY:
                self.broken[offset] = event.body, error.problem
                unreadable = {"code": Code.BODY_UNREADABLE, "number": offset, "event": event.envelope.id}
                raise _Unusable(error.problem.model_copy(update=unreadable), error.region) from None
            raise

    def _read(self, event: WrittenEvent, terms: Terms) -> Arrived:
        """Return the files of an event that obeys the logged policy. Raises _Unusable."""
        files, table = read_files(event.envelope, event.body), event.envelope.table
        if isinstance(files, Problem):
            raise _Unusable(files, event.envelope.region)
        if table and table not in terms.tables:
            raise _Unusable(Problem(code=Code.TABLE_UNKNOWN, table=table), event.envelope.region)
        allowed = terms.tables[table].allowed_locations if table else terms.allowed_locations
        problem = location_problem(files, allowed)
        if problem is None and terms.names_checked:
            problem = names_problem(attempt_of(event.envelope), files)
        if problem is None and files.format != self._settings.format:
            problem = Problem(code=Code.OTHER_FORMAT, names=(files.format, self._settings.format))
        if problem is not None:
            named = problem.model_copy(update={"table": table}) if table else problem
            raise _Unusable(named, event.envelope.region)
        return Arrived(table, files)


def _cause_of(problem: Problem) -> Cause:
    """Return the reason for which a commit with an unusable event is refused."""
    return problem.cause or Cause(
        code=CauseCode.EVENT_UNUSABLE, problem=problem.code, region=problem.region, names=problem.names
    )


def _terms(effect: CheckFiles | Publish) -> Terms:
    tables = {name: each.terms for name, each in effect.tables.items()}
    return Terms(effect.allowed_locations, effect.names_checked, tables)


def _skipped(effect: CheckFiles, checks: "_Checks", done: Mapping[int, Passed]) -> set[int]:
    """Return the events that need no other check."""
    skipped = set[int]()
    for name, offsets in effect.parts.items():
        known = [offset for offset in offsets if offset in done]
        # A file in two events is named by a check of both.
        if checks[name].skip(done[offset].checked for offset in known):
            skipped.update(known)
    return skipped


class _Check:
    """The check of one region's events, in steps of bounded size."""

    def __init__(self, table: StreamTable, region: str, terms: Terms) -> None:
        self._table = table
        self._region = region
        self._terms = terms
        self._twins = UniquePaths()
        self._events: dict[int, Arrived] = {}
        self._size = 0

    def skip(self, events: Iterable[Checked]) -> bool:
        """Take events that need no other check. Return False if one file is in two of them."""
        return self._twins.add_checked(events)

    def add(self, offset: int, event: Arrived, size: int) -> None:
        """Take an event whose body has so many bytes. Raises BadFiles, _Unusable, LakeUnavailable."""
        self._twins.add(event.files)
        self._events[offset] = event
        self._size += size
        if self._size >= STEP:
            self.finish()

    def finish(self) -> None:
        """Check what has not been checked yet, table by table. Raises _Unusable, LakeUnavailable."""
        events, self._events, self._size = self._events, {}, 0
        for name in dict.fromkeys(each.table for each in events.values()):
            mine = {offset: each for offset, each in events.items() if each.table == name}
            self._table.check_step(self._region, name, mine, self._terms)


_Checks = Mapping[str, _Check]
"""By region."""


class _Events(Sequence[Event]):
    """The events of a commit, made from their bodies each time that one is asked for."""

    def __init__(self, offsets: Sequence[int], read: Callable[[int], Event]) -> None:
        self._offsets = offsets
        self._read = read

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[Event]:
        return map(self._read, self._offsets)

    @overload
    def __getitem__(self, index: int) -> Event: ...

    @overload
    def __getitem__(self, index: slice) -> "_Events": ...

    def __getitem__(self, index: int | slice) -> "Event | _Events":
        if isinstance(index, slice):
            return _Events(self._offsets[index], self._read)
        return self._read(self._offsets[index])
