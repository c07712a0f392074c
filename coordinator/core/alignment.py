"""Alignment: the time from which sealed checkpoints wait for lagging regions.

It is work in hand. The fold of the log compares no times, and no validity depends on one.
"""

from collections.abc import Iterable, Mapping

from sluicegate.coordinator.core.pending import Sealed
from sluicegate.events.models import Position


class Alignment:
    """The wait after which lagging regions fall back.

    It counts by the own clock, from the moment a record was read. Append times count only for records that
    were in the log before this coordinator had first read to its end. They are clamped, as the broker's clock
    may jump or be wrong, and may differ from the own clock by any amount.
    """

    def __init__(self) -> None:
        self._waits: dict[str, tuple[Position, int]] = {}
        """By region, the first sealed checkpoint after its position, and the time from which it waits."""
        self._started = False
        self._appended = 0
        """Append time of the last record. Only this one counts: the broker's clock may have jumped."""
        self._read_at: int | None = None
        """Time by the own clock at which the last record was read."""
        self._fresh = False

    def read(self, time: int) -> None:
        """Note a record's append time."""
        self._appended, self._fresh = time, True

    def tick(self, now: int) -> None:
        """Note the time at which the last record was read."""
        if self._fresh or self._read_at is None:
            self._read_at, self._fresh = now, False

    def update(self, sealed: Mapping[str, Sealed], now: int) -> None:
        """Note the first sealed checkpoint of each region, with the log read to its end."""
        self._waits = {name: (each.position, self._since(name, each, now)) for name, each in sealed.items()}
        self._started = True

    def _since(self, name: str, sealed: Sealed, now: int) -> int:
        known = self._waits.get(name)
        if known is not None and known[0] == sealed.position:
            return known[1]
        if self._started or self._read_at is None:
            return now
        # Never later than the last record was read.
        return self._read_at - max(0, self._appended - sealed.time)

    def since(self, names: Iterable[str]) -> int | None:
        """Return the time from which a sealed checkpoint of these regions waits; None if there is none."""
        return min((self._waits[name][1] for name in names if name in self._waits), default=None)
