"""Files that no commit will include: found in the log and in the table, checked again at deletion.

A file that an event of the log names is deletable if all of these are true:
- That event is an orphan (`decisions.OrphanEvents`).
- Its name has the label of the event's attempt, unless the logged policy takes files without one. So an
  event cannot name a file of another stream, whose log may be elsewhere.
- The event and the record that settled it are older than the grace period.
- No other event of the partition names the same path.
- No snapshot, branch, tag or changelog of the table refers to it.

A driver that dies with an attempt leaves files that no event names. They are found by listing. Such a file is
deletable if all of these are true:
- Its name states a checkpoint, and so much of an incarnation that no other stream has the same. The logged
  policy takes no other names.
- Each incarnation of the log that begins so has ended for good, or has a committed position at or after the
  checkpoint. The log has the record of that, which is older than the grace period, and all events of the
  checkpoint: it does not begin after them.
- No event of the partition names a file of the same name, and nothing in the table refers to it.
- The newest decision of the table is that of the log. A table that was rolled back lacks references to
  winners. What a table with a later one waits for is in another log.

Drafts of a publication are found by listing, too (`lakes.drafts`). One is deletable if all of these are true:
- Its name states this table, this stream's commit user and branch, and a decision with an outcome in the log.
  The record of that is older than the grace period.
- No metadata of the table names it, and the log does not name its snapshot as the outcome: a catalog may have
  branches, tags and versions of its own, of which the table's metadata lists the newest snapshot alone.
- The table has the newest committed decision, read after the listing. So no process publishes this decision:
  no repair after a rollback, and no other log that has adopted the table and uses the number again.

All other files whose names state an attempt or a decision are listed, and never deleted: a batch may run for
days.

The files of an event are looked for in its own table alone: the anchor, or the further one that it names. All
of the above is of that table then: its references, its identity, and the newest decision that touched it. The
log is read once for all of them. A further table that cannot be searched does not hold up the others.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.observe.messages import format_cause, format_problem
from sluicegate.coordinator.replay.decisions import (
    CommitStatus,
    Comparison,
    LogFold,
    LoggedDecision,
    Orphan,
    OrphanEvents,
    ReplayRefused,
    Start,
    Step,
    Verdict,
    resolved,
)
from sluicegate.coordinator.replay.log import StreamLog
from sluicegate.coordinator.replay.tables import ReplayTable
from sluicegate.events.codec import Flaw, read_attributes, read_files
from sluicegate.events.files import STATED_LENGTH, attempt_of, names_problem, place_of, stated_attempt
from sluicegate.events.models import CutCommitted, SnapshotRef, StreamCommand
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.bodies import BodyUnavailable
from sluicegate.lakes.capabilities import FileStatus, FindsOrphans
from sluicegate.lakes.drafts import StatedDraft, draft_owner, stated_draft

CHUNK: Final = 1_000
"""Number of events whose bodies are in memory at a time."""
_PATH: Final = re.compile(rb'"path"\s*:\s*"([^"\\]*)"')
_ESCAPE: Final = b"\\"


class Deletable(NamedTuple):
    """A file that may be deleted."""

    path: str
    size: int
    orphan: Orphan

    @property
    def table(self) -> str:
        """Return the name of the further table that it belongs to; empty: the anchor."""
        return self.orphan.arrival.table


class Unnamed(NamedTuple):
    """A file that no event names, and to which nothing in the table refers."""

    path: str
    size: int
    incarnation: str | None
    """Its beginning, as the name states it. None: the file is a draft."""
    checkpoint: int | None
    reason: str
    since: int | None
    """Append time in milliseconds of the record that settled it; None: the file may not be deleted."""
    table: str = ""
    """Name of the further table whose file it is; empty: the anchor."""


class Found(NamedTuple):
    """Result of a search."""

    files: list[Deletable]
    unnamed: list[Unnamed]
    """Files without an event that may be deleted."""
    waiting: list[Unnamed]
    """Files without an event that may not be deleted, or not yet."""
    young: int
    """Orphans that are younger than the grace period."""
    kept: int
    """Files of orphans that stay: another event or the table refers to them."""
    gone: int
    """Files of orphans that do not exist any more."""
    failed: Mapping[str, str]
    """By name, further tables that could not be searched, with the reason."""

    @property
    def deletable(self) -> Sequence[Deletable | Unnamed]:
        """Return the files of both kinds that may be deleted."""
        return [*self.files, *self.unnamed]


class Swept(NamedTuple):
    """Result of a sweep."""

    deleted: int
    bytes: int
    left: int
    """Deletable files that were not deleted: something refers to them now, or they do not exist any more."""
    young: int
    failed: Mapping[str, str]
    """As above."""


class _Home:
    """One table that is searched."""

    def __init__(self, table: ReplayTable) -> None:
        self.table = table
        self.name = table.name
        self.listed: dict[str, int] = {}
        """Files whose names state an attempt or a decision, with their sizes."""
        self.history: Comparison
        self.refused = ""
        """Reason for which nothing is known of its orphans; empty: there is none."""
        self.unproven: str | None = None
        """Reason for which no file without an event may be deleted; None: there is none."""
        self.lists: dict[int, dict[str, tuple[str, int, str]]] = {}
        """By decision, the attempts whose lists of manifests were found, by identity of snapshot."""
        self.published: set[tuple[str, int, str]] = set()
        """Attempts that were published, or perhaps: the log lacks the outcomes before its start."""
        self.untold: set[int] = set()
        """Decisions that touch it, and whose outcome does not say that it has them: a repair may do that."""

    @property
    def finder(self) -> FindsOrphans:
        """The capability of the table. Raises ReplayRefused."""
        return self.table.capable(FindsOrphans, "the search for orphans")

    def note_lists(self, listed: Iterable[str], resolved: int) -> None:
        """Note the drafts among the listed files. `resolved`: the last decision before the log's start."""
        for path in listed:
            if (draft := stated_draft(_name(path))) is not None and draft.snapshot:
                self.lists.setdefault(draft.decision, {})[draft.snapshot] = draft.publication
        for decision, attempts in self.lists.items():
            if decision <= resolved:
                self.published.update(attempts.values())

    def note_published(self, logged: LoggedDecision) -> None:
        """Note the attempt that published a decision: all, if the outcome does not name the snapshot."""
        outcome, number = logged.outcome, logged.decision.id
        made = outcome.snapshot if outcome is not None else None
        if self.name:
            made = outcome.tables.get(self.name) if isinstance(outcome, CutCommitted) else None
            if made is None and self.name in logged.decision.tables:
                self.untold.add(number)
        self.published.update(
            attempt
            for snapshot, attempt in self.lists.get(number, {}).items()
            if made is None or made.identity == snapshot
        )

    def note_stated(self, head: SnapshotRef) -> None:
        """Note the attempt that an operator's order names: a repair has published it."""
        for attempts in self.lists.values():
            if head.identity in attempts:
                self.published.add(attempts[head.identity])

    def compare(self, logged: LoggedDecision, stream: str) -> None:
        """Refuse a table with other content: then another log decides what is in it."""
        number = logged.decision.id
        if self.history.concerns(logged):
            wrong = self.history.judge(logged).status is CommitStatus.OTHER
        else:
            wrong = self.history.has(number)
        if wrong:
            place = self.table.place if self.name else "the table"
            self.refused = self.refused or (
                f"decision {number} is in {place} with other content: nothing is known of orphans before "
                f"that is resolved. See: sluicegate replay verify --stream {stream}"
            )

    def unproven_by(self, state: LogState) -> str | None:
        """Return the reason if the table may lack references to winners."""
        history, user = self.history.history, self.table.settings.commit_user
        ours = (past.decision for past in history.commits if past.commit_user == user and past.digest)
        newest, committed, pending = max(ours, default=0), resolved(state), state.decided
        if self.name:
            made = state.unresolved
            committed = state.tables[self.name].newest.decision
            pending = made.id if made is not None and self.name in made.tables else committed
        if newest > pending:
            return f"the table has decision {newest}, which the log lacks: another log may have it as pending"
        return None if newest >= committed else f"the history of the table does not show decision {committed}"


