"""The tables of a replay, and its connections: calls block, so they run in a thread, one at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from typing import Final, NamedTuple, TypeVar

from pydantic import SecretStr

from sluicegate.coordinator.core.commit import Committing, Outcome
from sluicegate.coordinator.core.effects import (
    Ask,
    CheckFiles,
    Failed,
    FilesChecked,
    InspectTable,
    Publish,
    TableUnfit,
)
from sluicegate.coordinator.core.state import LogState, Proof
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.coordinator.observe.messages import ADOPT, fill, format_cause, format_problem
from sluicegate.coordinator.replay.decisions import (
    Comparison,
    LogFold,
    LoggedDecision,
    ReplayRefused,
    Start,
)
from sluicegate.coordinator.replay.log import Print, StreamLog, open_log, quiet, stream_records
from sluicegate.coordinator.settings.model import Settings, StreamSettings
from sluicegate.coordinator.stream.table import StreamTable
from sluicegate.events.models import FurtherTable, KnownTable, SnapshotRef, StreamPolicy
from sluicegate.events.problems import CauseCode, Code, Problem
from sluicegate.kafka.bodies import WrittenEvent
from sluicegate.lakes.capabilities import Opened, OpensGroups, OpensNewest, ReadsHistory, capable
from sluicegate.lakes.history import TableHistory
from sluicegate.lakes.port import (
    BadFiles,
    Found,
    LakeUnavailable,
    Published,
    Refused,
    TableRefused,
    TableState,
)
from sluicegate.lakes.registry import adapter

T = TypeVar("T")
Capability = TypeVar("Capability")

_NO_TABLES: Final[Mapping[str, KnownTable]] = {}
MOST_RETRIES = 100
"""Publications in a row that lose the race for the head against other writers."""


class ReplayTable:
    """One table, as the stream's commit user: the anchor, or a further table that the log names."""

    def __init__(
        self, settings: StreamSettings, threads: ThreadPoolExecutor, stream: str, name: str = ""
    ) -> None:
        """`name`: that of a further table, whose settings these are (`further`); empty for the anchor."""
        self.settings = settings
        self.name = name
        self.place = f"the table {name} ({settings.table})" if name else settings.table
        """The table, as messages name it."""
        self._stream = stream
        self._threads = threads
        self._table = StreamTable(settings, threads)
        self._further: dict[FurtherTable, ReplayTable] = {}
        opened = adapter(settings.format)
        self.ref = opened.parse_table(settings.table, settings.adapter_options())
        self.maintenance = opened.open_maintenance(self.ref)

    def further(self, name: str, terms: FurtherTable) -> "ReplayTable":
        """Return a further table, at the place that the log names. It is closed with this one.

        Raises ReplayRefused.
        """
        if terms not in self._further:
            try:
                place = further_settings(self.settings, terms)
                self._further[terms] = ReplayTable(place, self._threads, self._stream, name)
            except TableRefused as error:
                raise ReplayRefused(f"the table {name}: {error}") from error
        return self._further[terms]

    async def comparison(self, terms: FurtherTable | None = None) -> Comparison:
        """Read the history of the table, to compare the log with it. Raises ReplayRefused.

        `terms`: those of the log. A further table is refused if it is another one now.
        """
        history = await self.history()
        if terms is not None and history.identity != terms.identity:
            raise ReplayRefused(
                f"{self.place} is another table now: {history.identity}, and the stream has "
                f"{terms.identity}. Give that one its name back"
            )
        return Comparison(history, self.settings.commit_user, self.name)

    def capable(self, capability: type[Capability], purpose: str) -> Capability:
        """Return the table's maintenance as one with a capability. Raises ReplayRefused if it lacks that."""
        try:
            return capable(self.maintenance, capability, purpose)
        except TableRefused as error:
            raise ReplayRefused(str(error)) from error

    async def call(self, function: Callable[[], T]) -> T:
        """Run a blocking call. Raises ReplayRefused with the text of the adapter."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function)
        except BadFiles as error:
            # It names the file and its table, which need not be this one.
            raise ReplayRefused(str(error)) from error
        except (LakeUnavailable, TableRefused) as error:
            raise ReplayRefused(f"{self.place}: {error}") from error

    async def history(self) -> TableHistory:
        """Return everything that can still be read about the table's commits. Raises ReplayRefused."""
        return await self.call(self.capable(ReadsHistory, "a replay").history)

    async def open_newest(self) -> Opened:
        """Open the metadata of the newest snapshot, and a sample of its files. Failures are problems."""
        maintenance = self.maintenance
        if not isinstance(maintenance, OpensNewest):
            return Opened(0)

        def opened() -> Opened:
            try:
                return maintenance.open_newest()
            except LakeUnavailable as error:
                return Opened(0, (str(error),))

        return await self.call(opened)

    async def inspect(self) -> TableState:
        """Check that the table is in scope. Raises ReplayRefused."""
        found = await self._table.inspect(InspectTable())
        if isinstance(found, TableState):
            return found
        reason = found.reason if isinstance(found, TableUnfit | Failed) else repr(found)
        raise ReplayRefused(f"{self.place}: {reason}")

    async def trouble(self, tables: Mapping[str, KnownTable]) -> Mapping[str, Problem]:
        """Return the further tables that differ from this knowledge of them. Raises ReplayRefused."""
        try:
            return await self._table.trouble(tables)
        except (LakeUnavailable, TableRefused) as error:
            raise ReplayRefused(str(error)) from error

    async def snapshots(
        self, newest: tuple[int, str, SnapshotRef], identity: str, tables: Mapping[str, KnownTable]
    ) -> Mapping[str, SnapshotRef | None]:
        """Return the further tables that have the anchor's newest commit, with its snapshots there.

        `newest`: its decision, its digest and its snapshot. Raises ReplayRefused.
        """
        decision, digest, ref = newest
        found = await self._table.ask(Ask(decision, digest, identity, ref, tables))
        if isinstance(found, Found):
            return found.tables
        why = found.reason if isinstance(found, Failed) else "it has changed meanwhile"
        raise ReplayRefused(f"{self.place}: {why}. Repeat this command")

    def close(self) -> None:
        """Release what the table holds."""
        for each in self._further.values():
            each.close()
        self._table.close()

    async def require_files(
        self,
        logged: LoggedDecision,
        identity: str,
        policy: StreamPolicy,
        bodies: Mapping[int, WrittenEvent],
        tables: Mapping[str, KnownTable] = _NO_TABLES,
    ) -> None:
        """Check that this table, and these further ones, would take a decision's files.

        Raises ReplayRefused.
        """
        names_checked = policy.file_names == "checked"
        wanted = CheckFiles(
            {"": tuple(sorted(bodies))}, policy.allowed_locations, identity, names_checked, tables
        )
        found = await self._table.check(wanted, bodies)
        if isinstance(found, Failed):
            raise ReplayRefused(f"{self.place}: {found.reason}. Try again")
        if isinstance(found, FilesChecked) and (problem := found.problems.get("")) is not None:
            raise self._lacking(logged.decision.id, problem.detail or format_problem(problem, self._stream))

    def _lacking(self, decision: int, why: str) -> ReplayRefused:
        return ReplayRefused(
            f"decision {decision} cannot be committed: {why}. Restore what is missing. If it is gone, "
            + fill(ADOPT, {"stream": self._stream})
        )

    async def commit(
        self,
        logged: LoggedDecision,
        identity: str,
        known: SnapshotRef | None,
        policy: StreamPolicy,
        bodies: dict[int, WrittenEvent],
        tables: Mapping[str, KnownTable] = _NO_TABLES,
    ) -> Outcome:
        """Bring a decision into the table as a coordinator does: ask, publish on the head that was asked.

        `known`: a head that no commit of it precedes; None: the whole history is readable. `bodies`: the
        events that this table gets, and `tables`, which are those of the further ones that lack it.
        Raises ReplayRefused.
        """
        revert = logged.decision.revert if logged.reverted else None
        # The head of the table as it is; the one that the decision names may be rolled back, or of a table
        # with decisions that a new one lacks.
        mine = {
            "tables": dict(tables),
            "parts": [offset for offset in logged.decision.parts if offset in bodies],
            "parts_of": {name: logged.offsets_of(name) for name in tables},
        }
        made = logged.decision.model_copy(update={"revert": revert, "head": known, **mine})
        stated = Proof(decision=made.id, head=known) if known is not None else None
        # The anchor's commit has the vector.
        there = logged.account.tables if logged.account is not None and policy.tables else {}
        named = {name: each.terms for name, each in {**there, **tables}.items() if name in policy.tables}
        state = LogState(
            unresolved=made,
            policy=policy.model_copy(update={"tables": named}),
            proof=stated,
            tables={**there, **tables},
        )
        committing = Committing(TableProgress(identity=identity))
        while committing.retries < MOST_RETRIES:
            effect = committing.next(state, None)
            if isinstance(effect, Ask):
                result = await self._table.ask(effect)
            elif effect is not None:
                result = await self._table.publish(effect, bodies, account=logged.account)
            match result:
                case Failed(reason) | Refused(reason, cause=None, again=True):
                    # The storage failed. A race that was lost has a cause, and is run again.
                    raise ReplayRefused(f"{self.place}: {reason}. Try again")
            problem = committing.apply(effect, result) if effect is not None else None
            if problem is not None and problem.code is Code.COMMIT_REFUSED:
                raise self._lacking(made.id, format_cause(problem.cause) if problem.cause else problem.detail)
            if problem is not None:
                raise ReplayRefused(format_problem(problem, self._stream))
            if committing.outcome is not None:
                return committing.outcome
        raise _lost_race(made.id)

    async def complete(
        self,
        logged: LoggedDecision,
        name: str,
        known: KnownTable,
        bodies: dict[int, WrittenEvent],
    ) -> SnapshotRef | None:
        """Bring a decision that this table has, the anchor, into a further table that lacks it.

        It is published on the state that shows that it lacks it. Returns the new snapshot. Raises
        ReplayRefused.
        """
        made, policy = logged.decision, logged.policy
        offsets = tuple(logged.offsets_of(name))
        effect = Publish(
            decision=made.id,
            digest=made.digest,
            head=None,
            watermark=made.watermark,
            offsets=offsets,
            allowed_locations=policy.allowed_locations,
            names_checked=policy.file_names == "checked",
            tables={name: known},
            offsets_of={name: offsets},
            apart=True,
        )
        for _ in range(MOST_RETRIES):
            match await self._table.publish(effect, bodies):
                case Published(_, tables):
                    return tables.get(name)
                case Refused(reason, cause=None, again=True):
                    raise ReplayRefused(f"the table {name}: {reason}. Try again")
                case Refused(_, cause, again=False) if (
                    cause is not None and cause.code is CauseCode.OTHER_NEWEST
                ):
                    raise ReplayRefused(
                        f"decision {made.id} cannot be committed to the table {name}: {format_cause(cause)}"
                    )
                case Refused(reason, cause, again=False):
                    raise self._lacking(made.id, format_cause(cause) if cause is not None else reason)
        # After an unknown outcome, each attempt begins with the question whether the table has it.
        raise _lost_race(made.id)


