"""Timers: alignment and cadence, with append times clamped, as a broker's clock may jump or be wrong.

All of this is work in hand. The fold of the log compares no times, and no validity depends on one.
"""

from collections.abc import Iterable, Mapping

from sluicegate.coordinator.core.pending import Sealed
from sluicegate.events.models import Position


class LogClock:
    """The broker's clock, estimated from append times: the two clocks may differ by any amount."""

    def __init__(self) -> None:
        self._last = 0
        self._read_at: int | None = None
        self._fresh = False

    def read(self, time: int) -> None:
        """Note a record's append time. Only the last one counts: the broker's clock may have jumped."""
        self._last = time
        self._fresh = True

    def tick(self, now: int) -> None:
        """Note the time by the own clock at which the last record was read."""
        if self._fresh or self._read_at is None:
            self._read_at = now
            self._fresh = False

    def appended(self, time: int, now: int) -> int:
        """Return the time at which a record was appended, by the own clock.

        It is clamped: never later than the last record was read.
        """
        read_at = now if self._read_at is None else self._read_at
        return read_at - max(0, self._last - time)


class Alignment:
    """The timer after which lagging regions fall back.

    It counts by the own clock, from the moment a record was read. Append times count only for records that
    were in the log before this coordinator had first read to its end.
    """

    def __init__(self, timeout: int, clock: LogClock) -> None:
        self._timeout = timeout
        self._clock = clock
        self._waits: dict[str, tuple[Position, int]] = {}
        """By region, the first sealed checkpoint after its position, and the time from which it waits."""
        self._begun = 0
        """Time of the newest abandoned attempt: no wait begins before it."""
        self._started = False
        self._end_fetched_for: int | None = None
        """The wait after whose expiry the log's end was fetched."""

    def abandoned(self, now: int) -> None:
        """Begin the wait again: an attempt was abandoned."""
        self._begun = now

    def update(self, sealed: Mapping[str, Sealed], now: int) -> None:
        """Note the first sealed checkpoint of each region, with the log read to its end."""
        self._waits = {
            name: (each.position, self._since(name, each.position, each.time, now))
            for name, each in sealed.items()
        }
        self._started = True

    def _since(self, name: str, at: Position, time: int, now: int) -> int:
        known = self._waits.get(name)
        if known is not None and known[0] == at:
            return known[1]
        return now if self._started else self._clock.appended(time, now)

    def since(self, names: Iterable[str], due: int) -> int | None:
        """Return the time from which a sealed checkpoint of these regions waits; a cut was due at `due`."""
        waits = [self._waits[name][1] for name in names if name in self._waits]
        return max(min(waits), self._begun, due) if waits else None

    def expired(self, since: int | None, now: int) -> bool:
        """True if the timeout has passed since that time."""
        return since is not None and now >= since + self._timeout

    def needs_end(self, since: int | None) -> bool:
        """True if the log's end must be fetched: once after each expiry."""
        if since == self._end_fetched_for:
            return False
        self._end_fetched_for = since
        return True


class Cadence:
    """The shortest time between two decisions, and the amounts at which a cut is due earlier."""

    def __init__(self, interval: int, max_files: int | None, max_bytes: int | None) -> None:
        self._interval = interval
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._decided_at: int | None = None

    def decided(self, now: int) -> None:
        """Note a decision that was read."""
        self._decided_at = now

    @property
    def has_maxima(self) -> bool:
        """True if amounts of files can make a cut due."""
        return self._max_files is not None or self._max_bytes is not None

    def is_full(self, files: int, size: int) -> bool:
        """True if this many sealed files, or bytes of them, make a cut due."""
        full = self._max_files is not None and files >= self._max_files
        return full or (self._max_bytes is not None and size >= self._max_bytes)

    def due_at(self) -> int:
        """Return the time at which a cut is due by the interval; 0 before the first decision."""
        return self._decided_at + self._interval if self._decided_at is not None and self._interval else 0
