"""The further tables of one stream, compared with the log now and then, so that trouble shows before a touch.

Nothing is decided by it: the check before each decision looks again at the tables that it touches.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import structlog

from sluicegate.coordinator.core.effects import refused_name
from sluicegate.coordinator.core.state import LogState
from sluicegate.coordinator.core.state_record import Condition
from sluicegate.events.models import FurtherTable, KnownTable
from sluicegate.events.problems import Code, Problem
from sluicegate.lakes.port import LakeError

log = structlog.get_logger(__name__)

_OTHER: Final = (
    "the settings name {identifier}, which is the table {found}, and the stream has the table {known}. Name "
    "that one again. To accept the new one, leave the name out of the settings of all coordinators first, "
    "and add it again afterwards"
)

_RENAMED: Final = (
    "{identifier} is the table {other} of the stream, and the settings call it {name}. A table keeps its "
    "name: call it {other} in the settings of all coordinators, and let the drivers write to {other}"
)
_BESIDE: Final = (
    "{identifier} keeps its data in the folder of the table {other}, or around it. Each table needs a folder "
    "of its own"
)


class Tables(Protocol):
    """The table of the stream, as the watch uses it."""

    async def compare(self, tables: Mapping[str, KnownTable]) -> Mapping[str, Problem]:
        """Return the trouble of further tables. Raises LakeUnavailable or TableRefused."""
        ...


class TableWatch:
    """Troubles of the further tables of one stream, as of the last comparisons."""

    def __init__(self, tables: Tables, interval: float) -> None:
        """`interval`: seconds between two comparisons."""
        self._tables = tables
        self._interval = interval
        self._named: Mapping[str, FurtherTable | str] = {}
        """The tables of the settings, as they were inspected."""
        self._troubles: dict[str, Problem] = {}
        self._next = 0.0
        self._task: asyncio.Task[None] | None = None

    def inspected(self, named: Mapping[str, FurtherTable | str]) -> None:
        """Note the tables of the settings, as an inspection has found them."""
        self._named, self._next = named, 0.0

    def start(self, state: LogState) -> asyncio.Task[None] | None:
        """Begin a comparison; None if none is due, or if one is under way."""
        busy = self._task is not None and not self._task.done()
        if busy or time.monotonic() < self._next or not state.policy.tables:
            return None
        self._next = time.monotonic() + self._interval
        self._task = asyncio.create_task(self._compare(state), name="tables compared")
        return self._task

    async def _compare(self, state: LogState) -> None:
        before = _known(state)
        try:
            found = await self._tables.compare(before) if before else {}
        except LakeError as error:
            # The anchor cannot be reached either, and its steps report that.
            log.debug("tables not compared", reason=str(error))
            return
        # A decision that was published meanwhile is no contradiction of what was known before.
        after = _known(state)
        same = {name for name, each in before.items() if after.get(name) == each}
        kept = {name: each for name, each in self._troubles.items() if name in after and name not in same}
        self._troubles = kept | {name: each for name, each in found.items() if name in same}

    def conditions(self, state: LogState) -> Iterator[Condition]:
        """Yield one condition for each table in trouble: commits continue, and somebody must act."""
        logged = state.policy.tables
        for name, each in self._named.items():
            detail = each if isinstance(each, str) else _refused(name, each, state)
            if detail and name not in self._troubles:
                yield _condition(Problem(code=Code.TABLE_UNUSABLE, table=name, detail=detail))
        yield from (_condition(each) for name, each in self._troubles.items() if name in logged)


def _known(state: LogState) -> dict[str, KnownTable]:
    """Return the tables of the policy, except those that a decision without an outcome touches."""
    touched = state.unresolved.tables.keys() if state.unresolved is not None else ()
    return {name: state.tables[name] for name in state.policy.tables if name not in touched}


def _refused(name: str, found: FurtherTable, state: LogState) -> str:
    """Return why a table of the settings is not logged; empty if it is."""
    other = refused_name(name, found, state.policy, state.tables)
    if other is None:
        return ""
    known = state.tables[other].terms
    if other == name:
        return _OTHER.format(identifier=found.identifier, found=found.identity, known=known.identity)
    text = _RENAMED if known.identity == found.identity else _BESIDE
    return text.format(name=name, identifier=found.identifier, other=other)


def _condition(problem: Problem) -> Condition:
    return Condition(kind="stall", problem=problem)
