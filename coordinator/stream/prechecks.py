"""Checks of events while they wait for a cut, so that a decision waits only for the last ones.

An early check is work in hand of one coordinator, and changes no rule of the core. The check before the
decision uses what passed, and checks everything else. A failure is not remembered: that check finds it again.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import structlog

from sluicegate.coordinator.stream.summary import NAMED, Sizes
from sluicegate.events.models import FilesWritten, FurtherTable
from sluicegate.kafka.bodies import Bodies, Budget, WrittenEvent
from sluicegate.lakes.port import CHECK_LASTS, BadFiles, Checked

log = structlog.get_logger(__name__)

PIECE: Final = 128 << 10
"""Bytes of bodies that are checked in one call. An effect on the table waits for one call at most."""


class Terms(NamedTuple):
    """The part of the logged policy that files must obey."""

    allowed_locations: tuple[str, ...]
    names_checked: bool
    tables: Mapping[str, FurtherTable] = MappingProxyType({})
    """The further tables by name."""


class Arrived(NamedTuple):
    """The files of an event, and the name of their table; empty: the anchor."""

    table: str
    files: FilesWritten


def refuse_other_table(event: FilesWritten, identity: str, which: str = "they") -> None:
    """Raise BadFiles if files were written for another table than the one with this identity."""
    if event.table_identity not in ("", identity):
        raise BadFiles(
            f"{which} were written for another table, which was at this place before: "
            f"{event.table_identity}, and this one is {identity}"
        )


class Passed(NamedTuple):
    """An event that passed its check."""

    terms: Terms
    at: float
    """Time of the check, by the monotonic clock."""
    checked: Checked
    sizes: Sizes
    """Partitions that get files, and the sizes of these (`summary.sizes_of`)."""
    table: str = ""
    """Further table that the files are for; empty: the anchor."""

    @property
    def held(self) -> int:
        """Bytes of memory, about."""
        return self.checked.held + NAMED * len(self.sizes)

    def holds(self, terms: Terms, now: float) -> bool:
        """Return True if the check would pass again, as far as can be known without the table."""
        return self.terms == terms and now - self.at < CHECK_LASTS


class Known(NamedTuple):
    """Results that the check before a decision may use."""

    passed: Mapping[int, Passed] = MappingProxyType({})
    """By offset."""
    room: int = 0
    """Bytes of memory for what passes now."""


def usable(offsets: Iterable[int], passed: Mapping[int, Passed], terms: Terms) -> dict[int, Passed]:
    """Return the checks of these events that hold, if the premises of the table are still theirs."""
    now = time.monotonic()
    # Events may be forgotten meanwhile, as this runs in a thread.
    there = ((offset, passed.get(offset)) for offset in offsets)
    return {offset: each for offset, each in there if each is not None and each.holds(terms, now)}


class Table(Protocol):
    """The table of the stream, as early checks use it."""

    async def check_early(self, events: Mapping[int, WrittenEvent], terms: Terms) -> Mapping[int, Passed]:
        """Return those of these events that pass. Raises LakeUnavailable or TableRefused."""
        ...


class EarlyChecks:
    """The events of one stream that wait for a check, and those that passed."""

    def __init__(self, table: Table, bodies: Bodies, budget: Budget) -> None:
        """`budget` is the memory for what passed."""
        self.passed: dict[int, Passed] = {}
        """By offset."""
        self._table = table
        self._bodies = bodies
        self._budget = budget
        self._waiting: dict[int, None] = {}
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    def arrived(self, offset: int) -> None:
        """Note an event whose files may become part of a cut."""
        self._waiting[offset] = None

    def leave(self, offsets: Iterable[int]) -> None:
        """Leave these to the check before the decision, which begins now."""
        for offset in offsets:
            self._waiting.pop(offset, None)

    @property
    def room(self) -> int:
        """Bytes of memory that are free for what passes."""
        return self._budget.room

    def keep(self, found: Mapping[int, Passed]) -> None:
        """Remember events that passed, as far as the memory allows. The others are checked again."""
        for offset, each in found.items():
            # Of those that were forgotten meanwhile, nothing is kept.
            if self._stopped or self._bodies.size(offset) == 0:
                continue
            self._drop(offset)
            if self._budget.take(each.held):
                self.passed[offset] = each

    def forget(self, offsets: Iterable[int]) -> None:
        """Forget events that are decided, or that no cut will include."""
        for offset in offsets:
            self._waiting.pop(offset, None)
            self._drop(offset)

    def stop(self) -> None:
        """Check nothing after the events that are checked now, and release the memory."""
        self._stopped = True
        self._waiting.clear()
        self.forget(list(self.passed))

    def _drop(self, offset: int) -> None:
        known = self.passed.pop(offset, None)
        if known is not None:
            self._budget.give_back(known.held)

    def start(self, terms: Terms) -> asyncio.Task[None] | None:
        """Begin to check the events that wait. None if that is under way, or if there are none."""
        if not self._waiting or (self._task is not None and not self._task.done()):
            return None
        self._task = asyncio.create_task(self._check(terms), name="early checks")
        return self._task

    async def _check(self, terms: Terms) -> None:
        while piece := self._next_piece():
            try:
                found = await self._table.check_early(piece, terms)
            except Exception as error:
                # The check before the decision meets it again, and reports it.
                log.debug("early checks ended", reason=repr(error))
                self._waiting.clear()
                return
            self.keep(found)

    def _next_piece(self) -> dict[int, WrittenEvent]:
        """Take the next events whose bodies are in memory."""
        piece: dict[int, WrittenEvent] = {}
        size = 0
        while self._waiting and size < PIECE:
            offset = next(iter(self._waiting))
            del self._waiting[offset]
            if (event := self._bodies.get(offset)) is not None:
                piece[offset] = event
                size += len(event.body)
        return piece
