"""The alignment timer, and how far it believes append times: a broker's clock may jump, or be wrong for ever.

All of this is work in hand. The fold of the log compares no times, and no validity depends on one.
"""

from collections.abc import Iterable, Mapping

from sluicegate.events.models import Position

Sealed = tuple[Position, int]
"""A sealed checkpoint, and the append time of the event that sealed it."""


class LogClock:
    """The broker's clock, as far as append times show it."""

    def __init__(self) -> None:
        self._last = 0
        self._read_at: int | None = None
        self._fresh = False

    def read(self, time: int) -> None:
        """Take note of a record's append time. Only the last one counts: an earlier one may be wrong."""
        self._last = time
        self._fresh = True

    def tick(self, now: int) -> None:
        """Take note of the time."""
        if self._fresh or self._read_at is None:
            self._read_at = now
            self._fresh = False

    def time(self, now: int) -> int | None:
        """The broker's time in milliseconds; None before the own clock was first looked at."""
        return None if self._read_at is None else self._last + now - self._read_at

    def appended(self, time: int, now: int) -> int:
        """Return when a record of this append time was appended, by the own clock.

        The claim is the difference to the last record's append time; it is never negative.
        """
        read_at = now if self._read_at is None else self._read_at
        return read_at - max(0, self._last - time)


class Alignment:
    """The timer after which regions that owe fall back.

    It counts by the own clock, from when a record was read. Append times count only once: for what the
    log held when this coordinator first had read it to its end.
    """

    def __init__(self, timeout: int, clock: LogClock, abandoned: int | None) -> None:
        """`abandoned` is the append time of the last abandonment that the state record has."""
        self._timeout = timeout
        self._clock = clock
        self._waits: dict[str, tuple[Position, int]] = {}
        """By region, the first sealed checkpoint beyond its ref, and since when it waits."""
        self._abandoned_at = abandoned
        self._begun: int | None = None
        """The last abandonment, by the own clock: the wait begins again with it."""
        self._started = False
        self._fenced: int | None = None
        """For which beginning of the wait the end of the log was asked for after the expiry."""

    def abandoned(self, time: int) -> None:
        """Take note of the append time of an abandonment."""
        self._abandoned_at = time

    def look(self, sealed: Mapping[str, Sealed], now: int) -> None:
        """Take note of the first sealed checkpoint of each region, with the log read to its end."""
        self._waits = {name: (at, self._since(name, at, time, now)) for name, (at, time) in sealed.items()}
        if self._abandoned_at is not None:
            self._begun = self._seen(self._abandoned_at, now)
            self._abandoned_at = None
        self._started = True

    def _since(self, name: str, at: Position, time: int, now: int) -> int:
        known = self._waits.get(name)
        return known[1] if known is not None and known[0] == at else self._seen(time, now)

    def _seen(self, time: int, now: int) -> int:
        return now if self._started else self._clock.appended(time, now)

    def since(self, names: Iterable[str]) -> int | None:
        """Since when something sealed of these regions waits; None if nothing does."""
        waits = [self._waits[name][1] for name in names if name in self._waits]
        if not waits:
            return None
        return min(waits) if self._begun is None else max(min(waits), self._begun)

    def expired(self, since: int | None, now: int) -> bool:
        """Whether what has waited since then need wait no more."""
        return since is not None and now >= since + self._timeout

    def fence(self, since: int | None) -> bool:
        """Whether the log's end must be asked for, as the expiry is new."""
        if since == self._fenced:
            return False
        self._fenced = since
        return True
