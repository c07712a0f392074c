"""A simulated source, and a query's checkpoint location: the batches that it has planned and finished."""

import json
from dataclasses import dataclass, field

from sluicegate.events.models import Position
from tests.simulator.world import Item

Offsets = dict[str, int]
"""The next item of each shard."""


@dataclass
class Batch:
    """A planned batch."""

    number: int
    start: Offsets
    end: Offsets
    finished: bool = False
    """True if the location has it as done."""

    @property
    def items(self) -> tuple[Item, ...]:
        """Return the items that the batch reads."""
        return tuple(
            (shard, number)
            for shard in sorted(self.start)
            for number in range(self.start[shard], self.end[shard])
        )

    @property
    def digest(self) -> str:
        """Return the digest of the source range."""
        return json.dumps([self.start, self.end], sort_keys=True, separators=(",", ":"))[:128]


@dataclass
class Location:
    """A checkpoint location: it survives crashes, and it can be lost or be restored from a backup."""

    incarnation: str
    base: Position | None
    start: Offsets
    """Offsets of the source at the base."""
    replaces: str | None = None
    """The incarnation that a reset takes the place of."""
    takes_over: int | None = None
    """For a driver without state: the end of the log that its process has seen."""
    registered: bool = False
    """True if a registration was accepted, as far as the location knows."""
    batches: list[Batch] = field(default_factory=list)

    @property
    def offsets(self) -> Offsets:
        """Return the offsets after the newest planned batch."""
        return self.batches[-1].end if self.batches else self.start

    @property
    def next_number(self) -> int:
        """Return the number of the next batch."""
        if self.batches:
            return self.batches[-1].number + 1
        return self.base.checkpoint + 1 if self.base is not None else 0

    def before(self, batch: Batch) -> Position | None:
        """Return the position before a batch."""
        index = self.batches.index(batch)
        if index == 0:
            return self.base
        former = self.batches[index - 1]
        return Position(incarnation=self.incarnation, checkpoint=former.number, digest=former.digest)


@dataclass
class Source:
    """Settings of all regions' sources."""

    items: int
    """Items of each shard."""
    falling: bool = False
    """Some batches carry late data, with a lower watermark."""
    silent: str | None = None
    """The region that states no watermark."""
    bounded: bool = True
    """Regions close when they have read everything; else they are idle then."""
    upload_first: float = 0.8
    """Share of steps with open uploads that deliver one of them before the completion."""
    carries: bool = False
    """Drivers write the files of most batches themselves, and their completions carry these."""
    states_tables: bool = False
    """Registrations name the further tables that the query writes to."""