class Search:
    """Search for one stream's orphans; each file is checked again before its deletion."""

    def __init__(
        self,
        stream: str,
        log: StreamLog,
        start: Start,
        tables: Collection[ReplayTable],
        grace: int,
    ) -> None:
        """Prepare a search in these tables; `grace` in milliseconds."""
        self.start = start
        self._stream = stream
        self._log = log
        self._homes = {table.name: _Home(table) for table in tables}
        self._grace = grace
        self._fold = LogFold(stream, log.partition, start, log.decode)
        self._events = OrphanEvents(start.state)
        self._position = start.begin
        self._old: set[int] = set()
        """Offsets of the orphans that are old enough."""
        self._named_since: set[str] = set()
        """Paths that events appended after the search name."""
        self._failed: dict[str, str] = {}

    async def find(self, now: int) -> Found:
        """Return every file that is deletable at `now`, in milliseconds. Raises ReplayRefused, KafkaError."""
        for home in [*self._homes.values()]:
            try:
                await self._begin(home)
            except ReplayRefused as error:
                self._fail(home, str(error))
        await self._read(await self._log.end(), compare=True)
        for home in [*self._homes.values()]:
            self._finish(home)
        old, young = self._orphans(now)
        self._old = {orphan.arrival.offset for orphan in old}
        named = await self._named(old)
        whole = sum(map(len, named.values()))
        await self._shield(named)
        files: list[Deletable] = []
        unnamed: list[Unnamed] = []
        gone = 0
        for home in [*self._homes.values()]:
            mine, listed = named[home.name], home.listed
            try:
                statuses = await home.table.call(partial(home.finder.file_status, [*mine, *listed]))
            except ReplayRefused as error:
                self._fail(home, str(error))
                whole -= len(mine)
                continue
            unreferenced = (path for path in listed if statuses[path] is FileStatus.UNREFERENCED)
            unnamed += [self._judged(home, path, listed[path]) for path in unreferenced]
            files += [each for path, each in mine.items() if statuses[path] is FileStatus.UNREFERENCED]
            gone += sum(statuses[path] is FileStatus.GONE for path in mine)
        ripe = [each for each in unnamed if self._is_ripe(each, now)]
        waiting = [each for each in unnamed if not self._is_ripe(each, now)]
        return Found(files, ripe, waiting, young, whole - len(files) - gone, gone, self._failed)

    async def _begin(self, home: _Home) -> None:
        # First: what is published of the list later is in the history, or the history proves nothing.
        home.listed = await home.table.call(home.finder.stated_files)
        home.history = await home.table.comparison()
        home.note_lists(home.listed, self.start.resolved)

    def _finish(self, home: _Home) -> None:
        """Judge a table, after the whole log was read. Raises ReplayRefused."""
        state, identity = self._fold.replica.state, home.history.history.identity
        if home.refused:
            self._fail(home, home.refused)
        elif home.name:
            known = state.tables.get(home.name)
            if known is None or known.terms.identity != identity:
                self._fail(home, f"{home.table.place} is another table than the log names: {identity}")
        elif state.table not in (None, identity):
            self._refuse(Problem(code=Code.TABLE_REPLACED, detail=identity))
        if home.name in self._homes:
            home.unproven = home.unproven_by(state)

    def _fail(self, home: _Home, reason: str) -> None:
        """Leave a further table out, or raise ReplayRefused for the anchor, and for a table alone."""
        if not home.name or len(self._homes) + len(self._failed) == 1:
            raise ReplayRefused(reason)
        del self._homes[home.name]
        self._failed[home.name] = reason

    async def delete(
        self, files: Iterable[Deletable | Unnamed], now: int
    ) -> AsyncIterator[tuple[Deletable | Unnamed, FileStatus]]:
        """Delete the files that `find` returned, after checking log and table again for each file.

        Raises ReplayRefused, KafkaError.
        """
        for file in files:
            if not await self._still(file, now):
                yield file, FileStatus.REFERENCED
                continue
            home = self._homes[file.table]
            yield file, await home.table.call(partial(home.finder.delete_unreferenced, file.path))

    async def sweep(self, now: int) -> Swept:
        """Find the orphans at `now`, and delete them. Raises ReplayRefused, KafkaError, TimeoutError."""
        found, deleted, size = await self.find(now), 0, 0
        async for file, status in self.delete(found.deletable, now):
            if status is FileStatus.DELETED:
                deleted, size = deleted + 1, size + file.size
        return Swept(deleted, size, len(found.deletable) - deleted, found.young, found.failed)

    # --- the log ----------------------------------------------------------------------------------

    async def _read(
        self,
        end: int,
        seen: Callable[[ConsumerRecord], object] = lambda record: None,
        *,
        compare: bool = False,
    ) -> None:
        """Apply the log up to `end`, and call `seen` with each of its records."""
        async with aclosing(self._log.read(self._position, end)) as batches:
            async for batch in batches:
                for record in batch:
                    seen(record)
                    step = self._fold.read(record.offset, record.timestamp, record.headers, record.value)
                    if step is not None:
                        self._note(step, compare=compare)
        self._position = end
        self._fold.finish()
        if self._fold.problem is not None:
            self._refuse(self._fold.problem)

    def _note(self, step: Step, *, compare: bool) -> None:
        self._events.note(step, self._fold.replica.state)
        body = step.record.body
        if isinstance(body, StreamCommand) and body.head is not None and (body.table or "") in self._homes:
            self._homes[body.table or ""].note_stated(body.head)
        if step.settled is None:
            return
        for home in self._homes.values():
            home.note_published(step.settled)
            if compare:
                home.compare(step.settled, self._stream)

    def _refuse(self, problem: Problem) -> None:
        raise ReplayRefused(f"nothing is known of orphans. {format_problem(problem, self._stream)}")

    def _orphans(self, now: int) -> tuple[list[Orphan], int]:
        """Return the orphans that are old enough, and the number of younger ones."""
        orphans = self._events.orphans(self._fold.replica.state)
        found = [orphan for orphan in orphans if orphan.arrival.table in self._homes]
        old = [orphan for orphan in found if now - orphan.since >= self._grace]
        return old, len(found) - len(old)

    def _require_names(self) -> str | None:
        """Return the reason if a name proves nothing: the stream takes files with any name."""
        policy = self._fold.replica.state.policy
        if policy is None or policy.file_names == "checked":
            return None
        return "the stream takes files whose names do not state their attempt"

    def _judged(self, home: _Home, path: str, size: int) -> Unnamed:
        """Return a file that no event names, as the log is now."""
        draft, incarnation, checkpoint = stated_draft(_name(path)), None, None
        if draft is not None:
            verdict = self._judged_draft(home, draft)
        else:
            incarnation, checkpoint = stated_attempt(_name(path)) or ("", -1)
            verdict = self._judged_attempt(incarnation, checkpoint)
        if home.unproven is not None:
            verdict = Verdict(home.unproven, None)
        return Unnamed(path, size, incarnation, checkpoint, *verdict, home.name)

    def _judged_attempt(self, incarnation: str, checkpoint: int) -> Verdict:
        if (reason := self._require_names()) is not None:
            return Verdict(reason, None)
        if len(incarnation) < STATED_LENGTH:
            # A short id is not random: another stream of the table may have the same.
            return Verdict(f"incarnation {incarnation} is so short that another stream may have it", None)
        return self._events.judge(incarnation, checkpoint, self._fold.replica.state)

    def _judged_draft(self, home: _Home, draft: StatedDraft) -> Verdict:
        identity = home.history.history.identity
        owner = draft_owner(identity, home.finder.branch, home.table.settings.commit_user)
        if not owner.startswith(draft.owner):
            return Verdict("the draft is of another commit user, branch or table", None)
        if draft.decision in home.untold:
            return Verdict(f"the table may still get decision {draft.decision}", None)
        if draft.publication in home.published:
            return Verdict(f"the log may name it as the outcome of decision {draft.decision}", None)
        return self._events.judge_draft(draft.decision)

    def _is_ripe(self, file: Unnamed, now: int) -> bool:
        return file.since is not None and now - file.since >= self._grace

    async def _still(self, file: Deletable | Unnamed, now: int) -> bool:
        """True if the file is still deletable after the records appended since the search."""
        end = await self._log.end()
        if end > self._position:
            await self._read(end, seen=lambda record: self._named_since.update(_paths_in(record)))
            self._old = {orphan.arrival.offset for orphan in self._orphans(now)[0]}
        if isinstance(file, Unnamed):
            again = self._judged(self._homes[file.table], file.path, file.size)
            return self._is_ripe(again, now) and _name(file.path) not in map(_name, self._named_since)
        return file.path not in self._named_since and file.orphan.arrival.offset in self._old

    # --- what the events name ---------------------------------------------------------------------

    async def _named(self, orphans: list[Orphan]) -> dict[str, dict[str, Deletable]]:
        """Return the files of orphans that are in the event's own table: by its name, then by path."""
        places = {name: place_of(home.table.maintenance.location) for name, home in self._homes.items()}
        found: dict[str, dict[str, Deletable]] = {name: {} for name in places}
        names_checked = self._fold.replica.state.policy.file_names == "checked"
        for start in range(0, len(orphans), CHUNK):
            chunk = {orphan.arrival.offset: orphan for orphan in orphans[start : start + CHUNK]}
            try:
                events = await self._log.bodies(list(chunk))
            except BodyUnavailable as error:
                raise ReplayRefused(f"{format_cause(error.cause)}. Try again") from error
            for offset, written in events.items():
                event, table = read_files(written.envelope, written.body), chunk[offset].arrival.table
                # A further table may have been left out, and named again for another one.
                if isinstance(event, Problem) or place_of(event.location) != places[table]:
                    continue
                if not names_checked or names_problem(attempt_of(written.envelope), event) is None:
                    found[table] |= {
                        file.path: Deletable(file.path, file.size, chunk[offset]) for file in event.files
                    }
        return found

    async def _shield(self, named: dict[str, dict[str, Deletable]]) -> None:
        """Remove the files that any other event of the partition names too; of the listed ones any event.

        The names of listed files are compared without their folders: one place may have several texts. An
        event of another table shields a file, too.
        """
        by_name: dict[str, list[tuple[dict[str, int], str]]] = {}
        for home in self._homes.values():
            for path in home.listed:
                by_name.setdefault(_name(path), []).append((home.listed, path))
        if not by_name and not any(named.values()):
            return
        again = self._log.read(self.start.begin, self._position, "reading which other events name them")
        async with aclosing(again) as batches:
            async for batch in batches:
                for record in batch:
                    paths = _paths_in(record)
                    for name in {_name(path) for path in paths} & by_name.keys():
                        for listed, path in by_name.pop(name):
                            listed.pop(path, None)
                    if record.offset not in self._old:
                        for files in named.values():
                            for path in paths & files.keys():
                                del files[path]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _paths_in(record: ConsumerRecord) -> set[str]:
    """Return the paths that an event with files names, of any stream; none for other events.

    A record whose attributes cannot be read is searched too, so that its paths stay safe.
    """
    envelope = read_attributes(record.headers)
    if not isinstance(envelope, Flaw) and not envelope.writer:
        return set()
    body = record.value or b""
    if _ESCAPE not in body:
        return {path.decode(errors="replace") for path in _PATH.findall(body)}
    try:
        files = json.loads(body).get("files", [])
        if isinstance(files, dict):  # those that a completion carries
            files = files.get("files", [])
        return {str(file.get("path")) for file in files}
    except (ValueError, AttributeError, TypeError):
        return set()
