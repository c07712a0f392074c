"""The tables of a replay, and its connections: calls block, so they run in a thread, one at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from typing import NamedTuple, TypeVar

from sluicegate.coordinator.core.commit import Committing, Outcome
from sluicegate.coordinator.core.effects import (
    Ask,
    CheckFiles,
    Failed,
    FilesChecked,
    InspectTable,
    TableUnfit,
)
from sluicegate.coordinator.core.state import LogState, Proof
from sluicegate.coordinator.core.table import TableProgress
from sluicegate.coordinator.observe.messages import ADOPT, fill, format_cause, format_problem
from sluicegate.coordinator.replay.decisions import LoggedDecision, ReplayRefused, Start
from sluicegate.coordinator.replay.log import StreamLog, open_log, stream_records
from sluicegate.coordinator.settings.model import Settings, StreamSettings
from sluicegate.coordinator.stream.table import StreamTable
from sluicegate.events.models import SnapshotRef, StreamPolicy
from sluicegate.events.problems import Code
from sluicegate.kafka.bodies import WrittenEvent
from sluicegate.lakes.capabilities import Opened, OpensNewest, ReadsHistory, capable
from sluicegate.lakes.history import TableHistory
from sluicegate.lakes.port import BadFiles, LakeUnavailable, Refused, TableRefused, TableState
from sluicegate.lakes.registry import adapter

T = TypeVar("T")
Capability = TypeVar("Capability")

MOST_RETRIES = 100
"""Publications in a row that lose the race for the head against other writers."""


class ReplayTable:
    """One table, as the stream's commit user."""

    def __init__(self, settings: StreamSettings, threads: ThreadPoolExecutor, stream: str) -> None:
        self.settings = settings
        self._stream = stream
        self._threads = threads
        self._table = StreamTable(settings, threads)
        opened = adapter(settings.format)
        self.ref = opened.parse_table(settings.table, settings.adapter_options())
        self.maintenance = opened.open_maintenance(self.ref)

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
            raise ReplayRefused(f"{self.settings.table}: {error}") from error

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
        raise ReplayRefused(f"{self.settings.table}: {reason}")

    def close(self) -> None:
        """Release what the table holds."""
        self._table.close()

    async def require_files(
        self, logged: LoggedDecision, identity: str, policy: StreamPolicy, bodies: Mapping[int, WrittenEvent]
    ) -> None:
        """Check that the table would take a decision's files. Raises ReplayRefused."""
        wanted = CheckFiles(
            {"": tuple(sorted(bodies))}, policy.allowed_locations, identity, policy.file_names == "checked"
        )
        found = await self._table.check(wanted, bodies)
        if isinstance(found, Failed):
            raise ReplayRefused(f"{self.settings.table}: {found.reason}. Try again")
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
    ) -> Outcome:
        """Bring a decision into the table as a coordinator does: ask, publish on the head that was asked.

        `known`: a head that no commit of it precedes; None: the whole history is readable. Raises
        ReplayRefused.
        """
        revert = logged.decision.revert if logged.reverted else None
        # The head of the table as it is; the one that the decision names may be rolled back, or of a table
        # with decisions that a new one lacks.
        made = logged.decision.model_copy(update={"revert": revert, "head": known})
        stated = Proof(decision=made.id, head=known) if known is not None else None
        state = LogState(unresolved=made, policy=policy, proof=stated)
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
                    raise ReplayRefused(f"{self.settings.table}: {reason}. Try again")
            problem = committing.apply(effect, result) if effect is not None else None
            if problem is not None and problem.code is Code.COMMIT_REFUSED:
                raise self._lacking(made.id, format_cause(problem.cause) if problem.cause else problem.detail)
            if problem is not None:
                raise ReplayRefused(format_problem(problem, self._stream))
            if committing.outcome is not None:
                return committing.outcome
        raise ReplayRefused(
            f"decision {made.id} lost the race for the table's head {MOST_RETRIES} times. Try again when "
            "fewer others write to the table"
        )


# Connections of a replay: the log, the state to begin with, and the table.


class Connected(NamedTuple):
    """A stream's log from its start, and its table."""

    log: StreamLog
    start: Start
    table: ReplayTable


@asynccontextmanager
async def connect(settings: Settings, stream: str) -> AsyncIterator[Connected]:
    """Connect to the log and the table of a stream. Raises ReplayRefused, KafkaError, TimeoutError."""
    records = await stream_records(settings, stream)
    with open_table(settings.streams[stream], stream) as table:
        async with open_log(settings, stream) as log:
            yield Connected(log, await log.start(stream, records), table)


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
