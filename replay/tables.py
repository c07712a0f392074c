"""The tables of a replay: their calls block, so they run in a thread, one at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sluicegate.coordinator.core.commit import Commit, Resolved, Stall, Voided
from sluicegate.coordinator.core.effects import Ask, Failed, InspectTable, TableUnfit
from sluicegate.coordinator.core.state import Decision, LightState
from sluicegate.coordinator.settings.model import StreamSettings
from sluicegate.coordinator.stream.table import StreamTable
from sluicegate.kafka.bodies import WrittenEvent
from sluicegate.lakes.history import TableHistory
from sluicegate.lakes.port import BadFiles, Caretaker, LakeUnavailable, NotPublished, TableRefused, TableState
from sluicegate.lakes.registry import adapter
from sluicegate.replay.errors import ReplayRefused

T = TypeVar("T")

MOST_RETRIES = 100
"""Publications that lose the race for the head against other writers, one after the other."""


class ReplayTable:
    """One table, as the stream's commit user."""

    def __init__(self, settings: StreamSettings, threads: ThreadPoolExecutor) -> None:
        self.settings = settings
        self._threads = threads
        self._table = StreamTable(settings, threads)
        self.caretaker: Caretaker = adapter(settings.format).open_caretaker(
            settings.table, settings.adapter_options()
        )

    async def call(self, function: Callable[[], T]) -> T:
        """Run a blocking call. Raises ReplayRefused with what the adapter says."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function)
        except BadFiles as error:
            # It names the file and its table, which need not be this one.
            raise ReplayRefused(str(error)) from error
        except (LakeUnavailable, TableRefused) as error:
            raise ReplayRefused(f"{self.settings.table}: {error}") from error

    async def history(self) -> TableHistory:
        """All that can still be read of who committed what. Raises ReplayRefused."""
        return await self.call(self.caretaker.history)

    async def inspect(self) -> TableState:
        """See that the table is in scope. Raises ReplayRefused."""
        found = await self._table.inspect(InspectTable())
        if isinstance(found, TableState):
            return found
        reason = found.reason if isinstance(found, TableUnfit | Failed) else repr(found)
        raise ReplayRefused(f"{self.settings.table}: {reason}")

    def close(self) -> None:
        """Release what the table holds."""
        self._table.close()

    async def commit(
        self, decision: Decision, state: LightState, bodies: dict[int, WrittenEvent]
    ) -> Resolved | Voided:
        """Bring a decision into the table as a coordinator does: ask, publish on the head that was asked.

        `state` says the table, the recorded snapshot and the policy, and moves on. Raises ReplayRefused.
        """
        commit = Commit(decision)
        while commit.retries < MOST_RETRIES:
            effect = commit.next(state, state.recorded)
            if isinstance(effect, Ask):
                result = await self._table.ask(effect)
            else:
                result = await self._table.publish(effect, bodies)
            if isinstance(result, Failed | NotPublished):
                raise ReplayRefused(f"{self.settings.table}: {result.reason}; try again")
            outcome = commit.take(effect, result, state)
            if isinstance(outcome, Stall):
                raise ReplayRefused(outcome.reason)
            if outcome is not None:
                return outcome
        raise ReplayRefused(
            f"decision {decision.id} lost the race for the table's head {MOST_RETRIES} times; try again when "
            "fewer others write to it"
        )


def standing(table: TableState, settings: StreamSettings, allowed: tuple[str, ...]) -> LightState:
    """Return the state of a stream that a commit needs, without a snapshot that could prove an absence."""
    policy = settings.policy().model_copy(update={"allowed_locations": allowed})
    return LightState(table=table.identity, policy=policy)
