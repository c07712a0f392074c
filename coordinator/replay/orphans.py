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
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

from aiokafka import ConsumerRecord

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
    Verdict,
    resolved,
)
from sluicegate.coordinator.replay.log import Print, Progress, StreamLog
from sluicegate.coordinator.replay.tables import ReplayTable
from sluicegate.events.codec import Flaw, read_attributes, read_files
from sluicegate.events.files import STATED_LENGTH, attempt_of, names_problem, place_of, stated_attempt
from sluicegate.events.problems import Code, Problem
from sluicegate.kafka.bodies import BodyUnavailable
from sluicegate.lakes.capabilities import FileStatus, FindsOrphans
from sluicegate.lakes.drafts import StatedDraft, draft_owner, stated_draft
from sluicegate.lakes.history import TableHistory

CHUNK: Final = 1_000
"""Number of events whose bodies are in memory at a time."""
_PATH: Final = re.compile(rb'"path"\s*:\s*"([^"\\]*)"')
_ESCAPE: Final = b"\\"


class Deletable(NamedTuple):
    """A file that may be deleted."""

    path: str
    size: int
    orphan: Orphan


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


class Search:
    """Search for one stream's orphans; each file is checked again before its deletion."""

    def __init__(
        self, stream: str, log: StreamLog, start: Start, table: ReplayTable, grace: int, show: Print
    ) -> None:
        """Prepare a search; `grace` in milliseconds."""
        self.start = start
        self._stream = stream
        self._log = log
        self._table = table
        self._grace = grace
        self._show = show
        self._fold = LogFold(stream, log.partition, start, log.decode)
        self._events = OrphanEvents(start.state)
        self._position = start.begin
        self._old: set[int] = set()
        """Offsets of the orphans that are old enough."""
        self._named_since: set[str] = set()
        """Paths that events appended after the search name."""
        self._identity = ""
        """Of the table whose history was read."""
        self._lists: dict[int, dict[str, tuple[str, int, str]]] = {}
        """By decision, the attempts whose lists of manifests were found, by identity of snapshot."""
        self._published: set[tuple[str, int, str]] = set()
        """Attempts that were published, or perhaps: the log lacks the outcomes before its start."""
        self._unproven: str | None = None
        """Reason for which no file without an event may be deleted; None: there is none."""

    async def find(self, now: int) -> Found:
        """Return every file that is deletable at `now`, in milliseconds. Raises ReplayRefused, KafkaError."""
        finder = self._finder()
        # First: what is published of the list later is in the history, or the history proves nothing.
        listed = await self._table.call(finder.stated_files)
        history = await self._table.history()
        self._note_lists(listed)
        await self._read(await self._log.end(), Comparison(history, self._table.settings.commit_user))
        self._unproven, self._identity = self._require_newest(history), history.identity
        known = self._fold.replica.state.table
        if known not in (None, history.identity):
            self._refuse(Problem(code=Code.TABLE_REPLACED, detail=history.identity))
        old, young = self._orphans(now)
        self._old = {orphan.arrival.offset for orphan in old}
        named = await self._named(old)
        whole = len(named)
        await self._shield(named, listed)
        statuses = await self._table.call(lambda: finder.file_status([*named, *listed]))
        unreferenced = (path for path in listed if statuses[path] is FileStatus.UNREFERENCED)
        unnamed = [self._judged(path, listed[path]) for path in unreferenced]
        files = [each for path, each in named.items() if statuses[path] is FileStatus.UNREFERENCED]
        gone = sum(statuses[path] is FileStatus.GONE for path in named)
        ripe = [each for each in unnamed if self._is_ripe(each, now)]
        waiting = [each for each in unnamed if not self._is_ripe(each, now)]
        return Found(files, ripe, waiting, young, whole - len(files) - gone, gone)

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
            delete = partial(self._finder().delete_unreferenced, file.path)
            yield file, await self._table.call(delete)

    async def sweep(self, now: int) -> Swept:
        """Find the orphans at `now`, and delete them. Raises ReplayRefused, KafkaError, TimeoutError."""
        found, deleted, size = await self.find(now), 0, 0
        async for file, status in self.delete(found.deletable, now):
            if status is FileStatus.DELETED:
                deleted, size = deleted + 1, size + file.size
        return Swept(deleted, size, len(found.deletable) - deleted, found.young)

    def _finder(self) -> FindsOrphans:
        return self._table.capable(FindsOrphans, "the search for orphans")

    # --- the log ----------------------------------------------------------------------------------

    async def _read(
        self,
        end: int,
        comparison: Comparison | None = None,
        seen: Callable[[ConsumerRecord], object] = lambda record: None,
    ) -> None:
        """Apply the log up to `end`, and call `seen` with each of its records."""
        progress = Progress(self._show, "reading the log", self._position, end)
        async with aclosing(self._log.read(self._position, end)) as batches:
            async for batch in batches:
                for record in batch:
                    seen(record)
                    step = self._fold.read(record.offset, record.timestamp, record.headers, record.value)
                    if step is None:
                        continue
                    self._events.note(step, self._fold.replica.state)
                    if step.settled is not None:
                        self._note_published(step.settled)
                    if step.settled is not None and comparison is not None:
                        self._check(step.settled, comparison)
                progress.at(batch[-1].offset + 1)
        self._position = end
        self._fold.finish()
        if self._fold.problem is not None:
            self._refuse(self._fold.problem)

    def _check(self, logged: LoggedDecision, comparison: Comparison) -> None:
        """Refuse a table with other content: then another log decides what is in it."""
        if comparison.judge(logged).status is CommitStatus.OTHER:
            raise ReplayRefused(
                f"decision {logged.decision.id} is in the table with other content: nothing is known of "
                f"orphans before that is resolved. See: sluicegate replay verify --stream {self._stream}"
            )

    def _note_lists(self, listed: Iterable[str]) -> None:
        for path in listed:
            if (draft := stated_draft(_name(path))) is not None and draft.snapshot:
                self._lists.setdefault(draft.decision, {})[draft.snapshot] = draft.publication
        for decision, attempts in self._lists.items():
            if decision <= self.start.resolved:
                self._published.update(attempts.values())

    def _note_published(self, logged: LoggedDecision) -> None:
        """Note the attempt that published a decision: all, if the outcome does not name the snapshot."""
        attempts = self._lists.get(logged.decision.id, {})
        made = logged.outcome.snapshot if logged.outcome is not None else None
        self._published.update(
            attempt for snapshot, attempt in attempts.items() if made is None or made.identity == snapshot
        )

    def _refuse(self, problem: Problem) -> None:
        raise ReplayRefused(f"nothing is known of orphans. {format_problem(problem, self._stream)}")

    def _orphans(self, now: int) -> tuple[list[Orphan], int]:
        """Return the orphans that are old enough, and the number of younger ones."""
        found = list(self._events.orphans(self._fold.replica.state))
        old = [orphan for orphan in found if now - orphan.since >= self._grace]
        return old, len(found) - len(old)

    def _require_names(self) -> str | None:
        """Return the reason if a name proves nothing: the stream takes files with any name."""
        policy = self._fold.replica.state.policy
        if policy is None or policy.file_names == "checked":
            return None
        return "the stream takes files whose names do not state their attempt"

    def _require_newest(self, history: TableHistory) -> str | None:
        """Return the reason if the table may lack references to winners."""
        state, user = self._fold.replica.state, self._table.settings.commit_user
        committed = resolved(state)
        ours = (past.decision for past in history.commits if past.commit_user == user and past.digest)
        newest = max(ours, default=0)
        if newest > state.decided:
            return f"the table has decision {newest}, which the log lacks: another log may have it as pending"
        return None if newest >= committed else f"the history of the table does not show decision {committed}"

    def _judged(self, path: str, size: int) -> Unnamed:
        """Return a file that no event names, as the log is now."""
        draft, incarnation, checkpoint = stated_draft(_name(path)), None, None
        if draft is not None:
            verdict = self._judged_draft(draft)
        else:
            incarnation, checkpoint = stated_attempt(_name(path)) or ("", -1)
            verdict = self._judged_attempt(incarnation, checkpoint)
        if self._unproven is not None:
            verdict = Verdict(self._unproven, None)
        return Unnamed(path, size, incarnation, checkpoint, *verdict)

    def _judged_attempt(self, incarnation: str, checkpoint: int) -> Verdict:
        if (reason := self._require_names()) is not None:
            return Verdict(reason, None)
        if len(incarnation) < STATED_LENGTH:
            # A short id is not random: another stream of the table may have the same.
            return Verdict(f"incarnation {incarnation} is so short that another stream may have it", None)
        return self._events.judge(incarnation, checkpoint, self._fold.replica.state)

    def _judged_draft(self, draft: StatedDraft) -> Verdict:
        owner = draft_owner(self._identity, self._finder().branch, self._table.settings.commit_user)
        if not owner.startswith(draft.owner):
            return Verdict("the draft is of another commit user, branch or table", None)
        if draft.publication in self._published:
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
            again = self._judged(file.path, file.size)
            return self._is_ripe(again, now) and _name(file.path) not in map(_name, self._named_since)
        return file.path not in self._named_since and file.orphan.arrival.offset in self._old

    # --- what the events name ---------------------------------------------------------------------

    async def _named(self, orphans: list[Orphan]) -> dict[str, Deletable]:
        """Return the files of orphans that are in the stream's table, by path."""
        home, found = place_of(self._table.maintenance.location), dict[str, Deletable]()
        names_checked = self._fold.replica.state.policy.file_names == "checked"
        for start in range(0, len(orphans), CHUNK):
            chunk = {orphan.arrival.offset: orphan for orphan in orphans[start : start + CHUNK]}
            try:
                events = await self._log.bodies(list(chunk))
            except BodyUnavailable as error:
                raise ReplayRefused(f"{format_cause(error.cause)}. Try again") from error
            for offset, written in events.items():
                event = read_files(written.envelope, written.body)
                if isinstance(event, Problem) or place_of(event.location) != home:
                    continue
                if not names_checked or names_problem(attempt_of(written.envelope), event) is None:
                    found |= {
                        file.path: Deletable(file.path, file.size, chunk[offset]) for file in event.files
                    }
        return found

    async def _shield(self, named: dict[str, Deletable], listed: dict[str, int]) -> None:
        """Remove the files that any other event of the partition names too; of the listed ones any event.

        The names of listed files are compared without their folders: one place may have several texts.
        """
        if not named and not listed:
            return
        by_name = {_name(path): path for path in listed}
        begin = self.start.begin
        progress = Progress(self._show, "reading which other events name them", begin, self._position)
        async with aclosing(self._log.read(begin, self._position)) as batches:
            async for batch in batches:
                for record in batch:
                    paths = _paths_in(record)
                    for name in {_name(path) for path in paths} & by_name.keys():
                        listed.pop(by_name.pop(name), None)
                    if record.offset not in self._old:
                        for path in paths & named.keys():
                            del named[path]
                progress.at(batch[-1].offset + 1)


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
