"""The answers to openings: each is given once, when it is known what the stream makes of it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from sluicegate.coordinator.core.book import Book
from sluicegate.coordinator.core.outbox import Outbox
from sluicegate.events.envelope import Envelope
from sluicegate.events.locations import table_problem
from sluicegate.events.models import Position


class _Asked(NamedTuple):
    """An opening that was read."""

    envelope: Envelope
    refusal: str | None
    table: str | None
    """Where its job writes to."""
    start: Position | None


@dataclass
class Answers:
    """The openings that are not answered yet."""

    refused: dict[str, str]
    """By region, why its last opening was refused, until one is accepted or its own query goes on."""
    _asked: list[_Asked] = field(default_factory=list)

    @property
    def due(self) -> bool:
        """Whether an opening is not answered."""
        return bool(self._asked)

    def note(
        self,
        envelope: Envelope,
        refusal: str | None,
        table: str | None = None,
        start: Position | None = None,
    ) -> None:
        """Take an opening that was read; `start` is where the log lets its lineage start."""
        self._asked.append(_Asked(envelope, refusal, table, start))

    def forget(self, region: str) -> None:
        """Show no refusal of the region: an operator has given an order, or its own query goes on."""
        self.refused.pop(region, None)

    def give(self, book: Book, outbox: Outbox, locations: tuple[str, ...], halted: str | None) -> None:
        """Answer all of them; `halted` is why the whole stream does not go on."""
        for envelope, refusal, table, start in self._asked:
            region = book.state.regions.get(envelope.region)
            elsewhere = table_problem(table, locations)
            wrong = [halted, refusal or (region.fault if region else None)]
            # A job of another table has no other problem: what else is wrong is about the right job.
            reason = elsewhere or ". Also: ".join(dict.fromkeys(each for each in wrong if each)) or None
            self.refused.pop(envelope.region, None)
            if reason is not None:
                self.refused[envelope.region] = reason
            outbox.answer(envelope, reason, region.ref if region else None, start)
        self._asked = []