def _lost_race(decision: int) -> ReplayRefused:
    return ReplayRefused(
        f"decision {decision} lost the race for the table's head {MOST_RETRIES} times. Try again when fewer "
        "others write to the table"
    )


def further_settings(own: StreamSettings, terms: FurtherTable) -> StreamSettings:
    """Return the settings of a stream with a further table in the place of its anchor.

    Raises TableRefused.
    """
    opened = adapter(own.format)
    if not isinstance(opened, OpensGroups):
        raise TableRefused(f"tables of the format {own.format} cannot be changed together")
    anchor = opened.parse_table(own.table, own.adapter_options())
    options = opened.named(anchor, terms.identifier).options
    changes = {
        "table": terms.location,
        "tables": {},
        "allowed_locations": terms.allowed_locations,
        "options": {key: SecretStr(value) for key, value in options.items()},
    }
    return own.model_copy(update=changes)


# Connections of a replay: the log, the state to begin with, and the table.


class Connected(NamedTuple):
    """A stream's log from its start, and its tables."""

    log: StreamLog
    start: Start
    table: ReplayTable
    """The anchor."""
    state: LogState
    """At the end of the log: it names the further tables."""

    def tables(self, name: str | None) -> list[ReplayTable]:
        """Return the table of this name, or all that the policy names, the anchor first.

        The anchor has the empty name. A table that the policy leaves out has to be named. Raises
        ReplayRefused.
        """
        known = self.state.tables
        names = ["", *sorted(self.state.policy.tables)] if name is None else [name]
        if name and name not in known:
            raise ReplayRefused(
                f"the log has no further table {name!r} of this stream. It has: "
                f"{', '.join(sorted(known)) or 'none'}"
            )
        return [self.table.further(each, known[each].terms) if each else self.table for each in names]


