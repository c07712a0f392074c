"""Rebuild: a new table from copies of the files, with the same commits in the same order.

It makes one table: the anchor, or a further one, which has the decisions that touched it alone.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.observe.messages import format_cause, format_problem
from sluicegate.coordinator.replay.decisions import (
    CommitStatus,
    Comparison,
    LoggedDecision,
    ReplayRefused,
    Start,
)
from sluicegate.coordinator.replay.log import StreamLog
from sluicegate.coordinator.replay.reading import Reading, Window, read_decisions
from sluicegate.coordinator.replay.tables import ReplayTable
from sluicegate.events.codec import read_files
from sluicegate.events.envelope import FILES_WRITTEN
from sluicegate.events.files import location_problem, normal
from sluicegate.events.models import SnapshotRef
from sluicegate.events.problems import Problem
from sluicegate.kafka.bodies import BodyUnavailable, WrittenEvent
from sluicegate.lakes.capabilities import CopiesFiles

_OWN: Final = "this is the stream's own table, or a further one of it. Name another one"


@dataclass
class Rebuilt:
    """Result of a rebuild, made or only planned."""

    commits: int = 0
    files: int = 0
    bytes: int = 0
    found: int = 0
    """Commits that an earlier, interrupted run made."""
    left: int = 0
    """1 if the last decision was left out because an operator ordered to revert it, else 0."""
    done: Reading | None = None
    head: SnapshotRef | None = None
    """The newest snapshot that was made or found."""


class Rebuild:
    """One rebuild of another table from a stream's log."""

    def __init__(
        self,
        log: StreamLog,
        stream: str,
        source: ReplayTable,
        target: ReplayTable,
        *,
        dry: bool,
        incomplete: bool = False,
        lost: bool = False,
        state: LogState | None = None,
    ) -> None:
        """`source`: the anchor, or a further table. `state`: at the end of the log, which names all of them.

        `incomplete`: make a table also of a log that lacks its beginning.

        `lost`: the metadata of the stream's table is lost. The operator has made the new table, and states
        that its schema is that of the lost one.
        """
        self._log = log
        self._stream = stream
        self._source = source
        self._target = target
        self._dry = dry
        self._incomplete = incomplete
        self._lost = lost
        self._history: Comparison | None = None
        self._identity: str | None = None
        """Identity of the new table; None in a plan for a table that does not exist yet."""
        self._tables = state.tables if state is not None else {}
        self._anchor = state.table if state is not None else None
        self._logged = self._tables[source.name].terms.identity if source.name else ""
        """Identity of the further table, by the log; empty for the anchor."""
        self._like = self._logged
        """Identity of the stream's table, which the new one is like; empty until the log names a lost one."""
        self._present = ""
        """Identity of the table that is where the metadata was lost; empty if none is there."""
        self._known: SnapshotRef | None = None
        """The newest snapshot that this rebuild has made or found."""
        self._result = Rebuilt()

    async def run(self, start: Start, window: Window) -> Rebuilt:
        """Copy and commit decision by decision. Raises ReplayRefused, KafkaError, TimeoutError.

        The same command continues an interrupted run.
        """
        lacks = self._lacks(start)
        if lacks > 0 and not self._incomplete:
            way = (
                f"If the sources still have all rows, leave this step out: set streams.{self._stream}.table "
                "to the empty table, and continue there: `sluicegate stream adopt --stream "
                f"{self._stream}`"
                if self._lost
                else "To move the table, copy its whole folder"
            )
            first = "up to " if self._source.name else "1 to "
            raise ReplayRefused(
                f"the new table would lack decisions {first}{lacks}: the log does not have their "
                f"events any more, or the stream was adopted after them. {way}. To make a table without the "
                "rows of these decisions, add --incomplete"
            )
        if normal(self._source.settings.table) == normal(self._target.settings.table):
            raise ReplayRefused(_OWN)
        await self._prepare()
        end = await self._log.end()
        # The account lies in the anchor alone.
        accounted = not self._dry and not self._source.name
        self._result.done = await read_decisions(
            self._log, self._stream, start, end, window, self._rebuild, accounted=accounted
        )
        self._result.head = self._known
        return self._result

    def _lacks(self, start: Start) -> int:
        """Return the newest decision of the table whose events the log does not have; 0 if there is none."""
        if not self._source.name:
            return start.resolved
        known = start.state.tables.get(self._source.name)
        return known.newest.decision if known is not None and known.terms.identity == self._logged else 0

    async def _prepare(self) -> None:
        """Create the table if it is missing.

        Raises ReplayRefused if it has other content than this rebuild's.
        """
        target, user = self._target, self._target.settings.commit_user
        if self._lost:
            with suppress(ReplayRefused):
                self._present = (await self._source.inspect()).identity
        else:
            self._like = await self._model()
            if self._logged not in ("", self._like):
                raise ReplayRefused(
                    f"{self._source.place} is another table now: {self._like}, and the stream has "
                    f"{self._logged}. Give that one its name back"
                )
            if self._dry and not await self._exists():
                return
            await target.call(lambda: self._copier().create_like(self._source.ref))
        identity = (await target.inspect()).identity
        # It has the same ids and digests, so it would look like the beginning of this rebuild.
        if identity in (self._like, self._anchor, *(each.terms.identity for each in self._tables.values())):
            raise ReplayRefused(_OWN)
        history = await target.history()
        strangers = {past.commit_user for past in history.commits if past.commit_user != user}
        if strangers or not history.whole:
            names = ", ".join(sorted(each or "writers that give no name" for each in strangers))
            who = f"commits of {names}" if strangers else "an expired history"
            raise ReplayRefused(f"{target.settings.table} is not empty: it has {who}. Name a fresh table")
        self._history, self._identity = Comparison(history, user), identity

    async def _model(self) -> str:
        """Return the identity of the stream's table. Raises ReplayRefused."""
        try:
            return (await self._source.inspect()).identity
        except ReplayRefused as error:
            raise ReplayRefused(
                f"{error}. If its metadata is lost, make an empty table with its columns and partitioning at "
                f"another place, and name that: sluicegate replay rebuild --stream {self._stream} --into "
                "TABLE --schema-from-target"
            ) from error

    def _copier(self) -> CopiesFiles:
        return self._target.capable(CopiesFiles, "a rebuild")

    async def _exists(self) -> bool:
        try:
            await self._target.history()
        except ReplayRefused:
            return False
        return True

    async def _rebuild(self, logged: LoggedDecision) -> None:
        name = self._source.name
        if name and (logged.outcome is None or not logged.touches(name, self._logged)):
            return
        # The coordinator chooses between the decision and its revert; a rebuild must not choose for it.
        if logged.undetermined:
            self._result.left += 1
            return
        finding = self._history.judge(logged) if self._history is not None else None
        if finding is not None and finding.status is CommitStatus.THERE:
            self._result.found += 1
            self._known = finding.snapshots[0]
            return
        if finding is not None and finding.snapshots:
            raise ReplayRefused(
                f"{self._target.settings.table} is not empty: it has another commit {finding.decision} "
                f"({finding.status}). Name a fresh table"
            )
        self._refuse_former(self._logged or logged.table or "")
        bodies = await self._bodies(logged)
        self._result.commits += 1
        if self._identity is None or self._dry:
            return
        # The new table is alone: the others of the decision keep what they have.
        alone = {"allowed_locations": (self._target.maintenance.location,), "tables": {}}
        policy = logged.policy.model_copy(update=alone)
        outcome = await self._target.commit(logged, self._identity, self._known, policy, bodies)
        self._known = outcome.snapshot

    def _refuse_former(self, identity: str) -> None:
        """Raise ReplayRefused for what belongs to another table than the one that the new one is like."""
        if not identity:
            return
        place = self._source.settings.table
        if self._lost and identity == self._present:
            raise ReplayRefused(
                f"the metadata of {place} is not lost: the log and the table have the identity {identity}. "
                "Leave --schema-from-target out"
            )
        if self._lost and not self._like:
            self._like = identity
        if identity == self._like:
            return
        if self._lost:
            raise ReplayRefused(
                f"it was made for the table {identity}, and the commits before it for {self._like}: the log "
                "has two tables, and columns may differ. End before it: --to"
            )
        raise ReplayRefused(
            f"it was made for another table, which was at {place} before: {identity}, and the one there now "
            f"is {self._like}. Columns may differ. Put the former table back. If its metadata is lost, make "
            "an empty table with its columns and partitioning at another place, and name that: sluicegate "
            f"replay rebuild --stream {self._stream} --into TABLE --schema-from-target"
        )

    async def _bodies(self, logged: LoggedDecision) -> dict[int, WrittenEvent]:
        """Return the bodies of a decision's events for the new table, after copying their files."""
        offsets = logged.offsets_of(self._source.name)
        if not offsets:
            return {}
        try:
            read = await self._log.bodies(offsets)
            return {offset: await self._adopt(read[offset], logged) for offset in offsets}
        except (BodyUnavailable, ReplayRefused) as error:
            why = format_cause(error.cause) if isinstance(error, BodyUnavailable) else error
            raise ReplayRefused(
                f"decision {logged.decision.id} cannot be made again: {why}. The commits before it "
                + ("can be" if self._dry else "are in the new table")
            ) from error

    async def _adopt(self, written: WrittenEvent, logged: LoggedDecision) -> WrittenEvent:
        event = read_files(written.envelope, written.body)
        if isinstance(event, Problem):
            raise ReplayRefused(format_problem(event, self._stream))
        self._refuse_former(event.table_identity)
        if (problem := location_problem(event, self._allowed(logged))) is not None:
            raise ReplayRefused(format_problem(problem, self._stream))
        self._result.files += len(event.files)
        self._result.bytes += sum(file.size for file in event.files)
        if self._dry:
            await self._target.call(lambda: self._copier().examine(event, lost=self._lost))
            return written
        adopted = await self._target.call(lambda: self._copier().adopt(event, lost=self._lost))
        # The copies belong to the new table, which would refuse the files of another one.
        adopted = adopted.model_copy(update={"table_identity": self._identity})
        # Of a completion that carries files, they alone are needed.
        envelope = written.envelope._replace(type=FILES_WRITTEN, table="")
        return WrittenEvent(envelope, adopted.model_dump_json().encode())

    def _allowed(self, logged: LoggedDecision) -> tuple[str, ...]:
        """Return the locations that the policy allows for the files of the table."""
        if not (name := self._source.name):
            return logged.policy.allowed_locations
        now = logged.policy.tables.get(name)
        same = now is not None and now.identity == self._logged
        return (now if now is not None and same else logged.decision.tables[name].terms).allowed_locations