def named_tables(state: LogState, name: str = "") -> dict[str, KnownTable]:
    """Return the further tables that the newest policy names, and the one that is asked for."""
    return {each: known for each, known in state.tables.items() if each in (name, *state.policy.tables)}


@asynccontextmanager
async def connect(settings: Settings, stream: str, show: Print = quiet) -> AsyncIterator[Connected]:
    """Connect to the log and the table of a stream. Raises ReplayRefused, KafkaError, TimeoutError.

    `show` gets the progress of each reading of the log.
    """
    records = await stream_records(settings, stream)
    with open_table(settings.streams[stream], stream) as table:
        async with open_log(settings, stream, show=show) as log:
            state = await newest_state(log, stream, await log.start(stream, records, await log.end()))
            yield Connected(log, await log.start(stream, records), table, state)


async def newest_state(log: StreamLog, stream: str, start: Start) -> LogState:
    """Return the state at the end of the log, as far as it can be read. Raises KafkaError, TimeoutError."""
    fold = LogFold(stream, log.partition, start, log.decode)
    async with aclosing(log.read(start.begin, await log.end())) as batches:
        async for batch in batches:
            for each in batch:
                fold.read(each.offset, each.timestamp, each.headers, each.value)
    fold.finish()
    return fold.replica.state


@contextmanager
def open_table(settings: StreamSettings, stream: str) -> Iterator[ReplayTable]:
    """Open a table, with a thread of its own. Raises ReplayRefused."""
    with ThreadPoolExecutor(1) as threads:
        try:
            table = ReplayTable(settings, threads, stream)
        except TableRefused as error:
            raise ReplayRefused(str(error)) from error
        with closing(table):
            yield table
